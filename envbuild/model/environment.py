"""The resolved decision: every chosen version, with the facts for installing and rendering."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from envbuild.model.custom import Custom
from envbuild.model.words import CudaLibraries, Provider, PythonFrom


@dataclass(frozen=True, kw_only=True, slots=True)
class ComputeCapability:
    """The GPU code in a framework's binaries: the capabilities with native code (``sass``), and the capabilities with PTX
    (``ptx``), which a driver can compile for newer GPUs."""

    sass: tuple[str, ...]
    ptx: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class PinnedFile:
    """A wheel that the matrix pins by hash. ``source`` is the public document that states the hash. ``requires`` are the
    requirements in the wheel's metadata."""

    filename: str
    sha256: str
    requires: tuple[str, ...]
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Framework:
    """One framework of an environment, with everything that locking and rendering need to know about it.

    ``requirements`` and ``constraints`` are PEP 508 strings. ``released`` is the ISO date of the release. ``index`` is
    ``default`` for the host's own package index, else the base URL of the index that carries the package. ``options`` are
    values from the matrix row; the recipe's templates use these values to choose steps. ``cuda`` is the CUDA version of the
    build if it differs from the environment's CUDA version. With ``nvcc``, CUDA's compiler builds the framework; it builds for
    ``compute_capability`` if that is known. ``files`` are wheels whose hashes are known even if ``index`` cannot be reached.
    JSON leaves out ``cuda`` and the fields after it if they are empty.
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
    """The operating system of the image.

    ``name`` is the system's name in envbuild (``ubuntu16.04``). ``image`` is the name of the system's image for the engine
    (``ubuntu:16.04``). ``bootstrap_suite`` is the Debian suite from which mmdebstrap can make the system; it is empty if
    mmdebstrap cannot make the system.
    ``init`` is the path of the init program that ``init_package`` installs.
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
    """An apt package with an exact version. ``url`` and ``sha256`` are empty if no public source states them."""

    name: str
    version: str
    repository: str
    url: str
    sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RemoteFile:
    """A file that a build downloads, pinned by its hash: an interpreter's archive, a conda package."""

    url: str
    sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CudaWheel:
    """A wheel with libraries of CUDA, for frameworks that look for CUDA in the system.

    ``requirement`` pins the version of the wheel. ``folder`` is the folder of its libraries below site-packages, and empty if
    the wheel has no libraries.
    """

    requirement: str
    folder: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolkitLink:
    """A link in the folder /usr/local/cuda, where frameworks look for CUDA's programs and headers.

    ``target`` is a path below site-packages.
    """

    name: str
    target: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Base:
    """The base image, and the provider of CUDA.

    ``image`` is the image in the Dockerfile's FROM. ``is_default`` is false if the user chose another base than the default;
    the canonical name then contains the base. ``other_providers`` are the providers that could be used instead, best first.
    ``cuda`` is the CUDA version of the libraries and of the compiler. ``cuda`` is set only if this version is a later minor
    version than the version for which the frameworks are built. If the frameworks bring their own CUDA, no libraries are
    installed, and ``cuda`` is the version of the compiler alone: see ``libraries_cuda`` and ``compiler_cuda``.

    The tools for compiling are in ``build_packages``, ``build_image`` or ``build_apt`` (Debian's packages). They do not stay in
    the image. ``files`` are conda packages of CUDA; ``installer`` is the program that unpacks these packages. ``wheels`` bring
    CUDA's libraries, cuDNN and NCCL for frameworks that look for them in the system. ``toolkit`` are the links into these
    wheels, and ``apt`` are the system's packages that these wheels need. With the provider `debian`, ``apt`` are Debian's
    packages of CUDA. ``components`` are the components of Debian's archive, in addition to main, that have these packages.
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
    wheels: tuple[CudaWheel, ...] = field(default=(), metadata={"left_out_if_default": True})
    toolkit: tuple[ToolkitLink, ...] = field(default=(), metadata={"left_out_if_default": True})
    apt: tuple[str, ...] = field(default=(), metadata={"left_out_if_default": True})
    cuda: str = field(default="", metadata={"left_out_if_default": True})
    components: tuple[str, ...] = field(default=(), metadata={"left_out_if_default": True})
    build_apt: tuple[str, ...] = field(default=(), metadata={"left_out_if_default": True})

    @property
    def libraries_cuda(self) -> str:
        """The CUDA version of the libraries that the base installs; empty if it installs none, or if this version is that of
        the frameworks."""
        return self.cuda if self.wheels or self.apt else ""

    @property
    def compiler_cuda(self) -> str:
        """The CUDA version of the compiler (nvcc); empty if the base has none, or if this version is that of the frameworks."""
        return self.cuda if self.build_apt else ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Python:
    """The interpreter of the image.

    ``version`` is X.Y. ``executable`` is the path of the interpreter. ``packages`` are the packages that apt installs for it.
    If the interpreter does not come from the distribution, ``files`` are its archives, in the order of installation.
    ``installer`` is the program that unpacks these archives if tar cannot. A Python from archives has its own folder, two
    levels above the executable.
    """

    version: str
    provided_by: PythonFrom
    executable: str
    packages: tuple[str, ...]
    files: tuple[RemoteFile, ...] = field(default=(), metadata={"left_out_if_default": True})
    installer: RemoteFile | None = field(default=None, metadata={"left_out_if_default": True})

    @property
    def is_fetched(self) -> bool:
        """Whether the build unpacks the interpreter into a folder of its own."""
        return self.provided_by in ("uv", "conda")


@dataclass(frozen=True, kw_only=True, slots=True)
class PrefixPlan:
    """The plan of one prefix: ``frameworks`` are the names of the frameworks that share its packages and its Python.

    ``exclude_newer`` is the date limit of the packages. It is empty if the environment's date limit applies.
    """

    name: str
    python: Python
    frameworks: tuple[str, ...]
    exclude_newer: str = field(default="", metadata={"left_out_if_default": True})


@dataclass(frozen=True, kw_only=True, slots=True)
class Environment:
    """The resolved decision: every chosen version. The lock stores exactly these values.

    ``name`` is canonical and contains every choice, but no code parses it. ``exclude_newer`` is the last ISO date on which a
    dependency may have been published; empty for no limit. ``require_cuda`` is the value of the variable NVIDIA_REQUIRE_CUDA;
    it is None for a CPU environment. ``prefixes`` is empty if all frameworks share one set of packages; ``python`` is the
    interpreter of the only or the first prefix.
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
        """The sets of packages, the main one first. If all frameworks share one set, its name is ``env``."""
        alone = PrefixPlan(name="env", python=self.python, frameworks=tuple(f.name for f in self.frameworks))
        return self.prefixes or (alone,)

    def cuda_wheels(self) -> tuple[CudaWheel, ...]:
        """The base's wheels of CUDA, if one of the frameworks looks for CUDA in the system."""
        return self.base.wheels if any(framework.cuda_libraries == "system" for framework in self.frameworks) else ()

    def part(self, plan: PrefixPlan) -> Environment:
        """Return this environment with only the frameworks and the Python of ``plan``, one of its plans."""
        ours = tuple(f for f in self.frameworks if f.name in plan.frameworks)
        until = plan.exclude_newer or self.exclude_newer
        return replace(self, python=plan.python, frameworks=ours, exclude_newer=until, prefixes=())

    def cuda_of(self, framework: Framework) -> str | None:
        """Return the CUDA version for which a framework of the environment is built. Return None for a CPU build.

        This is the framework's own CUDA version if the framework has one, else the environment's CUDA version.
        """
        return None if framework.cuda_libraries == "none" else framework.cuda or self.cuda
