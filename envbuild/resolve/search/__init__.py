"""Searches for environments that satisfy a request: builds, their needs, their possible places, and the order of the search."""
