"""The gzip members of a layer. They have the same bytes on every machine and processor.

A gzip member consists of a deflate stream, and of the CRC and the size of the unpacked content. A wheel has all three for each
compressed file, so the deflate stream is copied unchanged. All other data is compressed by libdeflate. The output of libdeflate
depends only on its version. zlib is not used, because its output differs between builds of zlib.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import deflate

from envbuild.errors import BuildError

PIECE = 2**20  # the most bytes of a file that are in memory at the same time
LEVEL = 1  # twice as fast as level 6, with output larger by a tenth; most bytes of a layer are copied from wheels unchanged
COMPRESSOR = f"deflate {deflate.__version__}, level {LEVEL}"  # a part of each layer's key, because it determines the bytes
HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"  # gzip header: deflate, without name, time or system

Buffer = bytes | bytearray | memoryview
Sink = Callable[[Buffer], object]


class Content(Protocol):
    """The content of a file in a layer."""

    @property
    def size(self) -> int:
        """The number of unpacked bytes."""
        ...

    @property
    def sha256(self) -> str:
        """The sha256 (hex) that :meth:`copy` checks; empty if no hash is known."""
        ...

    def copy(self, packed: Sink, unpacked: Sink | None) -> None:
        """Write the content in pieces: as gzip members to ``packed``, and uncompressed to ``unpacked``. Raises an error if the
        content is damaged.

        If ``unpacked`` is None, content that is already compressed is neither unpacked nor checked.
        """
        ...


def trailer(crc: int, size: int) -> bytes:
    """The end of a gzip member: the CRC-32 of its content, and the size of its content."""
    return struct.pack("<II", crc, size & 0xFFFFFFFF)


def compressed(data: Buffer, level: int = LEVEL) -> bytearray:
    """Compress ``data`` to one gzip member. ``data`` must be small enough for memory."""
    return deflate.gzip_compress(data, level)


def write_piece(piece: Buffer, packed: Sink, unpacked: Sink | None) -> None:
    """Write a piece of uncompressed content: as one gzip member to ``packed``, and unchanged to ``unpacked``."""
    packed(compressed(piece))
    if unpacked is not None:
        unpacked(piece)


@dataclass(frozen=True, slots=True)
class InMemory:
    """Content that envbuild itself made, such as a script or a list of files."""

    data: bytes

    @property
    def size(self) -> int:
        """The number of unpacked bytes."""
        return len(self.data)

    @property
    def sha256(self) -> str:
        """Empty, because no hash of this content is known."""
        return ""

    def copy(self, packed: Sink, unpacked: Sink | None) -> None:
        """Write the content; each piece becomes one gzip member."""
        for begin in range(0, len(self.data), PIECE):
            write_piece(memoryview(self.data)[begin : begin + PIECE], packed, unpacked)


@dataclass(frozen=True, slots=True)
class OnDisk:
    """Content that is a whole file. The file must not change until it is copied."""

    path: Path
    size: int
    sha256: str = ""

    @classmethod
    def of(cls, path: Path) -> OnDisk:
        """The content of the file at ``path``."""
        return cls(path, path.stat().st_size)

    def copy(self, packed: Sink, unpacked: Sink | None) -> None:
        """Write the content; each piece becomes one gzip member. Raises :class:`BuildError` if the file's size has changed."""
        left = self.size
        with self.path.open("rb") as stream:
            while piece := stream.read(PIECE):
                left -= len(piece)
                write_piece(piece, packed, unpacked)
            if left or os.fstat(stream.fileno()).st_size != self.size:
                raise _changed(self.path)


@dataclass(frozen=True, slots=True)
class PartOfFile:
    """Content that is a part of a file. The file must not change until the part is copied."""

    path: Path
    begin: int
    size: int
    sha256: str = ""

    def copy(self, packed: Sink, unpacked: Sink | None) -> None:
        """Write the content; each piece becomes one gzip member. Raises :class:`BuildError` if the file is too short."""
        for piece in self.pieces():
            write_piece(piece, packed, unpacked)

    def pieces(self) -> Iterator[bytes]:
        """Yield the content. Raises :class:`BuildError` if the file is too short."""
        at, end = self.begin, self.begin + self.size
        descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)  # cheaper than a file object for thousands of small parts
        try:
            while at < end:
                piece = os.pread(descriptor, min(end - at, PIECE), at)
                if not piece:
                    raise _changed(self.path)
                at += len(piece)
                yield piece
        finally:
            os.close(descriptor)


def _changed(path: Path) -> BuildError:
    return BuildError(
        f"{path} changed while it was read.",
        code="file-changed",
        hint="Another program is writing to it. Run the command again when that program has ended.",
    )
