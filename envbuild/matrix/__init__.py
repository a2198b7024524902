"""The matrix: strict loading, a compiled copy, and consistency checks across tables."""
