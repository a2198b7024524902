"""The facts: strict loading, a compiled cache, and checks that look across tables."""

from __future__ import annotations

from envbuild.matrix.checks import check
from envbuild.matrix.store import load, load_files
from envbuild.matrix.types import Matrix

__all__ = ["Matrix", "check", "load", "load_files"]
