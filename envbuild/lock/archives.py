"""Read text files from untrusted wheels and source archives, with size limits, and without unpacking them to a disk.

A wheel of 2 MB can claim a METADATA of 5 GB. A source archive of 1 kB can unpack to terabytes.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# Bytes of one metadata file. The longest METADATA has 1 MB (because of its description), the longest setup.py 200 kB.
TEXT_BYTES = 4 * 2**20
# Bytes of a zip's directory. In the largest wheels (20 000 files), the directory has 3 MB. After parsing, it takes about 10
# times as much memory.
DIRECTORY_BYTES = 12 * 2**20
# Members of a source archive. The largest archives have 30 000.
MEMBERS = 100_000
# Bytes that are unpacked before the wanted members are reached. The largest source archives have 1 GB.
UNPACKED_BYTES = 2 * 2**30
# Bytes of headers and texts that are read from a source archive: in total, and in one read. The limit for one read is needed
# because a header can claim any size, and tarfile reads all claimed bytes at once.
READ_BYTES = 80 * 2**20
READ_AT_ONCE_BYTES = TEXT_BYTES + 2**20


class TooLargeError(Exception):
    """An archive exceeds a limit of this module."""


def wheel_metadata(source: Path | io.BufferedIOBase) -> str:
    """Return the METADATA of a wheel. Raises the errors of zipfile, KeyError unless the wheel has exactly one METADATA, and
    :class:`TooLargeError`."""
    with _open(source) as stream, zipfile.ZipFile(stream) as archive:
        names = [name for name in archive.namelist() if name.count("/") == 1 and name.endswith(".dist-info/METADATA")]
        if len(names) != 1:
            raise KeyError(f"it contains {len(names)} METADATA files instead of one")
        return _member_of_zip(archive, names[0])


def texts(path: Path, choose: Callable[[Iterable[str]], dict[str, str]]) -> dict[str, str]:
    """Return the text of some members of a source archive. ``choose`` gets the names of all members, and returns a mapping from
    keys to the names of the wanted members. The result maps the same keys to the texts of these members."""
    if path.suffix == ".zip":
        with _open(path) as stream, zipfile.ZipFile(stream) as archive:
            return {key: _member_of_zip(archive, name) for key, name in choose(archive.namelist()).items()}
    with _unpacking(path) as unpacked, tarfile.open(fileobj=unpacked, mode="r:") as tar:
        chosen = choose(_files_of(tar))
        found = {}
        for key, name in chosen.items():
            stream = tar.extractfile(name)
            if stream is not None:
                found[key] = _text(stream, name)
        return found


def _files_of(tar: tarfile.TarFile) -> list[str]:
    names = []
    for count, member in enumerate(tar):
        if count >= MEMBERS:
            raise TooLargeError(f"it has more than {MEMBERS} members")
        if member.isfile():
            names.append(member.name)
    return names


def _member_of_zip(archive: zipfile.ZipFile, name: str) -> str:
    with archive.open(name) as stream:
        return _text(stream, name)


def _text(stream: Any, name: str) -> str:
    content = stream.read(TEXT_BYTES + 1)
    if len(content) > TEXT_BYTES:
        raise TooLargeError(f"{name[:100]} has more than {TEXT_BYTES} bytes")
    return str(content, "utf-8", errors="replace")


@contextmanager
def _open(source: Path | io.BufferedIOBase) -> Iterator[Any]:
    """Yield a stream that limits reads. zipfile reads the directory of a zip at once, and a zip can claim a directory of any
    size."""
    if isinstance(source, Path):
        with source.open("rb") as stream:
            yield _Bounded(stream, at_once=DIRECTORY_BYTES, in_all=4 * DIRECTORY_BYTES)
    else:
        yield _Bounded(source, at_once=DIRECTORY_BYTES, in_all=4 * DIRECTORY_BYTES)


@contextmanager
def _unpacking(path: Path) -> Iterator[Any]:
    """Yield the tar inside a compressed file. As in tarfile, the first bytes of the file show how it is compressed."""
    with path.open("rb") as raw:
        start = raw.read(6)
        raw.seek(0)
        stream: Any = raw
        if start.startswith(b"\x1f\x8b"):
            stream = gzip.GzipFile(fileobj=raw)
        elif start.startswith(b"BZh"):
            stream = bz2.BZ2File(raw)
        elif start.startswith((b"\xfd7zXZ", b"\x5d\x00\x00")):
            stream = lzma.LZMAFile(raw)  # noqa: SIM115 - closed together with `raw`
        yield _Bounded(stream, at_once=READ_AT_ONCE_BYTES, in_all=READ_BYTES)


class _Bounded(io.RawIOBase):
    """A stream that limits the bytes of one read, the bytes of all reads, and the bytes that are skipped."""

    def __init__(self, stream: Any, *, at_once: int, in_all: int) -> None:
        self._stream, self._at_once, self._left = stream, at_once, in_all

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Seek, unless too many bytes would have to be unpacked. A seek relative to the end is always allowed: zipfile needs
        it."""
        where = offset if whence == io.SEEK_SET else self._stream.tell() + offset
        if whence != io.SEEK_END and where > UNPACKED_BYTES and not isinstance(self._stream, io.BufferedReader):
            raise TooLargeError(f"more than {UNPACKED_BYTES} bytes would have to be unpacked")
        return int(self._stream.seek(offset, whence))

    def tell(self) -> int:
        """Return the current position."""
        return int(self._stream.tell())

    def read(self, size: int | None = -1) -> bytes:
        """Read at most ``size`` bytes. Raises :class:`TooLargeError` if a limit is exceeded."""
        wanted = self._at_once + 1 if size is None or size < 0 else size
        if wanted > self._at_once and size is not None and size >= 0:
            raise TooLargeError(f"a part of it claims to have {size} bytes")
        content: bytes = self._stream.read(wanted)
        self._left -= len(content)
        if len(content) > self._at_once or self._left < 0:
            raise TooLargeError("too much of it would have to be read")
        return content
