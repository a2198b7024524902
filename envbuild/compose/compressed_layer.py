"""Compress a layer that exists as a tar file. The compressed layer has the same bytes on every machine."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import BinaryIO

from envbuild.compose.members import COMPRESSOR, OnDisk
from envbuild.compose.model import Layer

RULES = f"packed 1, {COMPRESSOR}"  # everything that determines the bytes, except the tar file


def write(stream: BinaryIO, *, tar: Path, diff_id: str) -> Layer:
    """Write the file ``tar``, whose sha256 (hex) is ``diff_id``, to ``stream`` as a layer. Raises :class:`BuildError` if the
    size of ``tar`` changes while it is read."""
    blob = hashlib.sha256()
    content = OnDisk.of(tar)

    def pack(data: bytes | bytearray | memoryview) -> None:
        blob.update(data)
        stream.write(data)

    content.copy(pack, lambda _: None)
    return Layer(digest=blob.hexdigest(), diff_id=diff_id, size=stream.tell(), unpacked=content.size)
