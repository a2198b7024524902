"""One layer: a tar of files and folders, compressed with gzip and written in one pass. Each of its files can be fetched
alone."""

from __future__ import annotations

import hashlib
import tarfile
from typing import BinaryIO

from envbuild.compose import estargz
from envbuild.compose.members import PIECE, Buffer, Content, InMemory, compressed
from envbuild.compose.model import Layer

EPOCH = 1577836800  # 2020-01-01; images/partials/step.sh gives this time to all files that it writes
_BLOCK = 512
_ROOT = b"0000000\0" * 2  # user id and group id 0, as in a tar header
_LONGEST_NAME = 100  # bytes; a longer name does not fit into a tar header
_LARGEST = 8**11  # bytes; this size and larger ones do not fit into a tar header


class OtherLayerError(Exception):
    """The written layer differs from the recorded layer."""


class LayerWriter:
    """Writes a layer to ``stream``. :meth:`close` returns the digest and the diff id.

    The content of each file begins a new gzip member. All tar headers between two contents share one gzip member. A list of the
    files follows the tar: see :mod:`envbuild.compose.estargz`.

    ``recorded`` describes the layer that is expected. Then compressed contents are neither unpacked nor checked: if the written
    bytes have the recorded digest, they are the bytes that were checked when the layer was recorded. If the digest, a size or
    the list of files differs, :meth:`close` raises :class:`OtherLayerError`. Only the recorded diff id is not compared.
    """

    def __init__(self, stream: BinaryIO, recorded: Layer | None = None) -> None:
        self._stream = stream
        self._recorded = recorded
        self._blob = hashlib.sha256()
        self._tar = hashlib.sha256()
        self._size = 0
        self._unpacked = 0
        self._headers = bytearray()
        self._unwritten: list[Buffer] = []
        self._unwritten_bytes = 0
        self._list = estargz.FileList(EPOCH)

    def add_folder(self, path: str) -> None:
        """Add the folder at the absolute ``path``, owned by root, with mode 0755."""
        self._headers += header(path, tarfile.DIRTYPE, 0o755, 0)
        self._list.add_folder(path.removeprefix("/"), 0o755)
        if len(self._headers) >= PIECE:
            self._write_headers()

    def add_file(self, path: str, content: Content, *, is_executable: bool = False) -> None:
        """Add a file at the absolute ``path``, owned by root, with mode 0755 if it is executable, otherwise 0644."""
        mode = 0o755 if is_executable else 0o644
        self._headers += header(path, tarfile.REGTYPE, mode, content.size)
        self._write_headers()
        offset, sha256 = self._size, content.sha256
        if sha256 and self._recorded:
            content.copy(self._write, None)
            self._unpacked += content.size
        elif sha256:
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
        """Write the end of the tar, and the list of files. Return the digest and the diff id of the layer. The stream stays
        open. May raise :class:`OtherLayerError`."""
        self._headers += bytes(2 * _BLOCK)
        self.add_file(f"/{estargz.LANDMARK}", InMemory(estargz.LANDMARK_CONTENT))
        self._write_headers()
        offset, files = self._size, self._list.content()
        self._headers += header(estargz.LIST, tarfile.REGTYPE, 0o644, len(files)) + files
        self._headers += bytes(-len(files) % _BLOCK + 2 * _BLOCK)
        self._write_headers()  # readers of the list expect the list alone in one gzip member
        self._write(estargz.footer(offset))
        self._flush()
        made = Layer(
            digest=self._blob.hexdigest(),
            diff_id=self._recorded.diff_id if self._recorded else self._tar.hexdigest(),
            size=self._size,
            unpacked=self._unpacked,
            files=hashlib.sha256(files).hexdigest(),
        )
        if self._recorded not in (None, made):
            raise OtherLayerError
        return made

    def _write_headers(self) -> None:
        if self._headers:
            self._write(compressed(self._headers))
            self._add_unpacked(self._headers)
            self._headers = bytearray()

    def _write(self, data: Buffer) -> None:
        """Collect small pieces, and write them together, with few calls into C. Each call into C lets other threads run; then
        this thread must wait for its turn."""
        size = memoryview(data).nbytes
        self._size += size
        self._unwritten.append(data)
        self._unwritten_bytes += size
        if self._unwritten_bytes >= PIECE:
            self._flush()

    def _flush(self) -> None:
        data = b"".join(self._unwritten)
        self._unwritten, self._unwritten_bytes = [], 0
        self._blob.update(data)
        self._stream.write(data)

    def _add_unpacked(self, data: Buffer) -> None:
        self._unpacked += memoryview(data).nbytes
        if self._recorded is None:
            self._tar.update(data)


def header(path: str, kind: bytes, mode: int, size: int) -> bytes:
    """The tar header of a file or folder at the absolute ``path``. The owner is root, and the time is ``EPOCH``."""
    name = path.removeprefix("/") + ("/" if kind == tarfile.DIRTYPE else "")
    if name.isascii() and size < _LARGEST:
        return _ascii_header(name.encode(), kind, mode, size)
    member = tarfile.TarInfo(name)
    member.type, member.mode, member.size, member.mtime = kind, mode, size, EPOCH
    return member.tobuf(tarfile.PAX_FORMAT, "utf-8", "strict")


def _ascii_header(name: bytes, kind: bytes, mode: int, size: int) -> bytes:
    """Return the same header as the module tarfile, but in a fifth of the time. The time matters, because wheels have tens of
    thousands of files."""
    above = b""
    if len(name) > _LONGEST_NAME:
        record = b" path=%s\n" % name
        length = len(record) + len(str(len(record)))
        record = b"%d%s" % (length + (len(str(length)) > len(str(len(record)))), record)
        above = _ustar(b"././@PaxHeader", tarfile.XHDTYPE, 0, len(record), 0) + record + bytes(-len(record) % _BLOCK)
    return above + _ustar(name[:_LONGEST_NAME], kind, mode, size, EPOCH)


def _ustar(name: bytes, kind: bytes, mode: int, size: int, modified: int) -> bytes:
    head = name.ljust(_LONGEST_NAME, b"\0") + b"%07o\0%s%011o\0%011o\0" % (mode, _ROOT, size, modified)
    rest = kind + bytes(100) + b"ustar\x0000"
    checksum = sum(head) + 8 * ord(" ") + sum(rest)
    return (head + b"%06o\0 " % checksum + rest).ljust(_BLOCK, b"\0")
