"""Reads the rows of the matrix from YAML: strictly, and with all problems reported at once."""
