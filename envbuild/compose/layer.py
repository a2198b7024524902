"""One layer: a gzip-compressed tar of files and folders, written in one pass."""

from __future__ import annotations

import hashlib
import tarfile
from typing import BinaryIO

from envbuild.compose.members import PIECE, Buffer, Content, compressed
from envbuild.compose.model import Layer

EPOCH = 1577836800  # 2020-01-01: images/partials/step.sh gives the same time to everything that it writes
_BLOCK = 512


class LayerWriter:
    """Writes a layer to ``stream``, and knows its digest and diff_id when it is closed.

    Each content begins a gzip member of its own; the headers between two contents share one.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._blob = hashlib.sha256()
        self._tar = hashlib.sha256()
        self._size = 0
        self._unpacked = 0
        self._headers = bytearray()

    def add_folder(self, path: str) -> None:
        """Add the folder at the absolute ``path``, as root's and with mode 0755."""
        self._add_header(path, tarfile.DIRTYPE, 0o755, 0)

    def add_file(self, path: str, content: Content, *, is_executable: bool = False) -> None:
        """Add a file at the absolute ``path``, as root's and with mode 0644 or 0755."""
        self._add_header(path, tarfile.REGTYPE, 0o755 if is_executable else 0o644, content.size)
        self._write_headers()
        content.copy(self._write, self._add_unpacked)
        self._headers += bytes(-content.size % _BLOCK)

    def close(self) -> Layer:
        """Write the end of the tar. Say what the layer is known by; the stream stays open."""
        self._headers += bytes(2 * _BLOCK)
        self._write_headers()
        return Layer(digest=self._blob.hexdigest(), diff_id=self._tar.hexdigest(), size=self._size, unpacked=self._unpacked)

    def _add_header(self, path: str, kind: bytes, mode: int, size: int) -> None:
        member = tarfile.TarInfo(path.removeprefix("/"))
        member.type, member.mode, member.size, member.mtime = kind, mode, size, EPOCH
        self._headers += member.tobuf(tarfile.PAX_FORMAT, "utf-8", "strict")
        if len(self._headers) >= PIECE:
            self._write_headers()

    def _write_headers(self) -> None:
        if self._headers:
            self._write(compressed(self._headers))
            self._add_unpacked(self._headers)
            self._headers = bytearray()

    def _write(self, data: Buffer) -> None:
        self._blob.update(data)
        self._stream.write(data)
        self._size += memoryview(data).nbytes

    def _add_unpacked(self, data: Buffer) -> None:
        self._tar.update(data)
        self._unpacked += memoryview(data).nbytes
