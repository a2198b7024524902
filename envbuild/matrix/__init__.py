"""Loads the files of the matrix strictly, keeps a compiled copy of the matrix, and checks that its tables are consistent."""
