"""The tables of the matrix: frozen values, one class per kind of row.

The classes are named tuples, not dataclasses: Python makes such classes and their rows several times faster, and every command
makes thousands of rows.

In these rows, inheritance, defaults and references to sources are already resolved, so each row is complete. ``key`` names a
row in messages and in ``Conflict.row``; it never changes, because scripts read it. All values are hashable, so that equal rows
can be shared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from envbuild.matrix.gpu_rows import Architecture, Gpu, GpuVendor
from envbuild.matrix.platform import (
    ArchiveRow,
    BuildTool,
    CudaRow,
    DriverRow,
    DriverRule,
    LibraryRow,
    PackageSet,
    Provenance,
    PythonRow,
    RepositoryRow,
    SourceArchiveRow,
    SystemRow,
    WheelSet,
)
from envbuild.model.words import CudaLibraries, PythonFrom


class LibraryNeed(NamedTuple):
    """The cuDNN or NCCL that a framework needs: at least ``minimum``, below ``below``, preferably ``prefer``.

    With ``exact``, only ``prefer`` satisfies the need. ``taken_from`` says where the library comes from: ``system`` (installed
    with CUDA), ``wheels``, or ``bundled`` (in the framework's binary).
    """

    minimum: str
    below: str
    prefer: str
    exact: bool
    taken_from: CudaLibraries


class Requirement(NamedTuple):
    """A PEP 508 requirement that holds on some Pythons only (``python``, such as ``>=3.7``; empty for all).

    ``source`` is the document that states the requirement; it is empty if only the row states it.
    """

    requirement: str
    python: str
    source: str


class BadCapability(NamedTuple):
    """GPUs on which the binaries of a build start, but are known to fail. In the row of an add-on, this may hold only for the
    builds for some CUDA versions, which ``cuda`` lists. If ``cuda`` is empty, it holds for all builds."""

    capabilities: tuple[str, ...]
    reason: str
    source: str
    cuda: tuple[str, ...] = ()


class PinnedWheel(NamedTuple):
    """A wheel of a build for one Python. Its hash is from the document ``source``; its requirements are from its metadata."""

    filename: str
    python: str
    sha256: str
    requires: tuple[str, ...]
    source: str


class Variant(NamedTuple):
    """One build of a framework release. ``systems`` is empty if every system with a new enough glibc can be used.

    A build comes from a package index, with two exceptions. If ``repository`` and ``revision`` are set, the build is made from
    this source. If ``distribution`` is set, the build is the system's own package in this version. ``upon`` are the builds on
    which this build is based, each as (framework, version, variant). ``choices`` are envbuild's own pins, within the ranges
    that the package's metadata allows. These pins apply unless another framework requires other versions. With ``nvcc``, CUDA's
    compiler builds the package. With ``optional_nvcc``, the package has a GPU part if the base has the compiler and NCCL comes
    as a wheel. Otherwise the package has no GPU part. ``files`` are wheels whose hashes are known even if ``index`` cannot be
    reached. ``asks`` are requirements that only serve to find conflicts with other frameworks. Frameworks that conflict need
    separate prefixes. The requirements in ``asks`` are not locked. ``contradicts`` lists the fields that differ from what the
    files on the index state, each with the reason why the row is right. With ``exact_cuda``, CUDA libraries of a later minor
    version cannot be used instead: the package compiles code with headers of exactly ``cuda``. ``beside_wheels`` is set only if
    several builds were joined into this variant: it is the package of a joined build that brings CUDA as wheels. ``only_ptx``
    are compute capabilities for which the base framework has native code, but an add-on has only PTX. So they are not in
    ``sass``.
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
    index: str  # type: ignore[assignment]  # hides the tuple method of this name, which rows do not need
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
    beside_wheels: str = ""
    optional_nvcc: bool = False
    exact_cuda: bool = False
    only_ptx: tuple[str, ...] = ()

    def pins(self, version: str) -> tuple[str, ...]:
        """The requirement that finds this build of release ``version`` on a package index; empty if the build comes from
        elsewhere."""
        if self.repository or self.distribution:
            return ()
        return (f"{self.requirement}=={version}{self.local_version}",)


class Added(NamedTuple):
    """The additions of an add-on's release to each build of its base framework.

    ``package`` is empty if the base framework already contains the add-on; ``pythons`` is empty if the add-on runs on all
    Pythons of the base. ``nvcc`` is true if the add-on must be compiled with nvcc; ``optional_nvcc`` is true if its
    recipe compiles GPU code when the base has nvcc. ``without`` names builds of the base that the add-on does not support.
    ``glibc`` is the oldest glibc on which the add-on's own wheels run; it is empty if the base framework's build needs this
    glibc or a newer one. ``bad_capabilities`` are GPUs of the base for which these wheels have no code. ``only_ptx`` are GPUs
    of the base for which these wheels have PTX but no native code.
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
    glibc: str = ""
    bad_capabilities: tuple[BadCapability, ...] = ()
    optional_nvcc: bool = False
    only_ptx: tuple[str, ...] = ()
    nvcc: bool = False


class BadPair(NamedTuple):
    """Releases of the base framework that are known not to work with an add-on. ``source`` is the report of the failure.
    ``versions`` is the condition in the row, and ``releases`` are the releases that satisfy it."""

    versions: str
    releases: tuple[str, ...]
    why: str
    source: str


class Pairs(NamedTuple):
    """The releases of the base ``framework`` that an add-on's release supports, newest first. Upstream tested the releases in
    ``tested``. Upstream allows the releases in ``allowed`` but has not tested them. ``taken`` is the default: the base release
    that is used if the request does not name the base framework. The ``variants`` of the add-on's release are based on the
    default.

    ``allows`` is the range that upstream states; it is empty if only the tested releases work. ``source`` is the document about
    the tests, and ``allows_source`` is the document about the range. ``default_source`` is the document about the default, if
    another document states it. Upstream tested the releases in ``cpu_only`` only in CPU builds, and the releases in
    ``cuda_only`` only in CUDA builds. In the other kind of build, these releases count as allowed. In builds for CUDA,
    ``taken_cuda`` is used instead of ``taken``.
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
        """The base release that builds for ``cuda`` (empty: for CPU) use if the request does not name the base framework."""
        return self.taken_cuda if cuda else self.taken

    def is_tested(self, version: str, cuda: str) -> bool:
        """Whether upstream tested a base release in builds for ``cuda`` (empty: for CPU)."""
        return version in self.tested and version not in (self.cpu_only if cuda else self.cuda_only)


class Release(NamedTuple):
    """One version of a framework. ``exclude_newer`` is the date limit of its dependencies; ``variants`` are in order of
    preference.

    ``pairs`` lists, for an add-on, the compatible releases of its base frameworks.
    """

    version: str
    series: str
    released: str
    exclude_newer: str
    variants: tuple[Variant, ...]
    origin: Provenance
    pairs: tuple[Pairs, ...] = ()


class NameHint(NamedTuple):
    """A name (``says``) that people use by mistake for another name (``means``)."""

    says: str
    means: str
    because: str


class LeftOut(NamedTuple):
    """A rule for published releases that have no row on purpose. The rule covers versions that satisfy any of the conditions in
    ``releases``. The note of ``origin`` is the reason."""

    releases: tuple[str, ...]
    origin: Provenance


class FrameworkTable(NamedTuple):
    """A framework and its releases, newest first.

    An add-on with several base frameworks has one table for each of them. One table has the usual name. Each other table has
    the usual name in ``instead_of``: in a request that also names the framework ``beside``, the usual name means this table.
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


class MatrixPolicy(NamedTuple):
    """Choices that the matrix states as data: how long after a release its dependencies may be published, and which supply of
    Python is preferred."""

    dependency_margin_days: int
    python_from: tuple[PythonFrom, ...]


class DriverLimit(NamedTuple):
    """The newest driver on the machines of a site, and the ``reason``, which names the site's rule."""

    driver: str
    reason: str


class Matrix(NamedTuple):
    """All tables. Tables of versions have the newest version first. Systems and Pythons are ordered by preference, the highest
    first.

    ``fingerprint`` is the SHA-256 of the matrix's files. If a cached result depends on the matrix, its name contains the
    fingerprint. ``driver_limit`` comes from a rule of the site's policy, never from the files of the matrix.
    """

    fingerprint: str
    policy: MatrixPolicy
    systems: Sequence[SystemRow]
    pythons: Sequence[PythonRow]
    archives: Sequence[ArchiveRow]
    build_tools: Sequence[BuildTool]
    source_archives: Sequence[SourceArchiveRow]
    architectures: Sequence[Architecture]
    drivers: Sequence[DriverRow]
    driver_rules: Sequence[DriverRule]
    repositories: Sequence[RepositoryRow]
    wheel_sets: Sequence[WheelSet]
    package_sets: Sequence[PackageSet]
    cuda: Sequence[CudaRow]
    cudnn: Sequence[LibraryRow]
    nccl: Sequence[LibraryRow]
    gpus: Sequence[Gpu]
    gpu_vendors: Sequence[GpuVendor]
    frameworks: tuple[FrameworkTable, ...]
    driver_limit: DriverLimit | None = None
