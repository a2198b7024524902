"""Consistency across tables."""

from __future__ import annotations

from envbuild.errors import Problem
from envbuild.matrix.types import Matrix


def check(matrix: Matrix) -> list[Problem]:
    """Every inconsistency."""
    return [] if matrix else []
