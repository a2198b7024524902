"""Read from the segments of an ELF file which libraries and symbol versions it needs. The dynamic loader uses only segments, so
a file without a list of sections works, too."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import IO, Any, NamedTuple

from envbuild.measure.damage import DamagedError

# The records of the tables: https://refspecs.linuxfoundation.org/LSB_5.0.0/LSB-Core-generic/LSB-Core-generic/symversion.html
_NEED, _NEEDED_VERSION = struct.Struct("<HHIII"), struct.Struct("<IHHII")
_DEFINITION, _DEFINED_VERSION = struct.Struct("<HHHHIII"), struct.Struct("<II")
_IS_WEAK = 2
_MOST_RECORDS, _LONGEST_NAME = 20_000, 256


class Version(NamedTuple):
    """A symbol version that a file needs. If only weak symbols need it, the loader starts a program without it."""

    name: str
    is_weak: bool


class Versions(NamedTuple):
    """The symbol versions that a file needs from each library, and the symbol versions that it defines."""

    needed: Mapping[str, tuple[Version, ...]]
    defined: tuple[str, ...]


def read_versions(stream: IO[bytes], parsed: Any) -> Versions:
    """Read the symbol versions of a file. Raises :class:`DamagedError`.

    ``parsed`` is the ELFFile of the file. ``stream`` must be bounded, and may raise DamagedError, too.
    """
    reader = _Reader(stream, parsed)
    needed = {
        reader.name(file): tuple(
            Version(reader.name(name), bool(flags & _IS_WEAK))
            for _, (_, flags, _, name, _) in reader.chain(_NEEDED_VERSION, at + first, count)
        )
        for at, (_, count, file, first, _) in reader.table("DT_VERNEED", _NEED)
    }
    defined = [
        reader.name(name)
        for at, (_, _, _, _, _, first, _) in reader.table("DT_VERDEF", _DEFINITION)
        for _, (name, _) in reader.chain(_DEFINED_VERSION, at + first, 1)
    ]
    return Versions(needed, tuple(defined))


class _Reader:
    """Reads tables by the addresses in the segment PT_DYNAMIC."""

    def __init__(self, stream: IO[bytes], parsed: Any) -> None:
        self._stream = stream
        self._left = _MOST_RECORDS
        segments = [each.header for each in parsed.iter_segments("PT_LOAD")]
        self._loaded = [(each.p_vaddr, each.p_filesz, each.p_offset) for each in segments]
        self._tags: dict[str, int] = {}
        for segment in parsed.iter_segments("PT_DYNAMIC"):
            for tag in segment.iter_tags():
                self._count()
                self._tags.setdefault(str(tag.entry.d_tag), int(tag.entry.d_val))

    def table(self, tag: str, record: struct.Struct) -> Iterator[tuple[int, tuple[Any, ...]]]:
        """The records of the table whose address is in this tag, each with its place in the file; none without the tag."""
        if tag in self._tags:
            yield from self.chain(record, self._place(self._tags[tag]), self._tags.get(f"{tag}NUM", 0))

    def chain(self, record: struct.Struct, at: int, count: int) -> Iterator[tuple[int, tuple[Any, ...]]]:
        """The records of a chain, each with its place. The last field of a record is the distance to the next record."""
        for _ in range(count):
            self._count()
            fields = record.unpack(self._read(at, record.size))
            yield at, fields
            if not fields[-1]:
                return
            at += fields[-1]

    def name(self, at: int) -> str:
        """The name at this position of the table of names."""
        self._stream.seek(self._place(self._tags.get("DT_STRTAB", 0)) + at)
        text, end, _ = self._stream.read(_LONGEST_NAME).partition(b"\0")
        if not end:
            raise DamagedError(f"has a name of more than {_LONGEST_NAME} bytes")
        return text.decode("utf-8", "replace")

    def _count(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise DamagedError(f"has tables of more than {_MOST_RECORDS} records")

    def _place(self, address: int) -> int:
        found = (address - begin + offset for begin, size, offset in self._loaded if begin <= address < begin + size)
        place = next(found, None)
        if place is None:
            raise DamagedError(f"refers to the address {address:#x}, which is in none of its segments")
        return int(place)

    def _read(self, at: int, size: int) -> bytes:
        self._stream.seek(at)
        data = self._stream.read(size)
        if len(data) < size:
            raise DamagedError("has a table that was cut off")
        return data
