"""An environment, and why it was chosen."""

from __future__ import annotations

from typing import NamedTuple

from envbuild.model.environment import ComputeCapability, Environment


class Reason(NamedTuple):
    """Why one choice was made, and the document (URL or purl) that supports it."""

    choice: str
    because: str
    source: str


class Upon(NamedTuple):
    """A build of a base framework. ``pair``: upstream has ``tested`` the add-on with it, or only ``allowed`` it."""

    name: str
    version: str
    variant: str
    pair: str


class Details(NamedTuple):
    """What the matrix says about one framework's build, in addition to what a lock stores.

    ``upon`` lists base builds, the nearest first. The last one has the Python, CUDA and GPU code of the add-on. ``cudnn`` and
    ``nccl`` are those that this build uses; None if it uses none or no source names them; ``compute_capability`` is its own.
    """

    upon: tuple[Upon, ...]
    cudnn: str | None
    nccl: str | None
    compute_capability: ComputeCapability | None


class Resolution(NamedTuple):
    """An environment, and why it was chosen.

    ``details`` has one entry per framework, in their order. ``overlaid`` are the rows from the user's overlays on which it
    depends.
    """

    request: str
    environment: Environment
    reasons: tuple[Reason, ...]
    warnings: tuple[str, ...]
    overlaid: tuple[str, ...]
    details: tuple[Details, ...]
