"""The tables of the matrix: frozen values, one class per kind of row.

Inheritance, defaults and references to sources are already worked out: a row stands for itself. ``key`` names a row in messages
and in ``Conflict.row``; it is stable, since scripts read it. Everything is hashable, so that equal rows can be shared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from envbuild.model import CudaLibraries, PythonFrom, Status


@dataclass(frozen=True, kw_only=True, slots=True)
class Provenance:
    """Where a row comes from: documents (URLs or purls), when they were read, and ``at``, its own place as ``file:line``.

    ``fields`` names the documents of single fields where they differ from the row's.
    """

    sources: tuple[str, ...]
    checked: str
    status: Status
    note: str
    fields: tuple[tuple[str, tuple[str, ...]], ...]
    at: str

    @property
    def source(self) -> str:
        """The first document, for places that show one."""
        return self.sources[0] if self.sources else ""

    @property
    def overlaid(self) -> bool:
        """Whether the row stands in an overlay of the user's: those alone are named by an absolute path."""
        return self.at.startswith("/")

    def source_of(self, field: str) -> str:
        """The document for one field."""
        for name, sources in self.fields:
            if name == field and sources:
                return sources[0]
        return self.source


@dataclass(frozen=True, kw_only=True, slots=True)
class SystemPython:
    """A Python that a distribution carries."""

    version: str
    packages: tuple[str, ...]
    executable: str


@dataclass(frozen=True, kw_only=True, slots=True)
class SystemRow:
    """An operating system for images. Higher ``preference`` is chosen first.

    ``gcc`` is the compiler that it carries, ``mirror`` where its packages are served today.
    """

    name: str
    family: str
    version: str
    codename: str
    image: str
    glibc: str
    gcc: str
    mirror: str
    released: str
    end_of_life: str
    bootstrap_suite: str
    init_package: str
    init: str
    packages: tuple[str, ...]
    pythons: tuple[SystemPython, ...]
    preference: int
    origin: Provenance

    @property
    def key(self) -> str:
        """The row's name in messages."""
        return f"system {self.name}"


@dataclass(frozen=True, kw_only=True, slots=True)
class PythonSupply:
    """A way to get a Python on any system whose glibc is at least ``glibc``."""

    by: PythonFrom
    glibc: str
    executable: str


@dataclass(frozen=True, kw_only=True, slots=True)
class PythonRow:
    """A Python version, X.Y."""

    version: str
    released: str
    end_of_life: str
    preference: int
    supplies: tuple[PythonSupply, ...]
    origin: Provenance

    @property
    def key(self) -> str:
        """The row's name in messages."""
        return f"python {self.version}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Architecture:
    """A GPU generation, or a part of one, and the window of CUDA toolkits and driver branches that serves it."""

    name: str
    capabilities: tuple[str, ...]
    first_cuda: str
    last_cuda: str
    last_driver_branch: str
    origin: Provenance

    @property
    def key(self) -> str:
        """The row's name in messages."""
        return f"architecture {self.name} ({', '.join(self.capabilities)})"


@dataclass(frozen=True, kw_only=True, slots=True)
class DriverRow:
    """A driver branch and the CUDA version it implements itself.

    ``kind`` is the vendor's designation, ``released`` the day of its first public driver, ``latest`` its last one known.
    """

    branch: str
    max_cuda: str
    kind: str
    released: str
    end_of_life: str
    latest: str
    origin: Provenance

    @property
    def key(self) -> str:
        """The row's name in messages."""
        return f"driver {self.branch}"


@dataclass(frozen=True, kw_only=True, slots=True)
class DriverRule:
    """Minor-version compatibility: from this driver on, native code of any CUDA of the major runs."""

    cuda_major: str
    driver_min: str
    origin: Provenance

    @property
    def key(self) -> str:
        """The row's name in messages."""
        return f"driver rule CUDA {self.cuda_major}"


@dataclass(frozen=True, kw_only=True, slots=True)
class RepositoryRow:
    """An apt repository with its key."""

    name: str
    url: str
    suite: str
    components: str
    key_url: str
    key_fingerprint: str
    origin: Provenance


@dataclass(frozen=True, kw_only=True, slots=True)
class PackageRow:
    """An exact apt package. ``url`` and ``sha256`` are empty where no public source gives them."""

    name: str
    version: str
    repository: str
    url: str
    sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ProviderRow:
    """One way to get a CUDA version. ``system`` is empty where any serves; ``cudnn`` and ``nccl`` are what an image carries."""

    provider: str
    system: str
    image: str
    repositories: tuple[str, ...]
    packages: tuple[PackageRow, ...]
    cudnn: str
    nccl: str
    preference: int
    origin: Provenance


@dataclass(frozen=True, kw_only=True, slots=True)
class CudaRelease:
    """One release of a CUDA version, patch releases included.

    ``driver_min`` is the driver that the release notes ask for, ``installer_driver`` the one that its installer brings; empty
    where no document says.
    """

    version: str
    released: str
    driver_min: str
    installer_driver: str
    origin: Provenance


