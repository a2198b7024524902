"""The matrix: strict loading, a compiled copy, and checks that look across tables."""
