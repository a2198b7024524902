"""The rows about platforms: systems, Pythons, drivers, CUDA and its libraries. Rows cannot be changed, as in
``matrix.types``."""

from __future__ import annotations

from typing import NamedTuple

from envbuild.model.words import PythonFrom, Status

SITE = "excluded by the site rule in "  # the beginning of the note of a row that a policy excludes


class Provenance(NamedTuple):
    """The origin of a row. ``sources`` are documents (URLs or purls), ``checked`` is the day on which they were read, and
    ``at`` is the row's position as ``file:line``.

    ``fields`` names the documents of single fields, if these differ from the documents of the row.
    """

    sources: tuple[str, ...]
    checked: str
    status: Status
    note: str
    fields: tuple[tuple[str, tuple[str, ...]], ...]
    at: str

    @property
    def source(self) -> str:
        """The first document, for messages that show only one document."""
        return self.sources[0] if self.sources else ""

    @property
    def overlaid(self) -> bool:
        """Whether the row is from a user's overlay: only overlays have absolute paths."""
        return self.at.startswith("/")

    @property
    def why_bad(self) -> str:
        """Why a row with the status known-bad is not used: because it is known to fail, or because of the site's rule."""
        return self.note if self.note.startswith(SITE) else f"known not to work: {self.note}"

    def source_of(self, field: str) -> str:
        """The document that states the value of one field."""
        for name, sources in self.fields:
            if name == field and sources:
                return sources[0]
        return self.source


class SystemPython(NamedTuple):
    """A Python that a distribution has as a package."""

    version: str
    packages: tuple[str, ...]
    executable: str


class SystemRow(NamedTuple):
    """An operating system for images. Systems with a higher ``preference`` are chosen first.

    ``gcc`` is the version of its compiler. ``mirror`` is the address from which its packages come today. ``digest`` is the
    digest (``sha256:…``) that its image's tag had when the source was read. ``archive`` are apt sources that keep its packages
    permanently. ``snapshot`` is an address: below it, the distribution keeps every state of its archives, at ``NAME/TIME``.
    """

    name: str
    family: str
    version: str
    codename: str
    image: str
    digest: str
    glibc: str
    gcc: str
    mirror: str
    archive: tuple[str, ...]
    snapshot: str
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


class ArchiveRow(NamedTuple):
    """A file that a build downloads: an archive of a Python interpreter, a conda package, or a program that is a single
    file."""

    name: str
    url: str
    sha256: str
    origin: Provenance

    @property
    def key(self) -> str:
        """The row's name in messages."""
        return f"archive {self.name}"


class BuildTool(NamedTuple):
    """A wheel with a program that installs packages into images. If ``pythons`` is empty, it is uv, and builds run the program
    in the wheel's folder ``scripts/``. Else it is the pip for images with one of these Pythons."""

    name: str
    version: str
    filename: str
    sha256: str
    size: int
    origin: Provenance
    pythons: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The row's name in messages."""
        return f"build tool {self.name} {self.version}"


class SourceArchiveRow(NamedTuple):
    """The sha256 of the archive that envbuild makes of ``repository`` at ``revision``."""

    repository: str
    revision: str
    sha256: str
    origin: Provenance

    @property
    def key(self) -> str:
        """The row's name in messages."""
        return f"source archive {self.repository} {self.revision}"


class PythonSupply(NamedTuple):
    """A way to get a Python on any system whose glibc is at least ``glibc``.

    ``files`` names its archives in the order of installation. ``installer`` names the program that unpacks them if tar cannot.
    If ``files`` is empty, the hashes are unknown, and a lock with this Python lists the hashes as missing.
    """

    by: PythonFrom
    glibc: str
    executable: str
    installer: str
    files: tuple[str, ...]


class PythonRow(NamedTuple):
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


class DriverRow(NamedTuple):
    """A driver branch, and the newest CUDA version that it supports, as nvidia-smi prints it.

    ``kind`` is the vendor's name for the branch's type. ``released`` is the day of the branch's first public driver. ``latest``
    is the newest known driver of the branch.
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


class DriverRule(NamedTuple):
    """Minor-version compatibility: this driver and newer drivers run native code of every CUDA version with this major
    version."""

    cuda_major: str
    driver_min: str
    origin: Provenance

    @property
    def key(self) -> str:
        """The row's name in messages."""
        return f"driver rule CUDA {self.cuda_major}"


class RepositoryRow(NamedTuple):
    """An apt repository with its key."""

    name: str
    url: str
    suite: str
    components: str
    key_url: str
    key_fingerprint: str
    origin: Provenance


class PackageRow(NamedTuple):
    """An apt package with an exact version. ``url`` and ``sha256`` are empty if no public source states them."""

    name: str
    version: str
    repository: str
    url: str
    sha256: str


