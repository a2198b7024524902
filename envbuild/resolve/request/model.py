"""A parsed request and its parts."""

from __future__ import annotations

from typing import Literal, NamedTuple

from envbuild.matrix.gpu_rows import Architecture, Gpu
from envbuild.matrix.types import FrameworkTable, Release
from envbuild.matrix.versions import version_matches

Kind = Literal[
    "framework", "version", "cuda", "python", "python-from", "system", "base", "cudnn", "nccl", "driver", "gpu"
]  # fmt: skip


class Part(NamedTuple):
    """A part of a request, such as a version or a driver. It belongs to one framework, or to the whole request if ``framework``
    is empty.

    The kind ``framework`` is the framework's presence in the request. If the request names only one framework, ``framework`` is
    empty in all of its parts.
    """

    kind: Kind
    framework: str = ""

    @property
    def owner(self) -> Part | None:
        """The part of kind ``framework`` for the same framework. It is None for a part of the whole request, and for a part
        that is itself of kind ``framework``."""
        return Part("framework", self.framework) if self.framework and self.kind != "framework" else None


CUDA, PYTHON, PYTHON_FROM, SYSTEM = Part("cuda"), Part("python"), Part("python-from"), Part("system")
BASE, CUDNN, NCCL, DRIVER, GPU = Part("base"), Part("cudnn"), Part("nccl"), Part("driver"), Part("gpu")


class GpuWanted(NamedTuple):
    """A GPU of the request. ``board`` is None if the request names only a compute capability; ``architecture`` is None if no
    architecture of the matrix has that capability."""

    text: str
    capability: str
    board: Gpu | None
    architecture: Architecture | None


class Wanted(NamedTuple):
    """A requested framework. ``version`` and ``cuda`` are clauses as in :class:`Request`. ``cuda`` is empty if the CUDA of the
    whole request applies.

    ``framework`` is the table that is meant. An add-on has a table for each base framework, and its name means the one for the
    base framework that is also requested. ``said`` is the name in the request if it is that of another table, else empty.
    """

    framework: FrameworkTable
    version: str
    cuda: str
    said: str = ""

    def accepts(self, release: Release) -> bool:
        """Whether the request accepts the version of ``release``."""
        return version_matches(release.version, self.version)


class Request(NamedTuple):
    """The parts that a request states. A part that is empty may have any value. ``wanted`` are the frameworks, in the order of
    the request.

    ``version``, ``cuda``, ``cudnn``, ``nccl`` and ``python`` are clauses such as ``==9`` (a prefix) or ``>=9,<11``;
    ``===1.12.0`` is exact. ``device`` is ``gpu`` even if the request names only a driver or a GPU.
    ``python_from`` is the required supply of Python. ``systems`` are the names of the acceptable operating systems. ``base`` is
    a provider; if it is ``local``, ``image`` is the user's image. ``warnings`` say what cannot be checked.
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
        """The compute capabilities of the GPUs on which the environment has to run; empty for a CPU environment."""
        return () if self.device == "cpu" else tuple(dict.fromkeys(gpu.capability for gpu in self.gpus if gpu.capability))

    def part(self, kind: Kind, wanted: Wanted) -> Part:
        """Return the part of the given kind that belongs to the framework of ``wanted``."""
        return Part(kind, wanted.framework.name if len(self.wanted) > 1 else "")

    def wanted_of(self, framework: FrameworkTable) -> Wanted:
        """Return the entry of ``wanted`` for a framework."""
        return next(wanted for wanted in self.wanted if wanted.framework.name == framework.name)
