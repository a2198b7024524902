"""A file on a server as a seekable stream. Only the parts that are read are downloaded."""

from __future__ import annotations

import io
import time
import zipfile
from typing import TYPE_CHECKING

from envbuild.index.server_errors import unreachable
from envbuild.index.transport import name_in

if TYPE_CHECKING:
    from envbuild.index.client import Index


def open_remote(
    index: Index, url: str, *, within_s: float | None, tail: int = 64 * 2**10, block: int = 512 * 2**10
) -> io.BufferedIOBase | None:
    """Open the file at ``url``, or return None if its server cannot send parts of files.

    The last ``tail`` bytes are fetched first, because the directory of a zip is there. Each later request fetches at least
    ``block`` bytes. ``within_s`` limits the seconds for the whole file.
    """
    end = index.read_range(url, -tail, None)
    if end is None:
        return None
    return io.BufferedReader(_RemoteFile(index, url, *end, within_s), buffer_size=block)


class _RemoteFile(io.RawIOBase):
    def __init__(self, index: Index, url: str, tail: bytes, size: int, within_s: float | None) -> None:
        self._index = index
        self._url = url
        self._tail = tail
        self._size = size
        self._place = 0
        self._within_s = within_s
        self._end = None if within_s is None else time.monotonic() + within_s

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._size}[whence]
        self._place = max(0, start + offset)
        return self._place

    def tell(self) -> int:
        return self._place

    def readinto(self, buffer) -> int:  # type: ignore[no-untyped-def]  # a buffer, a type without a name before Python 3.12
        wanted = min(len(buffer), self._size - self._place)
        if wanted <= 0:
            return 0
        start_of_tail = self._size - len(self._tail)
        if self._place >= start_of_tail:
            piece = self._tail[self._place - start_of_tail :][:wanted]
        else:
            if self._end is not None and time.monotonic() > self._end:
                raise unreachable(self._url, f"it was not read within {self._within_s:.0f} s", file=name_in(self._url))
            answer = self._index.read_range(self._url, self._place, self._place + wanted - 1)
            if answer is None or answer[1] != self._size:
                raise zipfile.BadZipFile("the server stopped sending parts of it")
            piece = answer[0]
        buffer[: len(piece)] = piece
        self._place += len(piece)
        return len(piece)
