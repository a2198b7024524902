"""Parses the words of a request: names, versions and hardware."""
