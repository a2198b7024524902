"""A parsed request and its parts."""

from __future__ import annotations

from typing import Literal, NamedTuple

from envbuild.matrix.platform import Architecture, Gpu
from envbuild.matrix.types import FrameworkTable, Release
from envbuild.matrix.versions import version_matches

Kind = Literal[
    "framework", "version", "cuda", "python", "python-from", "system", "base", "cudnn", "nccl", "driver", "gpu"
]  # fmt: skip


class Part(NamedTuple):
    """A part of a request that could be changed: of one framework, or of all if ``framework`` is empty.

    The kind ``framework`` is the framework's presence in the request. The only framework of a request is not named.
    """

    kind: Kind
    framework: str = ""

    @property
    def owner(self) -> Part | None:
        """The part ``framework`` of the same framework; None for shared parts, and for that part itself."""
        return Part("framework", self.framework) if self.framework and self.kind != "framework" else None


CUDA, PYTHON, PYTHON_FROM, SYSTEM = Part("cuda"), Part("python"), Part("python-from"), Part("system")
BASE, CUDNN, NCCL, DRIVER, GPU = Part("base"), Part("cudnn"), Part("nccl"), Part("driver"), Part("gpu")


class GpuWanted(NamedTuple):
    """A GPU of the request. For a board that the matrix does not know, ``capability`` is empty and the rest is None."""

    text: str
    capability: str
    board: Gpu | None
    architecture: Architecture | None


class Wanted(NamedTuple):
    """A framework that was asked for. Clauses as in :class:`Request`; ``cuda`` is empty if the CUDA of the whole request
    applies.

    ``said`` is the name that the request uses, if it is another framework's name.
    """

    framework: FrameworkTable
    version: str
    cuda: str
    said: str = ""

    def accepts(self, release: Release) -> bool:
        """Whether the version is one that was asked for."""
        return version_matches(release.version, self.version)


class Request(NamedTuple):
    """The parts that were asked for; an empty part is free. ``wanted`` are the frameworks, in the order of the request.

    ``version``, ``cuda``, ``cudnn``, ``nccl`` and ``python`` are clauses such as ``==9`` (a prefix) or ``>=9,<11``;
    ``===1.12.0`` is exact. ``device`` is ``gpu`` also if only a driver or a GPU was named.
    ``python_from`` is the required supply of Python. ``systems`` are the acceptable names. ``base`` is a provider, or ``local``
    with ``image``. ``warnings`` say what cannot be checked.
    """

    text: str
    wanted: tuple[Wanted, ...]
    device: Literal["", "cpu", "gpu"]
    cuda: str
    cudnn: str
    nccl: str
    python: str
    python_from: str
    systems: tuple[str, ...]
    system_text: str
    base: str
    image: str
    driver: str
    gpus: tuple[GpuWanted, ...]
    warnings: tuple[str, ...]

    @property
    def capabilities(self) -> tuple[str, ...]:
        """The compute capabilities of the GPUs that the environment has to run on; none of a CPU environment."""
        return () if self.device == "cpu" else tuple(dict.fromkeys(gpu.capability for gpu in self.gpus if gpu.capability))

    def part(self, kind: Kind, wanted: Wanted) -> Part:
        """A part of one of the frameworks."""
        return Part(kind, wanted.framework.name if len(self.wanted) > 1 else "")

    def wanted_of(self, framework: FrameworkTable) -> Wanted:
        """What was asked of a framework."""
        return next(wanted for wanted in self.wanted if wanted.framework.name == framework.name)
