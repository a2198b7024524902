"""One layer: a gzip-compressed tar of files and folders, written in one pass, whose files can be fetched one by one."""

from __future__ import annotations

import hashlib
import tarfile
from typing import BinaryIO

from envbuild.compose import estargz
from envbuild.compose.members import PIECE, Buffer, Content, InMemory, compressed
from envbuild.compose.model import Layer

EPOCH = 1577836800  # 2020-01-01: images/partials/step.sh gives the same time to everything that it writes
_BLOCK = 512


class LayerWriter:
    """Writes a layer to ``stream``, and knows its digest and diff_id when it is closed.

    Each content begins a gzip member of its own; the headers between two contents share one. A list of the files follows: see
    :mod:`envbuild.compose.estargz`.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._blob = hashlib.sha256()
        self._tar = hashlib.sha256()
        self._size = 0
        self._unpacked = 0
        self._headers = bytearray()
        self._list = estargz.FileList(EPOCH)

    def add_folder(self, path: str) -> None:
        """Add the folder at the absolute ``path``, as root's and with mode 0755."""
        self._headers += _header(path, tarfile.DIRTYPE, 0o755, 0)
        self._list.add_folder(path.removeprefix("/"), 0o755)
        if len(self._headers) >= PIECE:
            self._write_headers()

    def add_file(self, path: str, content: Content, *, is_executable: bool = False) -> None:
        """Add a file at the absolute ``path``, as root's and with mode 0644 or 0755."""
        mode = 0o755 if is_executable else 0o644
        self._headers += _header(path, tarfile.REGTYPE, mode, content.size)
        self._write_headers()
        offset, sha256 = self._size, content.sha256
        if sha256:
            content.copy(self._write, self._add_unpacked)
        else:
            sha256 = self._copy_and_hash(content)
        self._headers += bytes(-content.size % _BLOCK)
        self._list.add_file(path.removeprefix("/"), mode, content.size, offset=offset, sha256=sha256)

    def _copy_and_hash(self, content: Content) -> str:
        digest = hashlib.sha256()

        def note(data: Buffer) -> None:
            digest.update(data)
            self._add_unpacked(data)

        content.copy(self._write, note)
        return digest.hexdigest()

    def close(self) -> Layer:
        """Write the end of the tar, and the list. Finish the layer and return its digest and diff id. The stream stays open."""
        self._headers += bytes(2 * _BLOCK)
        self.add_file(f"/{estargz.LANDMARK}", InMemory(estargz.LANDMARK_CONTENT))
        self._write_headers()
        offset, files = self._size, self._list.content()
        self._headers += _header(estargz.LIST, tarfile.REGTYPE, 0o644, len(files)) + files
        self._headers += bytes(-len(files) % _BLOCK + 2 * _BLOCK)
        self._write_headers()  # one member, which readers of the list expect
        self._write(estargz.footer(offset))
        return Layer(
            digest=self._blob.hexdigest(),
            diff_id=self._tar.hexdigest(),
            size=self._size,
            unpacked=self._unpacked,
            files=hashlib.sha256(files).hexdigest(),
        )

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


def _header(path: str, kind: bytes, mode: int, size: int) -> bytes:
    member = tarfile.TarInfo(path.removeprefix("/"))
    member.type, member.mode, member.size, member.mtime = kind, mode, size, EPOCH
    return member.tobuf(tarfile.PAX_FORMAT, "utf-8", "strict")
