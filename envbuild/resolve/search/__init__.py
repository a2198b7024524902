"""Searches what satisfies a request: the builds, their needs, their possible places, and the order in which they are tried."""
