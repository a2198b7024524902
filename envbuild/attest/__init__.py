"""Signed statements about images: keys, the format of statements, and their contents."""
