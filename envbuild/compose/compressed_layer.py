"""Compress a layer that exists as a tar file. The compressed layer has the same bytes on every machine."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import BinaryIO

from envbuild.compose.members import COMPRESSOR, OnDisk
from envbuild.compose.model import Layer

RULES = f"packed 1, {COMPRESSOR}"  # everything that determines the bytes, except the tar file


def write(stream: BinaryIO, *, tar: Path) -> Layer:
    """Write the file ``tar`` to ``stream`` as a layer. Raises :class:`BuildError` if ``tar`` changes while it is read."""
    blob, unpacked = hashlib.sha256(), hashlib.sha256()
    content = OnDisk.of(tar)

    def pack(data: bytes | bytearray | memoryview) -> None:
        blob.update(data)
        stream.write(data)

    content.copy(pack, unpacked.update)
    return Layer(digest=blob.hexdigest(), diff_id=unpacked.hexdigest(), size=stream.tell(), unpacked=content.size)
