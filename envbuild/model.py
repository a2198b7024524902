"""The values that stages pass to each other: frozen, no I/O, no defaults that hide a decision.

All versions are strings. Tuples keep the order that the producer chose and are written in that order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

Status = Literal["ok", "known-bad", "unknown", "base-deleted", "end-of-life"]
PythonFrom = Literal["distribution", "uv", "conda", "base"]
CudaLibraries = Literal["none", "system", "bundled", "wheels"]
Provider = Literal["distribution", "tag", "apt", "wheels", "conda", "local"]

SCHEMA = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Reason:
    """Why one choice was made, and the document (URL or purl) that supports it."""

    choice: str
    because: str
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ComputeCapability:
    """GPU code in the framework's binaries: native code per capability, and the PTX that a driver can compile on."""

    sass: tuple[str, ...]
    ptx: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class PinnedFile:
    """A wheel that the matrix pins by hash, with the public document that tells it and what the wheel's metadata requires."""

    filename: str
    sha256: str
    requires: tuple[str, ...]
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Framework:
    """One framework of an environment, with everything that locking and rendering need to know of it.

    ``requirements`` and ``constraints`` are PEP 508 strings. ``released`` is the ISO date that bounds its dependencies.
    ``index`` is ``default`` for the host's own package index, else the base URL of the index that carries the package.
    ``options`` are the recipe's own data from the matrix row (template variants, flags); templates branch on them. ``cuda`` is
    that of the build where it is not the environment's. ``nvcc``: CUDA's compiler builds it, for ``compute_capability``, where
    that is known. ``files`` are known by hash even where ``index`` cannot be asked. JSON leaves these out where empty.
    """

    name: str
    version: str
    package: str
    variant: str
    requirements: tuple[str, ...]
    constraints: tuple[str, ...]
    recipe: str
    released: str
    index: str
    cuda_libraries: CudaLibraries
    options: dict[str, str]
    cuda: str = field(default="", metadata={"left_out_if_default": True})
    nvcc: bool = field(default=False, metadata={"left_out_if_default": True})
    files: tuple[PinnedFile, ...] = field(default=(), metadata={"left_out_if_default": True})
    compute_capability: ComputeCapability | None = field(default=None, metadata={"left_out_if_default": True})


@dataclass(frozen=True, kw_only=True, slots=True)
class System:
    """The operating system of the image. ``name`` is ours (``ubuntu16.04``); ``image`` is the engine's (``ubuntu:16.04``).

    ``bootstrap_suite`` is the Debian suite that mmdebstrap can make it from, empty where it cannot.
    ``init`` is the path of the init that ``init_package`` installs.
    """

    name: str
    family: str
    version: str
    codename: str
    image: str
    glibc: str
    bootstrap_suite: str
    init_package: str
    init: str
    packages: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class AptRepository:
    """An apt repository added to the base; its key is pinned by the full fingerprint."""

    name: str
    url: str
    suite: str
    components: str
    key_url: str
    key_fingerprint: str


@dataclass(frozen=True, kw_only=True, slots=True)
class AptPackage:
    """An exact package. ``url`` and ``sha256`` are empty where no public source gives them."""

    name: str
    version: str
    repository: str
    url: str
    sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Base:
    """Where the image starts from, and where CUDA comes from (``provider``).

    ``image`` is what FROM names. ``is_default`` is false where the user insisted, which then shows in the canonical name.
    ``other_providers`` are the row's, best first. ``build_packages`` or ``build_image`` bring what compiling takes: the
    image keeps none of it. ``files`` are conda packages of CUDA, ``installer`` the program that unpacks them.
    """

    provider: Provider
    image: str
    is_default: bool
    repositories: tuple[AptRepository, ...]
    packages: tuple[AptPackage, ...]
    other_providers: tuple[str, ...]
    build_packages: tuple[AptPackage, ...] = field(default=(), metadata={"left_out_if_default": True})
    build_image: str = field(default="", metadata={"left_out_if_default": True})
    files: tuple[RemoteFile, ...] = field(default=(), metadata={"left_out_if_default": True})
    installer: RemoteFile | None = field(default=None, metadata={"left_out_if_default": True})


