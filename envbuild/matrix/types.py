"""The tables of the matrix: frozen values, one class per kind of row.

They are named tuples, not dataclasses: every command makes these classes and thousands of rows, and both are made several times
faster so.

Inheritance, defaults and references to sources are already worked out: a row stands for itself. ``key`` names a row in messages
and in ``Conflict.row``; it is stable, since scripts read it. Everything is hashable, so that equal rows can be shared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from envbuild.matrix.platform import (
    Architecture,
    ArchiveRow,
    BuildTool,
    CudaRow,
    DriverRow,
    DriverRule,
    Gpu,
    GpuVendor,
    LibraryRow,
    Provenance,
    PythonRow,
    RepositoryRow,
    SourceArchiveRow,
    SystemRow,
)
from envbuild.model import CudaLibraries, PythonFrom


class LibraryNeed(NamedTuple):
    """What a framework needs of cuDNN or NCCL: at least ``minimum``, below ``below``, best ``prefer``.

    ``taken_from`` says who brings it: ``system`` (installed beside CUDA), ``wheels``, or ``bundled`` in the framework's binary.
    """

    minimum: str
    below: str
    prefer: str
    exact: bool
    taken_from: CudaLibraries


class Requirement(NamedTuple):
    """A PEP 508 requirement that holds on some Pythons only (``python``, such as ``>=3.7``; empty for all).

    ``source`` is the document that it quotes, empty if it is the row's own term.
    """

    requirement: str
    python: str
    source: str


class BadCapability(NamedTuple):
    """GPUs that the binaries accept and that are known not to work."""

    capabilities: tuple[str, ...]
    reason: str
    source: str


class PinnedWheel(NamedTuple):
    """A file of a build for one Python, its hash as ``source`` tells it, and what its metadata requires."""

    filename: str
    python: str
    sha256: str
    requires: tuple[str, ...]
    source: str


class Variant(NamedTuple):
    """One build of a framework release. ``systems`` is empty if every system with enough glibc serves.

    It comes from a package index, unless ``repository`` and ``revision`` name the source it is built from, or ``distribution``
    the version of the system's own package. ``upon`` are the builds that it stands upon: (framework, version, variant) each.
    ``choices`` are pins of our own within the ranges that its metadata asks for: they hold if nothing beside it asks for
    something else. ``nvcc``: CUDA's compiler builds it. ``files`` are known by hash even where ``index`` cannot be asked.
    ``asks``: what it needs of packages that others may need differently; it keeps them apart, and no lock holds it.
    ``contradicts``: in what the row differs from what the files on the index say, and why the row is right.
    """

    name: str
    package: str
    requirement: str
    local_version: str
    requirements: tuple[Requirement, ...]
    constraints: tuple[Requirement, ...]
    python: tuple[str, ...]
    cuda: str
    cuda_libraries: CudaLibraries
    cudnn: LibraryNeed | None
    nccl: LibraryNeed | None
    sass: tuple[str, ...]
    ptx: tuple[str, ...]
    glibc: str
    cpu_features: tuple[str, ...]
    index: str  # type: ignore[assignment]  # tuples have a method of this name, which nobody asks of a row
    repository: str
    revision: str
    distribution: str
    systems: Sequence[str]
    options: tuple[tuple[str, str], ...]
    bad_capabilities: tuple[BadCapability, ...]
    upon: tuple[tuple[str, str, str], ...]
    default: bool
    contradicts: tuple[tuple[str, str], ...]
    origin: Provenance
    files: tuple[PinnedWheel, ...] = ()
    nvcc: bool = False
    choices: tuple[Requirement, ...] = ()
    asks: tuple[Requirement, ...] = ()

    def pins(self, version: str) -> tuple[str, ...]:
        """What asks a package index for this build of release ``version``; nothing where it comes from elsewhere."""
        if self.repository or self.distribution:
            return ()
        return (f"{self.requirement}=={version}{self.local_version}",)


class Added(NamedTuple):
    """What a release adds to each build of what it stands upon.

    ``package`` is empty where what it stands upon holds it already; ``pythons`` if it runs on all of that one's. ``without``
    are builds of that one, by name, that it is not made for.
    """

    package: str
    pythons: Sequence[str]
    without: tuple[str, ...]
    same_local_version: bool
    repository: str
    revision: str
    requirements: tuple[Requirement, ...]
    constraints: tuple[Requirement, ...]
    asks: tuple[Requirement, ...]
    options: tuple[tuple[str, str], ...]
    contradicts: tuple[tuple[str, str], ...]
    origin: Provenance


class BadPair(NamedTuple):
    """Releases of what is stood upon (``versions`` as written) that are known not to work, with the report."""

    versions: str
    releases: tuple[str, ...]
    why: str
    source: str


class Pairs(NamedTuple):
    """The releases of ``framework`` that a release stands upon, newest first: those that upstream tested, and those that it
    allows without a test. ``taken`` is the one if a request does not name the framework; ``release.variants`` are upon it.

    ``allows`` is the range that upstream writes, empty if only the tested ones work. ``source`` tells of the tests,
    ``allows_source`` of the range, ``default_source`` of the default, if another document than ``source`` tells of it.
    Of the tested ones, upstream tested ``cpu_only`` in no build for CUDA, and ``cuda_only`` in no build for CPU: in those they
    are allowed. ``taken_cuda`` is the ``taken`` of builds for CUDA.
    """

    framework: str
    taken: str
    tested: tuple[str, ...]
    allowed: tuple[str, ...]
    bad: tuple[BadPair, ...]
    allows: str
    source: str
    allows_source: str
    added: Added
    taken_cuda: str
    cpu_only: tuple[str, ...] = ()
    cuda_only: tuple[str, ...] = ()
    default_source: str = ""

    def takes(self, cuda: str) -> str:
        """The release if a request does not name the framework, for builds for ``cuda``; empty means for CPU."""
        return self.taken_cuda if cuda else self.taken

    def is_tested(self, version: str, cuda: str) -> bool:
        """Whether upstream tested a release in builds for ``cuda``; empty means for CPU."""
        return version in self.tested and version not in (self.cpu_only if cuda else self.cuda_only)


class Release(NamedTuple):
    """One version of a framework. ``exclude_newer`` bounds its dependencies; ``variants`` stand in order of choice.

    ``pairs`` say which releases of other frameworks it goes with, where its builds are theirs.
    """

    version: str
    series: str
    released: str
    exclude_newer: str
    variants: tuple[Variant, ...]
    origin: Provenance
    pairs: tuple[Pairs, ...] = ()


class NameHint(NamedTuple):
    """A name that people type and that means another."""

    says: str
    means: str
    because: str


class LeftOut(NamedTuple):
    """Published releases without a row: conditions on versions, any of which suffices. The origin's note is the reason."""

    releases: tuple[str, ...]
    origin: Provenance


