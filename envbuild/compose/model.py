"""Values that the parts of the composer pass to each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    """One layer. ``digest`` is the sha256 (hex) of the blob, ``diff_id`` that of the unpacked tar; each has its size in bytes.

    ``files`` is the sha256 (hex) of the list of its files, if it has one: see :mod:`envbuild.compose.estargz`.
    """

    digest: str
    diff_id: str
    size: int
    unpacked: int
    media_type: str = "application/vnd.oci.image.layer.v1.tar+gzip"
    files: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class ComposedImage:
    """``config`` is the OCI image configuration (JSON bytes); ``layers`` go from the lowest to the highest."""

    config: bytes
    layers: tuple[Layer, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where a wheel is installed, and by whose rules: ``prefix`` is the virtual environment's absolute path in the image."""

    prefix: str  # /opt/env
    python: str  # 3.11
    installer: Literal["uv", "pip"]
