"""The matrix: loads its files strictly, keeps a compiled copy, and checks that its tables are consistent."""
