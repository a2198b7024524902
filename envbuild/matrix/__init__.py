"""The matrix: strict loading, a compiled copy, and checks that look across tables."""

from envbuild.matrix.cache import load, load_files

__all__ = ["load", "load_files"]
