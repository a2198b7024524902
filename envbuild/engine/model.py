"""The values that the engine client returns. They are plain dataclasses, without objects of the SDK."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import IO, Literal

Origin = Literal["DOCKER_HOST", "default socket", "private engine"]
Product = Literal["Docker", "Podman"]
# Who keeps the images: Docker itself, containerd (the default of new installations of Docker 29), or Podman.
ImageStore = Literal["docker", "containerd", "podman"]
Builder = Literal["buildx", "docker-buildkit", "classic"]


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineInfo:
    """Which engine answers, and what it can do.

    ``origin`` says why this engine was chosen. ``product`` is Docker or Podman; Podman supports only a part of Docker's API.
    ``free_bytes`` is the free space at ``data_root``, None if this machine cannot see that disk. ``builder`` is the kind of
    build that the docker program at ``cli`` can do on this engine; a trial build shows it. ``is_rootless`` is true if root
    inside a container is the user who runs the engine. ``has_cdi_gpus`` is true if the engine can give GPUs to a container by
    their CDI names.
    """

    endpoint: str
    origin: Origin
    product: Product
    version: str
    api_version: str
    builder: Builder
    builder_version: str
    cli: str
    storage_driver: str
    data_root: str
    free_bytes: int | None
    runtimes: tuple[str, ...]
    cgroup_driver: str
    cgroup_version: str
    operating_system: str
    architecture: str
    kernel: str
    cpus: int
    memory_bytes: int
    is_rootless: bool = False
    has_cdi_gpus: bool = False

    @property
    def name(self) -> str:
        """The product and version of the engine without details of this machine, for evidence and records."""
        return f"{self.product} {self.version} ({self.storage_driver}, {self.builder})"

    @property
    def gives_gpus(self) -> bool:
        """Whether the engine has NVIDIA's runtime, or can give GPUs to containers by their CDI names.

        If this is false, the engine may still have NVIDIA's hook, which no engine reports.
        """
        return "nvidia" in self.runtimes or self.has_cdi_gpus

    @property
    def by_cdi(self) -> bool:
        """Whether GPUs are requested by their CDI names, because the engine has no runtime of NVIDIA."""
        return self.has_cdi_gpus and "nvidia" not in self.runtimes

    def describe(self) -> str:
        """Describe the engine in one line, with its address."""
        return (
            f"{self.name} at {self.endpoint}, the {self.origin}"
            if self.origin != "DOCKER_HOST"
            else (f"{self.name} at {self.endpoint}, named by DOCKER_HOST")
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class BuiltImage:
    """The result of a build. ``steps`` is the number of all instructions. ``cached`` is the number of instructions whose result
    came from the cache."""

    id: str
    seconds: float
    steps: int
    cached: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageInfo:
    """An image in the engine. ``layers`` are the diff ids, lowest first."""

    id: str
    tags: tuple[str, ...]
    labels: dict[str, str]
    env: tuple[str, ...]
    entrypoint: tuple[str, ...]
    cmd: tuple[str, ...]
    user: str
    layers: tuple[str, ...]
    size: int
    created: str
    architecture: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Mount:
    """A folder or file of the engine's machine that is mounted in a container."""

    source: str
    target: str
    read_only: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class RunResult:
    """How a container ended. ``files`` maps the collected paths to their bytes; paths that did not exist are left out."""

    code: int
    output: str
    seconds: float
    oom_killed: bool
    files: dict[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerFile:
    """One entry (such as a file, folder or link) of one layer. ``open`` returns the bytes of a regular file. Call it before you
    read the next entry.

    ``target`` is the text of a symbolic link. For a hard link, it is the path of the linked file in the same layer.
    """

    layer: str
    path: str
    kind: Literal["file", "folder", "link", "hardlink", "other"]
    target: str
    size: int
    open: Callable[[], IO[bytes]]