@dataclass(frozen=True, kw_only=True, slots=True)
class RemoteFile:
    """A file that a build fetches by itself, pinned by its hash: an interpreter's archive, a conda package."""

    url: str
    sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Python:
    """The interpreter of the image: ``version`` is X.Y, ``executable`` its path, ``packages`` what apt installs for it.

    ``files`` are what it is unpacked from where no distribution carries it, in the order of installation, ``installer`` the
    program that does it where tar does not. Such a Python has its own folder, two above the executable.
    """

    version: str
    provided_by: PythonFrom
    executable: str
    packages: tuple[str, ...]
    files: tuple[RemoteFile, ...] = field(default=(), metadata={"left_out_if_default": True})
    installer: RemoteFile | None = field(default=None, metadata={"left_out_if_default": True})

    @property
    def is_fetched(self) -> bool:
        """Whether the build unpacks it into a folder of its own."""
        return self.provided_by in ("uv", "conda")


@dataclass(frozen=True, kw_only=True, slots=True)
class PrefixPlan:
    """Frameworks (their names) that share one set of packages, under one interpreter.

    ``exclude_newer`` is the date that bounds its dependencies; empty where the environment's own does.
    """

    name: str
    python: Python
    frameworks: tuple[str, ...]
    exclude_newer: str = field(default="", metadata={"left_out_if_default": True})


@dataclass(frozen=True, kw_only=True, slots=True)
class CopiedFile:
    """A file of the user's (relative to the recipe) for the image, or, where both end with ``/``, what a folder holds."""

    source: str
    target: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Service:
    """A program that an image can start, and what it needs: requirements (PEP 508), apt packages, ports."""

    name: str
    pip: tuple[str, ...]
    apt: tuple[str, ...]
    ports: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Custom:
    """What a user's own recipe asks for. ``request`` are the words that the environment was resolved from.

    ``pip`` are requirements (PEP 508); those of the projects in ``newer`` may be newer than the environment's date.
    ``apt_build`` is there while source packages are built, and does not stay. ``user`` is the name of the image's user, empty
    for the usual one.
    """

    request: tuple[str, ...]
    pip: tuple[str, ...]
    newer: tuple[str, ...]
    apt: tuple[str, ...]
    files: tuple[CopiedFile, ...]
    user: str
    ports: tuple[int, ...]
    services: tuple[Service, ...]
    apt_build: tuple[str, ...] = field(default=(), metadata={"left_out_if_default": True})

    def requirements(self) -> tuple[str, ...]:
        """What is locked beside the frameworks: the user's own, then what the services need."""
        return tuple(dict.fromkeys([*self.pip, *(text for service in self.services for text in service.pip)]))

    def system_packages(self) -> tuple[str, ...]:
        """What apt installs: the user's own, then what the services need."""
        return tuple(dict.fromkeys([*self.apt, *(name for service in self.services for name in service.apt)]))


@dataclass(frozen=True, kw_only=True, slots=True)
class Environment:
    """The resolved decision: every version chosen. The lock stores exactly this.

    ``name`` is canonical and spells every choice, yet is never parsed back. ``exclude_newer`` is the ISO date up to which
    dependencies may have been published; empty for no bound. ``require_cuda`` is NVIDIA_REQUIRE_CUDA, None on CPU.
    ``prefixes`` are empty where all frameworks share one set of packages, under ``python``; else that is the first one's.
    """

    name: str
    frameworks: tuple[Framework, ...]
    python: Python
    system: System
    cuda: str | None
    cudnn: str | None
    nccl: str | None
    base: Base
    driver_min: str | None
    compute_capability: ComputeCapability | None
    require_cuda: str | None
    exclude_newer: str
    prefixes: tuple[PrefixPlan, ...] = field(default=(), metadata={"left_out_if_default": True})
    custom: Custom | None = field(default=None, metadata={"left_out_if_default": True})

    def plans(self) -> tuple[PrefixPlan, ...]:
        """The sets of packages, the main one first: one of the name ``env`` where all frameworks share it."""
        alone = PrefixPlan(name="env", python=self.python, frameworks=tuple(f.name for f in self.frameworks))
        return self.prefixes or (alone,)

    def part(self, plan: PrefixPlan) -> Environment:
        """This environment with the frameworks and the Python of one of its plans alone."""
        ours = tuple(f for f in self.frameworks if f.name in plan.frameworks)
        until = plan.exclude_newer or self.exclude_newer
        return replace(self, python=plan.python, frameworks=ours, exclude_newer=until, prefixes=())

    def cuda_of(self, framework: Framework) -> str | None:
        """The CUDA that one of its frameworks is built for: the environment's, unless it says otherwise or has none."""
        return None if framework.cuda_libraries == "none" else framework.cuda or self.cuda


