"""An environment, and why it was chosen."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from envbuild.model.environment import ComputeCapability, Environment


class Reason(NamedTuple):
    """Why one choice was made, and the document (URL or purl) that supports it."""

    choice: str
    because: str
    source: str


class Upon(NamedTuple):
    """The build of a base framework on which an add-on is based. ``pair`` is ``tested`` if upstream tested the add-on with this
    build, else ``allowed``."""

    name: str
    version: str
    variant: str
    pair: str


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuCode(ComputeCapability):
    """The GPU code of a build, as the matrix knows it. ``only_ptx`` are the GPUs on which the base framework runs native code,
    but the add-on only PTX. Locks do not store this field."""

    only_ptx: tuple[str, ...] = field(default=(), metadata={"left_out_if_default": True})


class Details(NamedTuple):
    """The facts of the matrix about one framework's build that a lock does not store.

    ``upon`` lists the builds of the base frameworks, the nearest first. An add-on has the Python, CUDA and GPU code of the last
    build in this list. ``cudnn`` and ``nccl`` are the versions that this build uses. A version is None if the build does not
    use the library, or if no source states the version. ``compute_capability`` is the GPU code of this build alone.
    """

    upon: tuple[Upon, ...]
    cudnn: str | None
    nccl: str | None
    compute_capability: GpuCode | None


class Resolution(NamedTuple):
    """An environment, and why it was chosen.

    ``details`` has one entry per framework, in the order of the environment's frameworks. ``overlaid`` are the rows of the
    user's overlays on which the environment depends.
    """

    request: str
    environment: Environment
    reasons: tuple[Reason, ...]
    warnings: tuple[str, ...]
    overlaid: tuple[str, ...]
    details: tuple[Details, ...]
