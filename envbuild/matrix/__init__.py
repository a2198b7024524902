"""The matrix: strict loading, a compiled copy, and checks that look across tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from envbuild.errors import Problem
from envbuild.matrix.cache import load, load_files

if TYPE_CHECKING:
    from envbuild.matrix.types import Matrix

__all__ = ["check", "load", "load_files", "unnamed_files", "unused"]


def check(matrix: Matrix) -> list[Problem]:
    """Every inconsistency between the rows, in the order of files and lines; empty if there is none."""
    from envbuild.matrix import checks

    return checks.check(matrix)


def unnamed_files(entry: Path) -> list[Problem]:
    """Matrix files beside ``entry`` that it does not include."""
    from envbuild.matrix.reading import loader

    return loader.unnamed_files(entry)


def unused(matrix: Matrix) -> list[Problem]:
    """Rows that no build of the matrix uses, in the order of files and lines: no mistakes, yet worth knowing."""
    from envbuild.matrix import consistency

    return consistency.unused(matrix)