class FrameworkTable(NamedTuple):
    """A framework and its releases, newest first.

    Of several tables of one add-on, each upon another framework, one has the usual name; the others say it in ``instead_of``:
    beside the framework ``beside`` that name means them.
    """

    name: str
    title: str
    short: str
    aliases: tuple[str, ...]
    recipe: str
    hints: tuple[NameHint, ...]
    left_out: tuple[LeftOut, ...]
    releases: Sequence[Release]
    origin: Provenance
    instead_of: str = ""
    beside: str = ""


class Policy(NamedTuple):
    """Choices that are data: how long after a release its dependencies may be, and which supply of Python comes first."""

    dependency_margin_days: int
    python_from: tuple[PythonFrom, ...]


class Matrix(NamedTuple):
    """All tables. Tables of versions are ordered newest first, systems and Pythons by preference, highest first.

    ``fingerprint`` is the SHA-256 of the files that it was read from, for what is derived from it and kept.
    """

    fingerprint: str
    policy: Policy
    systems: Sequence[SystemRow]
    pythons: Sequence[PythonRow]
    archives: Sequence[ArchiveRow]
    build_tools: Sequence[BuildTool]
    source_archives: Sequence[SourceArchiveRow]
    architectures: Sequence[Architecture]
    drivers: Sequence[DriverRow]
    driver_rules: Sequence[DriverRule]
    repositories: Sequence[RepositoryRow]
    cuda: Sequence[CudaRow]
    cudnn: Sequence[LibraryRow]
    nccl: Sequence[LibraryRow]
    gpus: Sequence[Gpu]
    gpu_vendors: Sequence[GpuVendor]
    frameworks: tuple[FrameworkTable, ...]