@dataclass(frozen=True, kw_only=True, slots=True)
class Upon:
    """A build of another framework, upon which one stands."""

    name: str
    version: str
    variant: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Details:
    """What the matrix tells of one framework's build beyond what a lock holds of it.

    ``upon``: the nearest first, the last is the one whose Python, CUDA and GPU code it has. ``cudnn`` and ``nccl`` are those
    that this build uses, None for none or where no source says; ``compute_capability`` is its own.
    """

    upon: tuple[Upon, ...]
    cudnn: str | None
    nccl: str | None
    compute_capability: ComputeCapability | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Resolution:
    """An environment with the story of how it was chosen.

    ``details`` has one entry per framework, in their order. ``overlaid``: the rows behind it that the user's overlays hold.
    """

    request: str
    environment: Environment
    reasons: tuple[Reason, ...]
    warnings: tuple[str, ...]
    overlaid: tuple[str, ...]
    details: tuple[Details, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Artifact:
    """One pinned file. ``index`` is ``default`` or an index's base URL; ``project`` is its page there. ``size`` in bytes."""

    name: str
    version: str
    filename: str
    sha256: str
    index: str
    project: str
    size: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Prefix:
    """One set of packages installed together at ``path``. ``build_artifacts`` are the locked tools that build its sdists."""

    name: str
    path: str
    python: Python
    frameworks: tuple[str, ...]
    backend: Literal["uv", "pip"]
    artifacts: tuple[Artifact, ...]
    build_artifacts: tuple[Artifact, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class DebianPackage:
    """A package of a bootstrapped base, as the mirror's own index describes it."""

    name: str
    version: str
    sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Bootstrap:
    """A base made by mmdebstrap instead of pulled."""

    suite: str
    architecture: str
    variant: str
    packages: tuple[DebianPackage, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class BaseLock:
    """How the base is pinned: a pulled one by ``digest`` (``sha256:…``), a bootstrapped one by its package list.

    ``archive``: the apt sources that a pulled one gets where its own no longer answer. ``build_digest`` pins ``build_image``.
    """

    image: str
    digest: str | None
    bootstrap: Bootstrap | None
    archive: tuple[str, ...] = field(default=(), metadata={"left_out_if_default": True})
    build_digest: str | None = field(default=None, metadata={"left_out_if_default": True})


@dataclass(frozen=True, kw_only=True, slots=True)
class Missing:
    """Something that could not be pinned, and the reason."""

    what: str
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Lock:
    """Decision and pins. Only a lock whose ``missing`` is empty counts as locked."""

    environment: Environment
    base: BaseLock
    prefixes: tuple[Prefix, ...]
    missing: tuple[Missing, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """One step of news from a stage. ``done`` and ``total`` are in ``unit`` (``bytes``, ``layers``, ``files``, ``steps``).

    ``total`` is None while unknown. ``log`` marks a line of output rather than a change of state.
    """

    stage: str
    message: str
    done: float | None = None
    total: float | None = None
    unit: str = ""
    log: bool = False


OnProgress = Callable[[Progress], None]


def ignore_progress(_news: Progress) -> None:
    """The listener for callers that do not want any."""
