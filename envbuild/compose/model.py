"""Values that the modules of this package pass to each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    """One layer. ``digest`` is the sha256 (hex) of the blob, and ``size`` its number of bytes. ``diff_id`` and ``unpacked`` are
    the sha256 and the number of bytes of the unpacked tar.

    ``files`` is the sha256 (hex) of the layer's list of files, if the layer has one: see :mod:`envbuild.compose.estargz`.
    """

    digest: str
    diff_id: str
    size: int
    unpacked: int
    media_type: str = "application/vnd.oci.image.layer.v1.tar+gzip"
    files: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class ComposedImage:
    """An image. ``config`` is the OCI image configuration (JSON bytes). ``layers`` are in order, the lowest first."""

    config: bytes
    layers: tuple[Layer, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class InstallPlace:
    """Where a wheel is installed, and whose rules apply: uv's or pip's. ``prefix`` is the absolute path of the virtual
    environment."""

    prefix: str  # such as /opt/env
    python: str  # such as 3.11
    installer: Literal["uv", "pip"]
