"""The values that the engine returns: plain dataclasses, no SDK objects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import IO, Literal

Origin = Literal["DOCKER_HOST", "default socket", "private engine"]
Product = Literal["Docker", "Podman"]
Builder = Literal["buildx", "docker-buildkit", "classic"]


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineInfo:
    """Which engine answers and what it can do.

    ``origin`` says why this one was chosen. ``product`` is what serves there: Podman offers Docker's interface, and not all of
    it. ``free_bytes`` is the space left at ``data_root``, None where that disk is not ours to see. ``builder`` is what the
    docker program at ``cli`` proved able to do against this very engine.
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

    @property
    def name(self) -> str:
        """The engine in words that hold on any machine; for evidence and records."""
        return f"{self.product} {self.version} ({self.storage_driver}, {self.builder})"

    def describe(self) -> str:
        """The engine in one line, its place included."""
        return (
            f"{self.name} at {self.endpoint}, the {self.origin}"
            if self.origin != "DOCKER_HOST"
            else (f"{self.name} at {self.endpoint}, named by DOCKER_HOST")
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class BuiltImage:
    """What a build made. ``cached`` and ``steps`` count the instructions that were replayed and that there were."""

    id: str
    seconds: float
    steps: int
    cached: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageInfo:
    """An image that the engine has. ``layers`` are the diff ids, lowest first."""

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
    """A folder or file of the engine's machine seen inside a container."""

    source: str
    target: str
    read_only: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class RunResult:
    """How a container ended. ``files`` holds what was collected from it: path → bytes, absent paths left out."""

    code: int
    output: str
    seconds: float
    oom_killed: bool
    files: dict[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerFile:
    """One entry of one layer. ``open`` reads a regular file's bytes, valid only until the next entry is asked for.

    ``target`` is where a link leads, as it is written; of a hard link the path of the same layer that it is another name of.
    """

    layer: str
    path: str
    kind: Literal["file", "folder", "link", "hardlink", "other"]
    target: str
    size: int
    open: Callable[[], IO[bytes]]
