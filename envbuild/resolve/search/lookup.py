"""The matrix with its rows by name, and what follows from the matrix alone, kept once it was worked out."""

from __future__ import annotations

from functools import cached_property

from envbuild.matrix.platform import Architecture, ArchiveRow, CudaRow, DriverRow, LibraryRow, RepositoryRow, SystemRow
from envbuild.matrix.types import Matrix, Pairs, Variant
from envbuild.matrix.versions import numbers


class Derived:
    """What follows from a matrix alone, whatever is asked: worked out once for each matrix, when it is first needed."""

    def __init__(self, matrix: Matrix) -> None:
        self.matrix = matrix
        self.places: dict[object, object] = {}  # filled by places.py
        self.needs: dict[object, object] = {}  # by together.py
        self.packages: dict[str, frozenset[str]] = {}  # by together.py
        self.pythons: dict[object, object] = {}  # by pythons.py
        self.upon: dict[tuple[int, str], tuple[Pairs, tuple[Variant, ...]]] = {}  # by upon.py


_latest: list[Derived] = []  # of the matrix that was asked last: one process nearly always asks one


def derived_from(matrix: Matrix) -> Derived:
    """What is known of ``matrix`` so far."""
    if not _latest or _latest[0].matrix is not matrix:
        _latest[:] = [Derived(matrix)]
    return _latest[0]


class Facts:
    """A matrix with its look-ups. What depends on a request is kept for one call only."""

    def __init__(self, matrix: Matrix) -> None:
        self.matrix = matrix
        self.systems: dict[str, SystemRow] = {row.name: row for row in matrix.systems}
        self.cuda: dict[str, CudaRow] = {row.version: row for row in matrix.cuda}
        self.pythons = {row.version: row for row in matrix.pythons}
        self.drivers: dict[str, DriverRow] = {row.branch: row for row in matrix.drivers}
        self.repositories: dict[str, RepositoryRow] = {row.name: row for row in matrix.repositories}
        self.rules = {row.cuda_major: row for row in matrix.driver_rules if row.origin.status != "known-bad"}
        self.libraries: dict[str, tuple[LibraryRow, ...]] = {"cudnn": matrix.cudnn, "nccl": matrix.nccl}
        self.derived = derived_from(matrix)
        self.places: dict[object, object] = {}  # filled by places.py, like the next
        self.candidates: dict[object, list[LibraryRow]] = {}

    @cached_property
    def archives(self) -> dict[str, ArchiveRow]:
        """The archives by name; few requests look at them."""
        return {row.name: row for row in self.matrix.archives}

    def first_branch(self, architecture: Architecture) -> str:
        """The oldest driver branch that implements the CUDA an architecture came with, and so knows it; empty: no row tells."""
        known = [row.branch for row in self.matrix.drivers if numbers(row.max_cuda) >= numbers(architecture.first_cuda)]
        return min(known, key=int, default="")

    def driver_min(self, cuda: str) -> str:
        """The driver that everything of ``cuda`` runs on; empty where no row says."""
        row = self.cuda.get(cuda)
        return row.driver_min if row else ""
