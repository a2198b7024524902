"""Signed statements about images: keys, statements, and what is stated."""
