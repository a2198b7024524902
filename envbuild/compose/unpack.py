"""Unpacks layers in constant memory: plain tar files, gzip files of any number of members, and zstd frames."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import IO, cast

from isal import igzip_lib, isal_zlib

_INPUT = 1 << 16  # bytes; small, because the rest of the input is copied at the end of each gzip member
_OUTPUT = 1 << 20
_Damaged: type[Exception] = igzip_lib.IsalError  # type: ignore[assignment]  # the stubs declare it as an instance


class DamagedError(Exception):
    """The bytes are not a valid file of their media type."""


def unpacked(packed: Iterable[bytes], media_type: str) -> Iterator[bytes]:
    """Yield the tar file of a layer of this media type, in pieces of at most 1 MiB. Raises :class:`DamagedError`.

    A truncated file gives fewer bytes, without an error. So the caller must compare the digest.
    """
    kind = media_type.rpartition("+")[2] if "+" in media_type else media_type.rpartition(".")[2]
    return {"gzip": _gunzipped, "zstd": _from_zstd}.get(kind, iter)(packed)


def _gunzipped(packed: Iterable[bytes]) -> Iterator[bytes]:
    member = isal_zlib.decompressobj(wbits=31)
    for piece in _small(packed):
        data, is_done = piece, False
        while not is_done:
            try:
                output = member.decompress(data, _OUTPUT)
            except _Damaged as error:
                raise DamagedError(str(error)) from error
            if output:
                yield output
            data = member.unconsumed_tail
            if member.eof:
                data, member = member.unused_data, isal_zlib.decompressobj(wbits=31)
            is_done = not data and len(output) < _OUTPUT


def _from_zstd(packed: Iterable[bytes]) -> Iterator[bytes]:
    import zstandard

    try:
        with zstandard.ZstdDecompressor().stream_reader(
            cast(IO[bytes], _Source(iter(packed))), read_across_frames=True
        ) as reader:
            while piece := reader.read(_OUTPUT):
                yield piece
    except zstandard.ZstdError as error:
        raise DamagedError(str(error)) from error


def _small(packed: Iterable[bytes]) -> Iterator[bytes]:
    for piece in packed:
        for start in range(0, len(piece), _INPUT):
            yield piece[start : start + _INPUT]


class _Source:
    """Turns a stream of pieces into a file object, for a reader that calls ``read``."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._left = b""

    def read(self, size: int = -1) -> bytes:
        """At most ``size`` bytes. At the end, the result is empty."""
        if not self._left:
            self._left = next(self._pieces, b"")
        if size < 0:
            size = len(self._left)
        given, self._left = self._left[:size], self._left[size:]
        return given


def noting(pieces: Iterable[bytes], *sinks: Callable[[bytes], object]) -> Iterator[bytes]:
    """Yield ``pieces`` unchanged. Before a piece is yielded, all ``sinks`` get it."""
    for piece in pieces:
        for sink in sinks:
            sink(piece)
        yield piece
