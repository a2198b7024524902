"""Decide which systems, Pythons and bases a build can use. `matrix check` and the resolver share these rules.

:class:`Serving` combines these rules for `matrix check`, which ignores the status of rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from envbuild.matrix.libraries import accepted_releases, accepts, needs
from envbuild.matrix.platform import (
    CudaRow,
    LibraryPackage,
    LibraryRow,
    LibraryWheel,
    ProviderRow,
    PythonRow,
    PythonSupply,
    SystemRow,
)
from envbuild.matrix.types import LibraryNeed, Matrix, Variant
from envbuild.matrix.versions import numbers, serves

_WITH_CUDA = ("apt", "tag", "conda", "wheels", "debian")


def has_glibc(system: SystemRow, variant: Variant) -> bool:
    """Whether a system's C library is new enough for a build."""
    return numbers(system.glibc) >= numbers(variant.glibc)


def is_for(variant: Variant, system: SystemRow) -> bool:
    """Whether a build is for every system, or names this system."""
    return not variant.systems or system.name in variant.systems


def supplies_on(row: PythonRow, system: SystemRow) -> list[PythonSupply]:
    """The supplies from which a system can get this Python if its distribution does not have it."""
    return [supply for supply in row.supplies if numbers(supply.glibc) <= numbers(system.glibc)]


def bases_on(cuda: CudaRow, system: SystemRow) -> list[ProviderRow]:
    """The bases that provide a CUDA version on a system."""
    return [row for row in cuda.providers if row.provider in _WITH_CUDA and row.system in ("", system.name)]


def can_compile(base: ProviderRow, variant: Variant) -> bool:
    """Whether a base has the CUDA compiler, or the build needs none."""
    return base.compiles or not variant.nvcc


def has_compiler(base: ProviderRow) -> bool:
    """Whether a distribution's packages give a base the CUDA compiler, whatever brings CUDA's libraries."""
    return base.compiles and base.package_set is not None and base.origin.status != "known-bad"


def has_its_cuda(base: ProviderRow, variant: Variant) -> bool:
    """Whether a base has exactly the CUDA version of a build, or the build also runs on a later minor version."""
    return base.cuda in ("", variant.cuda) or not variant.exact_cuda


def has_fixed_libraries(base: ProviderRow) -> bool:
    """Whether a base already contains cuDNN and NCCL. The base is then an image, or a set of files."""
    return base.provider == "tag" or bool(base.files)


def library_inside(base: ProviderRow, library: str) -> str:
    """Return the release of a library that a base contains, or an empty text if no source states it."""
    return base.cudnn if library == "cudnn" else base.nccl


def packages_for(row: LibraryRow, cuda: str, system: SystemRow) -> list[LibraryPackage]:
    """The apt packages with which a system installs a release of a library for a CUDA version."""
    return [item for item in row.apt if item.system == system.name and serves(cuda, item.cuda)]


def wheels_for(row: LibraryRow, base: ProviderRow) -> list[LibraryWheel]:
    """The wheels of a cuDNN or NCCL release. These wheels are used on a base that gets CUDA from wheels, or from a distribution
    that has neither library."""
    return [item for item in row.wheels if base.cuda and serves(base.cuda, item.cuda)]


def headers_wheel(rows: Iterable[LibraryRow], need: LibraryNeed, base: ProviderRow) -> LibraryWheel | None:
    """The wheel with the headers of a library that the framework's binary contains: the wheel of the same release, because a
    process then loads both. None if the base has no compiler from a distribution, or if there is no such wheel."""
    if need.taken_from != "bundled" or base.package_set is None or not base.compiles:
        return None
    same = (row for row in rows if row.version == need.prefer and row.origin.status != "known-bad")
    return next((wheel for row in same for wheel in wheels_for(row, base) if wheel.origin.status != "known-bad"), None)


class Served(NamedTuple):
    """A base that a build can use, and the packages and wheels of libraries that can be installed on this base."""

    system: SystemRow
    provider: ProviderRow | None
    packages: tuple[LibraryPackage | LibraryWheel, ...]


