"""Reads OSV records one at a time from folders and zips: https://ossf.github.io/osv-schema/.

Only one record is in memory at a time, even if the database is large. A record that cannot be read is skipped, and its name is
reported.
"""

from __future__ import annotations

import json
import os
import stat
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from envbuild.errors import InvalidInputError, UsageError

# The largest record in OSV's export of 2025, an advisory about all Linux kernels, has 5 MB.
LARGEST_RECORD = 16 << 20
# The directory of a zip (its list of files) is read as a whole. The directory has 2 MB in OSV's zip for PyPI and 5 MB in OSV's
# zip for Debian. A directory of 32 MiB lists about 400,000 records.
LARGEST_DIRECTORY = 32 << 20
_END, _END_64, _LOCATOR_64 = b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07"
_END_SIZE, _LONGEST_COMMENT = 22, 0xFFFF
_HINT = "Give a folder of JSON records, or the zip that osv.dev offers for an ecosystem (PyPI, Debian)."


@dataclass(frozen=True, kw_only=True, slots=True)
class Bad:
    """A record that cannot be used: the name of its file, and why the record cannot be used."""

    name: str
    why: str


def read(place: Path) -> Iterator[tuple[str, dict[str, Any]] | Bad]:
    """Yield every record of a folder or zip with the name of its file.

    Raises :class:`UsageError` or :class:`InvalidInputError` (both ``bad-database``) if ``place`` cannot be read.
    """
    try:
        if place.is_dir():
            yield from _folder(place)
            return
        if not place.is_file():
            raise UsageError(f"{place} is neither a file nor a folder.", code="bad-database", hint=_HINT)
        _check_directory(place)
        with zipfile.ZipFile(place) as archive:
            for entry in archive.infolist():
                if entry.filename.endswith(".json"):
                    yield _entry(archive, entry)
    except (OSError, zipfile.BadZipFile, zipfile.LargeZipFile, NotImplementedError) as error:
        why = f"{place} cannot be read as an OSV database: {error}."
        raise InvalidInputError(why, code="bad-database", hint=_HINT) from error


def _folder(place: Path) -> Iterator[tuple[str, dict[str, Any]] | Bad]:
    """Yield the records of a folder. Links to folders are not followed: records could be read twice, or in an endless loop."""
    waiting = [place]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                path = Path(entry.path)
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(path)
                elif entry.name.endswith(".json"):
                    yield _file(path, str(path.relative_to(place)))


def _file(path: Path, name: str) -> tuple[str, dict[str, Any]] | Bad:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # without O_NONBLOCK, opening a named pipe would block
        with os.fdopen(descriptor, "rb") as stream:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return Bad(name=name, why="is not a regular file")
            return _record(stream, name)
    except OSError as error:
        return Bad(name=name, why=f"cannot be read: {error.strerror or error}")


def _entry(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> tuple[str, dict[str, Any]] | Bad:
    try:
        with archive.open(entry) as stream:
            return _record(stream, entry.filename)
    except (OSError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error, ValueError) as error:
        return Bad(name=entry.filename, why=f"cannot be unpacked: {error}")


def _record(stream: IO[bytes], name: str) -> tuple[str, dict[str, Any]] | Bad:
    content = stream.read(LARGEST_RECORD + 1)
    if len(content) > LARGEST_RECORD:
        return Bad(name=name, why=f"is larger than {LARGEST_RECORD >> 20} MiB, too large for a record")
    try:
        record = json.loads(content)
    except (ValueError, RecursionError) as error:
        return Bad(name=name, why=f"is not JSON: {error}")
    if not isinstance(record, dict) or not isinstance(record.get("id"), str):
        return Bad(name=name, why="is not an OSV record: it has no id")
    return name, record


def _check_directory(place: Path) -> None:
    """Refuse a zip whose directory is too large to be read as a whole, before zipfile reads it."""
    size = place.stat().st_size
    with place.open("rb") as stream:
        stream.seek(max(0, size - _END_SIZE - _LONGEST_COMMENT - 20))
        tail = stream.read()
        end = tail.rfind(_END)
        if end < 0:
            return  # zipfile will report that it is not a zip
        length = int.from_bytes(tail[end + 12 : end + 16], "little")
        locator = tail.rfind(_LOCATOR_64, 0, end)
        if length == 0xFFFFFFFF and locator >= 0:
            stream.seek(int.from_bytes(tail[locator + 8 : locator + 16], "little"))
            record = stream.read(56)
            length = int.from_bytes(record[40:48], "little") if record.startswith(_END_64) else length
    if length > LARGEST_DIRECTORY:
        raise InvalidInputError(
            f"{place} contains too many files: its list of files is larger than {LARGEST_DIRECTORY >> 20} MiB.",
            code="bad-database",
            hint="Unpack it and give the folder, or give the zips of the ecosystems that you need (PyPI, Debian).",
        )
