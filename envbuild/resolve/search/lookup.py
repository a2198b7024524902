"""The rows of the matrix by name, and a cache of values that are computed from the matrix alone."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import cached_property
from typing import Any, TypeVar

from envbuild.matrix.gpu_rows import Architecture
from envbuild.matrix.platform import ArchiveRow, CudaRow, DriverRow, DriverRule, LibraryRow
from envbuild.matrix.types import Matrix
from envbuild.matrix.versions import numbers

T = TypeVar("T")


class Lookup:
    """The rows of a matrix by name, and values computed from them."""

    def __init__(self, matrix: Matrix) -> None:
        self.matrix = matrix
        self.systems = {row.name: row for row in matrix.systems}
        self.cuda = {row.version: row for row in matrix.cuda}
        self.pythons = {row.version: row for row in matrix.pythons}
        self.repositories = {row.name: row for row in matrix.repositories}
        self.rules = {row.cuda_major: row for row in matrix.driver_rules if row.origin.status != "known-bad"}
        self.libraries: dict[str, Sequence[LibraryRow]] = {"cudnn": matrix.cudnn, "nccl": matrix.nccl}
        self._known: dict[tuple[str, Hashable], Any] = {}

    def once(self, what: str, key: Hashable, work_out: Callable[[], T]) -> T:
        """Return what ``work_out`` returns, computed once for each pair of ``what`` and ``key``. The value must depend on the
        matrix only."""
        if (what, key) not in self._known:
            self._known[what, key] = work_out()
        found: T = self._known[what, key]
        return found

    @cached_property
    def drivers(self) -> dict[str, DriverRow]:
        """The driver branches by number. The rows are read lazily, because only requests that name a driver need them."""
        return {row.branch: row for row in self.matrix.drivers}

    @cached_property
    def archives(self) -> dict[str, ArchiveRow]:
        """The archives by name. The rows are read lazily, because few requests need them."""
        return {row.name: row for row in self.matrix.archives}

    def first_branch(self, architecture: Architecture) -> str:
        """The oldest driver branch that supports the first CUDA of an architecture; empty if no row states such a branch."""
        known = [row.branch for row in self.matrix.drivers if numbers(row.max_cuda) >= numbers(architecture.first_cuda)]
        return min(known, key=int, default="")

    def driver_min(self, cuda: str) -> str:
        """The oldest driver that runs all programs of a CUDA version; empty if no row states such a driver."""
        row = self.cuda.get(cuda)
        return row.driver_min if row else ""

    def native_rule(self, row: CudaRow) -> DriverRule | None:
        """The rule of minor-version compatibility for the CUDA version of ``row``: a driver older than the row's minimum still
        runs native code of this CUDA version. None if there is no such rule."""
        rule = self.rules.get(row.version.partition(".")[0])
        return rule if rule is not None and numbers(rule.driver_min) <= numbers(row.driver_min) else None


_latest: list[Lookup] = []  # one entry, because a process nearly always uses only one matrix


def lookup_of(matrix: Matrix) -> Lookup:
    """The rows of ``matrix`` by name. Repeated calls return the same object, unless another matrix was used in between."""
    if not _latest or _latest[0].matrix is not matrix:
        _latest[:] = [Lookup(matrix)]
    return _latest[0]
