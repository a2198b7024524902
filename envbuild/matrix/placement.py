"""Where the matrix lets a build live: which systems, which Pythons there, which bases; and so which rows serve nothing.

Whether a row is known not to work does not matter here: such a row is there to refuse.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from envbuild.matrix.libraries import accepts
from envbuild.matrix.platform import CudaRow, LibraryPackage, LibraryRow, ProviderRow, SystemRow
from envbuild.matrix.types import LibraryNeed, Matrix, Variant
from envbuild.matrix.versions import numbers, serves

_BASES = ("apt", "tag", "conda")


class Served(NamedTuple):
    """A base that can carry a build, and the packages of libraries that apt could install for it there."""

    system: SystemRow
    provider: ProviderRow | None
    packages: tuple[LibraryPackage, ...]


class Serving:
    """Answers for one matrix; builds that need the same are looked at once."""

    def __init__(self, matrix: Matrix) -> None:
        self._matrix = matrix
        self._cuda = {row.version: row for row in matrix.cuda}
        self._found: dict[object, tuple[list[Served], str]] = {}
        self._pythons: dict[str, set[str]] = {}

    def of(self, variant: Variant) -> tuple[list[Served], str]:
        """Everything that can carry a build, or the reason why nothing can."""
        key = (
            variant.systems,
            variant.glibc,
            variant.python,
            variant.cuda,
            variant.cuda_libraries,
            variant.cudnn,
            variant.nccl,
            variant.nvcc,
        )
        if key not in self._found:
            found = list(self._search(variant))
            self._found[key] = (found, "" if found else self._reason(variant))
        return self._found[key]

    def _systems(self, variant: Variant) -> list[SystemRow]:
        return [row for row in self._matrix.systems if not variant.systems or row.name in variant.systems]

    def _search(self, variant: Variant) -> Iterator[Served]:
        for system in self._systems(variant):
            if numbers(system.glibc) < numbers(variant.glibc) or not self.pythons_on(system) & set(variant.python):
                continue
            if variant.cuda_libraries != "system":
                yield Served(system, None, ())
                continue
            cuda = self._cuda.get(variant.cuda)
            for provider in cuda.providers if cuda else ():
                if provider.system in ("", system.name) and _can_carry(provider, variant) and cuda is not None:
                    brought = [self._brought(name, need, cuda, system, provider) for name, need in needs(variant)]
                    if None not in brought:
                        yield Served(system, provider, tuple(item for packages in brought for item in packages or ()))

    def _reason(self, variant: Variant) -> str:
        enough = [row for row in self._systems(variant) if numbers(row.glibc) >= numbers(variant.glibc)]
        if not enough:
            return f"none has glibc {variant.glibc}"
        with_python = [row for row in enough if self.pythons_on(row) & set(variant.python)]
        if not with_python:
            return f"none of those with glibc {variant.glibc} has Python {', '.join(variant.python)}"
        names = {row.name for row in with_python}
        cuda = self._cuda.get(variant.cuda)
        bases = [row for row in (cuda.providers if cuda else ()) if row.provider in _BASES and row.system in ("", *names)]
        if not bases:
            return f"none of {', '.join(sorted(names))} has a provider of CUDA {variant.cuda}"
        if not any(_can_carry(row, variant) for row in bases):
            return f"no provider of CUDA {variant.cuda} brings its compiler"
        return "no provider has the cuDNN and NCCL that it needs"

    def pythons_on(self, system: SystemRow) -> set[str]:
        """The Pythons that a system carries or can be given."""
        if system.name not in self._pythons:
            given = [
                row.version
                for row in self._matrix.pythons
                if any(numbers(supply.glibc) <= numbers(system.glibc) for supply in row.supplies)
            ]
            self._pythons[system.name] = {*given, *(python.version for python in system.pythons)}
        return self._pythons[system.name]

    def fitting(self, library: str, need: LibraryNeed, cuda: str) -> list[LibraryRow]:
        """The releases of a library that a need accepts and that exist for a CUDA version."""
        rows = self._matrix.cudnn if library == "cudnn" else self._matrix.nccl
        return [row for row in rows if accepts(need, row.version) and any(serves(cuda, entry) for entry in row.cuda)]

    def _brought(
        self, library: str, need: LibraryNeed, cuda: CudaRow, system: SystemRow, provider: ProviderRow
    ) -> list[LibraryPackage] | None:
        """The packages by which a base can bring a library; None where it cannot."""
        if need.taken_from != "system":
            return []
        if provider.provider == "tag" or provider.files:
            inside = provider.cudnn if library == "cudnn" else provider.nccl
            return [] if inside and accepts(need, inside) else None
        rows = self.fitting(library, need, cuda.version)
        if provider.provider == "conda":
            return [] if rows else None
        packages = [item for row in rows for item in row.apt if item.system == system.name and serves(cuda.version, item.cuda)]
        return packages or None


def _can_carry(provider: ProviderRow, variant: Variant) -> bool:
    return provider.provider in _BASES and (provider.compiles or not variant.nvcc)


def needs(variant: Variant) -> list[tuple[str, LibraryNeed]]:
    """What a build needs of cuDNN and NCCL, by name."""
    return [(name, need) for name, need in (("cudnn", variant.cudnn), ("nccl", variant.nccl)) if need is not None]