@dataclass(frozen=True, kw_only=True, slots=True)
class CudaRow:
    """A CUDA version X.Y, and the capabilities that its toolkit and libraries support.

    ``release``, ``released`` and ``driver_min`` are those of the release that stands for it, the newest of ``releases``.
    ``forward_compat`` names the older driver branches on which data-center GPUs run it with its cuda-compat package;
    ``gcc_max`` is the newest major of gcc that its compiler accepts.
    """

    version: str
    release: str
    released: str
    driver_min: str
    capability_min: str
    capability_max: str
    gcc_max: str
    forward_compat: tuple[str, ...]
    require: str
    releases: tuple[CudaRelease, ...]
    providers: tuple[ProviderRow, ...]
    origin: Provenance

    @property
    def key(self) -> str:
        """The row's name in messages."""
        return f"cuda {self.version}"


@dataclass(frozen=True, kw_only=True, slots=True)
class LibraryPackage:
    """The package of a library for one CUDA version and one system."""

    cuda: str
    system: str
    package: PackageRow
    origin: Provenance


@dataclass(frozen=True, kw_only=True, slots=True)
class LibraryRow:
    """A release of cuDNN or NCCL (``library``)."""

    library: str
    version: str
    release: str
    released: str
    cuda: tuple[str, ...]
    apt: tuple[LibraryPackage, ...]
    origin: Provenance

    @property
    def key(self) -> str:
        """The row's name in messages."""
        return f"{self.library} {self.version}"


@dataclass(frozen=True, kw_only=True, slots=True)
class LibraryNeed:
    """What a framework needs of cuDNN or NCCL: at least ``minimum``, below ``below``, best ``prefer``.

    ``taken_from`` says who brings it: ``system`` (installed beside CUDA), ``wheels``, or ``bundled`` in the framework's binary.
    """

    minimum: str
    below: str
    prefer: str
    exact: bool
    taken_from: CudaLibraries


@dataclass(frozen=True, kw_only=True, slots=True)
class Requirement:
    """A PEP 508 requirement that holds on some Pythons only (``python``, such as ``>=3.7``; empty for all)."""

    requirement: str
    python: str
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class BadCapability:
    """GPUs that the binaries accept and that are known not to work."""

    capabilities: tuple[str, ...]
    reason: str
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Variant:
    """One build of a framework release. ``systems`` is empty where every system with enough glibc serves.

    It comes from a package index, unless ``repository`` and ``revision`` name the source it is built from, or ``distribution``
    the version of the system's own package. ``upon`` are the builds that it stands upon: (framework, version, variant) each.
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
    index: str
    repository: str
    revision: str
    distribution: str
    systems: tuple[str, ...]
    options: tuple[tuple[str, str], ...]
    bad_capabilities: tuple[BadCapability, ...]
    upon: tuple[tuple[str, str, str], ...]
    default: bool
    origin: Provenance

    def pins(self, version: str) -> tuple[str, ...]:
        """What asks a package index for this build of release ``version``; nothing where it comes from elsewhere."""
        if self.repository or self.distribution:
            return ()
        return (f"{self.requirement}=={version}{self.local_version}",)


@dataclass(frozen=True, kw_only=True, slots=True)
class Release:
    """One version of a framework. ``exclude_newer`` bounds its dependencies; ``variants`` stand in order of choice."""

    version: str
    series: str
    released: str
    exclude_newer: str
    variants: tuple[Variant, ...]
    origin: Provenance


@dataclass(frozen=True, kw_only=True, slots=True)
class NameHint:
    """A name that people type and that means another."""

    says: str
    means: str
    because: str


@dataclass(frozen=True, kw_only=True, slots=True)
class LeftOut:
    """Published releases without a row: conditions on versions, any of which suffices. The origin's note is the reason."""

    releases: tuple[str, ...]
    origin: Provenance


@dataclass(frozen=True, kw_only=True, slots=True)
class FrameworkTable:
    """A framework and its releases, newest first."""

    name: str
    title: str
    short: str
    aliases: tuple[str, ...]
    recipe: str
    hints: tuple[NameHint, ...]
    left_out: tuple[LeftOut, ...]
    releases: Sequence[Release]
    origin: Provenance


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpu:
    """A GPU board. Numbers are None where no source gives them.

    They are those of one GPU, also on a board of several; ``power_w`` is the board's.
    """

    name: str
    aliases: tuple[str, ...]
    architecture: str
    capability: str
    kind: str
    memory_gb: float | None
    memory_bandwidth_gb_s: float | None
    fp32_gflops: float | None
    fp64_gflops: float | None
    fp16_gflops: float | None
    tensor_gflops: float | None
    power_w: float | None
    gpus_per_board: int
    nvlink: bool
    released: str
    origin: Provenance

    @property
    def key(self) -> str:
        """The row's name in messages."""
        return f"gpu {self.name}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    """Choices that are data: how long after a release its dependencies may be, and which supply of Python comes first."""

    dependency_margin_days: int
    python_from: tuple[PythonFrom, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Matrix:
    """All tables. Tables of versions are ordered newest first, systems and Pythons by preference, highest first.

    ``fingerprint`` is the SHA-256 of the files that it was read from, for what is derived from it and kept.
    """

    fingerprint: str
    policy: Policy
    systems: tuple[SystemRow, ...]
    pythons: tuple[PythonRow, ...]
    architectures: tuple[Architecture, ...]
    drivers: tuple[DriverRow, ...]
    driver_rules: tuple[DriverRule, ...]
    repositories: tuple[RepositoryRow, ...]
    cuda: tuple[CudaRow, ...]
    cudnn: tuple[LibraryRow, ...]
    nccl: tuple[LibraryRow, ...]
    gpus: tuple[Gpu, ...]
    frameworks: tuple[FrameworkTable, ...]