class WheelRow(NamedTuple):
    """A wheel of the CUDA vendor. ``requirement`` pins its version. ``folder`` is the folder below site-packages with its
    shared libraries; empty if the wheel has no libraries."""

    requirement: str
    folder: str


class WheelSet(NamedTuple):
    """The wheels of one CUDA version, for frameworks that look for CUDA in the system.

    ``toolkit`` are the links in the CUDA toolkit's usual folder: the name of each link, and its target below site-packages.
    ``apt`` are the system's packages with libraries that the wheels need.
    """

    name: str
    cuda: str
    wheels: tuple[WheelRow, ...]
    toolkit: tuple[tuple[str, str], ...]
    apt: tuple[str, ...]
    origin: Provenance

    @property
    def key(self) -> str:
        """The row's name in messages."""
        return f"wheel set {self.name}"


class PackageSet(NamedTuple):
    """The packages with which a Debian release brings one CUDA version.

    ``components`` are the parts of Debian's archive, in addition to main, that have these packages. ``build_packages`` bring
    nvcc and the headers, for compiling. No versions are stated: a lock pins the versions that the archive has.
    """

    name: str
    system: str
    cuda: str
    components: tuple[str, ...]
    packages: tuple[str, ...]
    build_packages: tuple[str, ...]
    origin: Provenance

    @property
    def key(self) -> str:
        """The row's name in messages."""
        return f"package set {self.name}"


class ProviderRow(NamedTuple):
    """One way to get a CUDA version. ``system`` is empty if every system can be used; ``cudnn`` and ``nccl`` are the releases
    that an image already contains.

    ``build_packages`` and ``build_image`` contain nvcc and the headers for compiling. Both are empty if no document names them.
    ``files`` names the archives of conda packages. ``installer`` names the archive with the program that unpacks them.
    ``digest`` is the digest (``sha256:…``) that the image's tag had according to a document, or empty if no document states it.
    """

    provider: str
    system: str
    image: str
    repositories: tuple[str, ...]
    packages: tuple[PackageRow, ...]
    cudnn: str
    nccl: str
    preference: int
    origin: Provenance
    build_packages: tuple[PackageRow, ...] = ()
    build_image: str = ""
    files: tuple[str, ...] = ()
    installer: str = ""
    digest: str = ""
    wheels: WheelSet | None = None
    package_set: PackageSet | None = None

    @property
    def cuda(self) -> str:
        """The CUDA version of the provider's libraries; empty if the provider does not state it. It may be a later minor
        version than that of the CUDA row."""
        brought = self.wheels or self.package_set
        return brought.cuda if brought else ""

    @property
    def compiles(self) -> bool:
        """Whether the provider brings the tools for compiling."""
        return bool(self.build_packages or self.build_image or (self.package_set and self.package_set.build_packages))


class CudaRelease(NamedTuple):
    """One release of a CUDA version. Patch releases count as releases, too.

    ``driver_min`` is the driver that the release notes require. ``installer_driver`` is the driver in the release's installer.
    Each is empty if no document names it.
    """

    version: str
    released: str
    driver_min: str
    installer_driver: str
    origin: Provenance


class CudaRow(NamedTuple):
    """A CUDA version X.Y, and the capabilities that its toolkit and libraries support.

    ``release``, ``released`` and ``driver_min`` are the values of the newest release in ``releases``. ``forward_compat`` names
    older driver branches. With a driver of such a branch, data-center GPUs run this CUDA if its cuda-compat package is
    installed. ``gcc_max`` is the newest major version of gcc that the CUDA compiler accepts.
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


class LibraryPackage(NamedTuple):
    """The package of a library for one CUDA version and one system.

    ``dev`` is the package with the library's headers, which has the same version and repository. It is None if no document
    names such a package.
    """

    cuda: str
    system: str
    package: PackageRow
    origin: Provenance
    dev: PackageRow | None = None


class LibraryWheel(NamedTuple):
    """The wheel of a library for one CUDA version, or for all CUDA versions with the same major version."""

    cuda: str
    wheel: WheelRow
    origin: Provenance


class LibraryRow(NamedTuple):
    """A release of cuDNN or NCCL (``library``). ``capability_min`` is the lowest compute capability that it supports; empty if
    no document says so."""

    library: str
    version: str
    release: str
    released: str
    cuda: tuple[str, ...]
    capability_min: str
    apt: tuple[LibraryPackage, ...]
    origin: Provenance
    wheels: tuple[LibraryWheel, ...] = ()

    @property
    def key(self) -> str:
        """The row's name in messages."""
        return f"{self.library} {self.version}"