class Serving:
    """Finds the bases that the builds of a matrix can use. The result is cached for all builds with the same needs."""

    def __init__(self, matrix: Matrix) -> None:
        self._matrix = matrix
        self._cuda = {row.version: row for row in matrix.cuda}
        self._found: dict[object, tuple[list[Served], str]] = {}
        self._pythons: dict[str, set[str]] = {}

    def of(self, variant: Variant) -> tuple[list[Served], str]:
        """Return every base that a build can use, or the reason why there is none."""
        key = (
            variant.systems,
            variant.glibc,
            variant.python,
            variant.cuda,
            variant.cuda_libraries,
            variant.cudnn,
            variant.nccl,
            variant.nvcc,
            variant.exact_cuda,
        )
        if key not in self._found:
            found = list(self._search(variant))
            self._found[key] = (found, "" if found else self._reason(variant))
        return self._found[key]

    def _systems(self, variant: Variant) -> list[SystemRow]:
        return [row for row in self._matrix.systems if is_for(variant, row)]

    def _search(self, variant: Variant) -> Iterator[Served]:
        for system in self._systems(variant):
            if not has_glibc(system, variant) or not self.pythons_on(system) & set(variant.python):
                continue
            cuda = self._cuda.get(variant.cuda)
            if variant.cuda_libraries != "system":
                if not variant.nvcc or any(has_compiler(row) for row in (bases_on(cuda, system) if cuda else ())):
                    yield Served(system, None, ())
                continue
            for provider in bases_on(cuda, system) if cuda else ():
                if can_compile(provider, variant) and has_its_cuda(provider, variant) and cuda is not None:
                    brought = [self._brought(name, need, cuda, system, provider) for name, need in needs(variant)]
                    if None not in brought:
                        yield Served(system, provider, tuple(item for packages in brought for item in packages or ()))

    def _reason(self, variant: Variant) -> str:
        enough = [row for row in self._systems(variant) if has_glibc(row, variant)]
        if not enough:
            return f"none has glibc {variant.glibc} or newer"
        with_python = [row for row in enough if self.pythons_on(row) & set(variant.python)]
        if not with_python:
            return f"those with glibc {variant.glibc} or newer do not have Python {', '.join(variant.python)}"
        cuda = self._cuda.get(variant.cuda)
        bases = [base for row in with_python for base in (bases_on(cuda, row) if cuda else ())]
        if not bases:
            return f"no provider has CUDA {variant.cuda} for {', '.join(sorted(row.name for row in with_python))}"
        if not any(can_compile(base, variant) for base in bases):
            return f"no provider of CUDA {variant.cuda} contains its compiler, nvcc"
        return "no provider has the cuDNN and NCCL that the build needs"

    def pythons_on(self, system: SystemRow) -> set[str]:
        """Return the Pythons of a system: those of its distribution, and those from other supplies."""
        if system.name not in self._pythons:
            given = [row.version for row in self._matrix.pythons if supplies_on(row, system)]
            self._pythons[system.name] = {*given, *(python.version for python in system.pythons)}
        return self._pythons[system.name]

    def fitting(self, library: str, need: LibraryNeed, cuda: str) -> list[LibraryRow]:
        """The releases of a library that a need accepts and that exist for a CUDA version."""
        rows = self._matrix.cudnn if library == "cudnn" else self._matrix.nccl
        return accepted_releases(rows, need, cuda)

    def _brought(
        self, library: str, need: LibraryNeed, cuda: CudaRow, system: SystemRow, provider: ProviderRow
    ) -> Sequence[LibraryPackage | LibraryWheel] | None:
        """Return the packages or wheels with which a base can provide a library. Return None if the base cannot provide the
        library."""
        if need.taken_from != "system":
            return []
        if has_fixed_libraries(provider):
            inside = library_inside(provider, library)
            return [] if inside and accepts(need, inside) else None
        rows = self.fitting(library, need, cuda.version)
        if provider.provider == "conda":
            return [] if rows else None
        if provider.cuda:
            return [item for row in rows for item in wheels_for(row, provider)] or None
        return [item for row in rows for item in packages_for(row, cuda.version, system)] or None
