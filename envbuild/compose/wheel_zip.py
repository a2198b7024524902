"""A wheel's archive. The content of its members is checked whenever it is read."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from isal import igzip_lib, isal_zlib

from envbuild.compose.members import HEADER, PIECE, Sink, trailer, write_piece
from envbuild.compose.zip_directory import STORED, Member, ZipError, read_members
from envbuild.errors import BuildError
from envbuild.files import PLENTY

_Damaged: type[Exception] = igzip_lib.IsalError  # type: ignore[assignment]  # the stubs declare it as an instance
_RAW_PIECE = 2**18  # bytes of packed data; unpacking makes about three times as many bytes


def bad_wheel(file: Path, problem: str) -> BuildError:
    """The error for a wheel that cannot be installed. ``problem`` gives the reason, as the end of a sentence."""
    return BuildError(
        f"The wheel {file.name} cannot be installed: {problem}.",
        code="bad-wheel",
        hint="Compare the sha256 of the file with the sha256 in the lock. If they are equal, the publisher's file is "
        "defective: lock another version of the package. If not, delete the file and download it again.",
        details=[f"file: {file}"],
    )


@dataclass(frozen=True, slots=True)
class WheelMember:
    """One file of a wheel, which becomes the content of a file in a layer."""

    archive: WheelZip
    member: Member

    @property
    def size(self) -> int:
        """The number of unpacked bytes."""
        return self.member.size

    @property
    def sha256(self) -> str:
        """Empty, because the archive has only a CRC."""
        return ""

    def copy(self, packed: Sink, unpacked: Sink | None) -> None:
        """Write the content. A compressed file becomes one gzip member. A file without compression is written in pieces, and
        each piece becomes one gzip member."""
        if self.member.method == STORED:
            for piece in self.pieces():
                write_piece(piece, packed, unpacked)
            return
        if unpacked is None:
            self._copy_packed(packed)
            return
        if self.member.packed <= _RAW_PIECE and self.member.size <= PIECE:
            raw, content = self._whole()
            packed(b"".join((HEADER, raw, trailer(self.member.crc, self.member.size))))
            unpacked(content)
            return
        packed(HEADER)
        for piece in self.pieces(packed):
            unpacked(piece)
        packed(trailer(self.member.crc, self.member.size))

    def _copy_packed(self, packed: Sink) -> None:
        end = trailer(self.member.crc, self.member.size)
        try:
            if self.member.packed <= PIECE:
                packed(b"".join((HEADER, self.archive.read_at(self.member.begin, self.member.packed), end)))
                return
            packed(HEADER)
            for raw in self.archive.read_raw(self.member, PIECE):
                packed(raw)
            packed(end)
        except ZipError as error:
            raise bad_wheel(self.archive.file, str(error)) from None

    def pieces(self, raw: Sink = lambda _: None) -> Iterator[bytes]:
        """Yield the content in pieces. ``raw`` gets the bytes as the archive has them. Raises an error if the size or the CRC
        is wrong."""
        try:
            yield from _check(self.member, self._unpack(raw))
        except ZipError as error:
            raise bad_wheel(self.archive.file, str(error)) from None

    def read(self, limit: int = PLENTY) -> bytes:
        """The whole content, which may have at most ``limit`` bytes."""
        if self.size > limit:
            raise bad_wheel(self.archive.file, f"{self.member.name!r} has {self.size} bytes, more than {limit}")
        return b"".join(self.pieces())

    def _whole(self) -> tuple[bytes, bytes]:
        """Return the packed and the unpacked content of a small compressed member. This method makes few calls into C, because
        other threads may run during each call."""
        member, inflater = self.member, isal_zlib.decompressobj(-zlib.MAX_WBITS)
        try:
            raw = self.archive.read_at(member.begin, member.packed)
            try:
                content = inflater.decompress(raw, member.size + 1)
            except _Damaged as error:
                raise _damaged(member, error) from None
            if len(content) > member.size:
                raise _too_long(member)
            _require_end(member, inflater)
            _require_equal(member, len(content), isal_zlib.crc32(content))
        except ZipError as error:
            raise bad_wheel(self.archive.file, str(error)) from None
        return raw, content

    def _unpack(self, raw: Sink) -> Iterator[bytes]:
        if self.member.method == STORED:
            for piece in self.archive.read_raw(self.member, PIECE):
                raw(piece)
                yield piece
            return
        inflater = isal_zlib.decompressobj(-zlib.MAX_WBITS)
        for packed in self.archive.read_raw(self.member, _RAW_PIECE):
            raw(packed)
            if inflater.eof:
                raise ZipError(f"{self.member.name!r} has bytes behind its compressed content")
            try:
                yield (piece := inflater.decompress(packed, PIECE))
                while len(piece) == PIECE:  # a full piece: the input or the decompressor may hold more bytes
                    yield (piece := inflater.decompress(inflater.unconsumed_tail, PIECE))
            except _Damaged as error:
                raise _damaged(self.member, error) from None
        _require_end(self.member, inflater)


def _damaged(member: Member, error: Exception) -> ZipError:
    return ZipError(f"the compressed content of {member.name!r} is damaged ({error})")


def _too_long(member: Member) -> ZipError:
    return ZipError(f"{member.name!r} has more than the {member.size} bytes that the archive states")


def _require_end(member: Member, inflater: Any) -> None:
    if not inflater.eof:
        raise ZipError(f"the compressed content of {member.name!r} is truncated")
    if inflater.unused_data:
        raise ZipError(f"{member.name!r} has bytes behind its compressed content")


def _check(member: Member, pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the pieces. Raises :class:`ZipError` as soon as there are more bytes than the archive's directory states. At the
    end, raises the same error if the size or the CRC differs."""
    crc, size = 0, 0
    for piece in pieces:
        size += len(piece)
        crc = isal_zlib.crc32(piece, crc)
        if size > member.size:
            raise _too_long(member)
        yield piece
    _require_equal(member, size, crc)


def _require_equal(member: Member, size: int, crc: int) -> None:
    if size != member.size:
        raise ZipError(f"{member.name!r} has {size} bytes, but the archive says {member.size}")
    if crc != member.crc:
        raise ZipError(f"the contents of {member.name!r} do not have the CRC in the archive")


class WheelZip:
    """An open wheel. Its ``members`` are in the order of their bytes in the file. Several threads may read from it at the same
    time.

    Raises :class:`BuildError` (``bad-wheel``) if the wheel is invalid.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self._descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.members = tuple(read_members(self.read_at, os.fstat(self._descriptor).st_size))
        except ZipError as error:
            self.close()
            raise bad_wheel(file, str(error)) from None
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> WheelZip:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. After that, its members cannot be read."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def read_raw(self, member: Member, piece: int) -> Iterator[bytes]:
        """Yield the bytes of ``member`` as the archive has them."""
        at, end = member.begin, member.begin + member.packed
        while at < end:
            data = self.read_at(at, min(piece, end - at))
            at += len(data)
            yield data

    def read_at(self, begin: int, size: int) -> bytes:
        """Return exactly ``size`` bytes of the archive, from the offset ``begin`` on. Raises :class:`ZipError` if the archive
        is too short."""
        data = os.pread(self._descriptor, size, begin)
        while len(data) < size:
            more = os.pread(self._descriptor, size - len(data), begin + len(data))
            if not more:
                raise ZipError("it is truncated")
            data += more
        return data
