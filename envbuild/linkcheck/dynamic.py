"""Read the segments of an ELF file: the names, flags and symbols that the dynamic loader uses. The loader does not use the
file's sections."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, NamedTuple

from envbuild.measure.damage import DamagedError

# The numbers are those of glibc's elf.h.
_NEEDED, _HASH, _STRTAB, _SYMTAB, _STRSZ, _SONAME, _RPATH, _RUNPATH = 1, 4, 5, 6, 10, 14, 15, 29
_GNU_HASH, _FLAGS_1, _FILTER = 0x6FFFFEF5, 0x6FFFFFFB, 0x7FFFFFFF
_VERSYM, _VERDEF, _VERDEFNUM, _VERNEED, _VERNEEDNUM = 0x6FFFFFF0, 0x6FFFFFFC, 0x6FFFFFFD, 0x6FFFFFFE, 0x6FFFFFFF
_IS_BASE, _IS_WEAK = 1, 2
_NO_DEFAULT_FOLDERS = 0x800  # DF_1_NODEFLIB
_LOAD, _DYNAMIC, _INTERPRETER = 1, 2, 3
_SEGMENT, _TAG, _SYMBOL = struct.Struct("<IIQQQQQQ"), struct.Struct("<qQ"), struct.Struct("<IBBHQQ")
# The records of the tables: https://refspecs.linuxfoundation.org/LSB_5.0.0/LSB-Core-generic/LSB-Core-generic/symversion.html
_NEED, _NEEDED_VERSION = struct.Struct("<HHIII"), struct.Struct("<IHHII")
_DEFINITION, _DEFINED_VERSION = struct.Struct("<HHHHIII"), struct.Struct("<II")
_MOST_TAGS, _MOST_SYMBOLS, _MOST_NAMES, _MOST_RECORDS = 20_000, 4_000_000, 2**30, 20_000
# Limits in bytes: of one text, and of all of them. The longest search path seen has 20,297 bytes.
_SHORT, _LONGEST, _MOST_TEXT = 2**8, 2**16, 2**24
_PIECE = 2**14
# The number of a version. The highest bit says that other objects are not linked with this definition.
_NUMBER = 0x7FFF


class Symbols(NamedTuple):
    """The table of dynamic symbols, and the names to which it refers, as bytes."""

    table: bytes
    names: bytes


class NeededVersion(NamedTuple):
    """A symbol version that a file needs from a library. If only weak symbols need it, the loader starts a program without
    it."""

    library: str
    name: str
    is_weak: bool


class Versions(NamedTuple):
    """The symbol versions of a file: those that it needs, those that it defines, and for each of its symbols the number of its
    version. ``base`` is the name of the library itself, which is among the definitions, but is no version."""

    needed: Mapping[int, NeededVersion]
    defined: Mapping[int, str]
    base: int
    numbers: Sequence[int]


class _Segment(NamedTuple):
    kind: int
    offset: int
    address: int
    size: int


class Dynamic:
    """The facts in the dynamic segment of an ELF file for x86-64. ``needed`` has the libraries that the file needs, and those
    for which it is a filter: the loader loads both. ``is_dynamic`` is false for a static program."""

    def __init__(self, stream: IO[bytes], size: int) -> None:
        """``size`` is the size of the file in ``stream``, which must be seekable. Raises :class:`DamagedError`."""
        self._stream = stream
        self._size = size
        self._text_left = _MOST_TEXT
        self._records_left = _MOST_RECORDS
        self._segments = self._read_segments()
        tags = list(self._tags())
        self._values = dict(reversed(tags))  # of several tags of one kind, the first one
        self.is_dynamic = any(each.kind == _DYNAMIC for each in self._segments)
        self.needed = tuple(self._name(value) for kind, value in tags if kind in (_NEEDED, _FILTER))
        self.soname = self._name(self._values[_SONAME]) if _SONAME in self._values else ""
        self.rpath = self._paths(_RPATH)
        self.runpath = self._paths(_RUNPATH)
        self.has_no_default_folders = bool(self._values.get(_FLAGS_1, 0) & _NO_DEFAULT_FOLDERS)
        self.interpreter = next((self._text(each.offset) for each in self._segments if each.kind == _INTERPRETER), "")

    @property
    def is_cut_off(self) -> bool:
        """Whether the file ends before one of its segments does."""
        return any(each.kind == _LOAD and each.offset + each.size > self._size for each in self._segments)

    def symbols(self) -> Symbols:
        """The symbols that the loader can find. Their number is known only from the hash table, in which the loader looks them
        up. Raises :class:`DamagedError`."""
        count = self._count()
        if not count or _SYMTAB not in self._values:
            return Symbols(b"", b"")
        length = self._values.get(_STRSZ, 0)
        if count > _MOST_SYMBOLS or length > _MOST_NAMES:
            raise DamagedError("has a table of symbols that is damaged")
        table = self._bytes(self._place(self._values[_SYMTAB]), count * _SYMBOL.size)
        return Symbols(table, self._bytes(self._place(self._values.get(_STRTAB, 0)), length))

    def versions(self, symbols: int) -> Versions:
        """The symbol versions of the file, which has this number of ``symbols``. Raises :class:`DamagedError`."""
        needed = {
            number & _NUMBER: NeededVersion(self._name(library), self._name(name), bool(flags & _IS_WEAK))
            for at, (_, count, library, first, _) in self._table(_VERNEED, _NEED)
            for _, (_, flags, number, name, _) in self._chain(_NEEDED_VERSION, at + first, count)
        }
        defined, base = {}, 0
        for at, (_, flags, number, _, _, first, _) in self._table(_VERDEF, _DEFINITION):
            for _, (name, _) in self._chain(_DEFINED_VERSION, at + first, 1):
                defined[number & _NUMBER] = self._name(name)
            base = number & _NUMBER if flags & _IS_BASE else base
        if _VERSYM not in self._values or not (needed or defined):
            return Versions(needed, defined, base, ())
        numbers = struct.unpack(f"<{symbols}H", self._bytes(self._place(self._values[_VERSYM]), 2 * symbols))
        return Versions(needed, defined, base, numbers)

    def _table(self, tag: int, record: struct.Struct) -> Iterator[tuple[int, tuple[int, ...]]]:
        """The records of the table whose address is in this tag, each with its place in the file; none without the tag."""
        if tag in self._values:
            count = self._values.get(_VERNEEDNUM if tag == _VERNEED else _VERDEFNUM, 0)
            yield from self._chain(record, self._place(self._values[tag]), count)

    def _chain(self, record: struct.Struct, at: int, count: int) -> Iterator[tuple[int, tuple[int, ...]]]:
        """The records of a chain, each with its place. The last field of a record is the distance to the next record."""
        for _ in range(count):
            self._records_left -= 1
            if self._records_left < 0:
                raise DamagedError(f"has tables of more than {_MOST_RECORDS} records")
            fields = record.unpack(self._bytes(at, record.size))
            yield at, fields
            if not fields[-1]:
                return
            at += fields[-1]

    def _count(self) -> int:
        if _HASH in self._values:
            return int(struct.unpack("<II", self._bytes(self._place(self._values[_HASH]), 8))[1])
        if _GNU_HASH not in self._values:
            return 0
        begin = self._place(self._values[_GNU_HASH])
        buckets, first, words, _ = struct.unpack("<IIII", self._bytes(begin, 16))
        begin += 16 + 8 * words
        if buckets > _MOST_SYMBOLS:
            raise DamagedError("has a hash table that is damaged")
        last = max(struct.unpack(f"<{buckets}I", self._bytes(begin, 4 * buckets)), default=0)
        return first if last < first else self._end_of_chain(begin + 4 * buckets - 4 * first, last)

    def _end_of_chain(self, begin: int, at: int) -> int:
        """The number after that of the last symbol in a chain. The last entry of a chain is the one whose lowest bit is set."""
        while at < _MOST_SYMBOLS:
            piece = self._bytes(begin + 4 * at, min(_PIECE, (self._size - begin) // 4 * 4 - 4 * at))
            for (entry,) in struct.iter_unpack("<I", piece):
                at += 1
                if entry & 1:
                    return at
            if not piece:
                break
        raise DamagedError("has a hash table that is damaged")

    def _read_segments(self) -> list[_Segment]:
        header = self._bytes(0, 64)
        begin, each, count = int.from_bytes(header[32:40], "little"), *struct.unpack("<HH", header[54:58])
        if count and each != _SEGMENT.size:
            raise DamagedError("has a list of segments that is damaged")
        found = _SEGMENT.iter_unpack(self._bytes(begin, each * count))
        return [_Segment(fields[0], fields[2], fields[3], fields[5]) for fields in found]

    def _tags(self) -> Iterator[tuple[int, int]]:
        segment = next((each for each in self._segments if each.kind == _DYNAMIC), None)
        if segment is None:
            return
        count = segment.size // _TAG.size
        if count > _MOST_TAGS:
            raise DamagedError(f"has a table of more than {_MOST_TAGS} records")
        for kind, value in _TAG.iter_unpack(self._bytes(segment.offset, count * _TAG.size)):
            if not kind:
                return
            yield kind, value

    def _paths(self, kind: int) -> tuple[str, ...]:
        text = self._name(self._values[kind]) if kind in self._values else ""
        return tuple(each for each in text.split(":") if each)

    def _name(self, at: int) -> str:
        return self._text(self._place(self._values.get(_STRTAB, 0)) + at)

    def _text(self, at: int) -> str:
        """The text at this position. Names of files need not be UTF-8. They are read as ``os.fsdecode`` reads them, so that
        they equal the names in a tar file."""
        for length in (_SHORT, _LONGEST):
            self._seek(at)
            text, end, _ = self._stream.read(length).partition(b"\0")
            if end:
                break
        self._text_left -= len(text)
        if not end or self._text_left < 0:
            raise DamagedError("has texts that are too long where names are")
        return text.decode("utf-8", "surrogateescape")

    def _place(self, address: int) -> int:
        for each in self._segments:
            if each.kind == _LOAD and each.address <= address < each.address + each.size:
                return address - each.address + each.offset
        raise DamagedError(f"refers to the address {address:#x}, which is in none of its segments")

    def _bytes(self, at: int, count: int) -> bytes:
        self._seek(at)
        data = self._stream.read(count) if count > 0 else b""
        if len(data) < count:
            raise DamagedError("has a table that was cut off")
        return data

    def _seek(self, at: int) -> None:
        if not 0 <= at <= self._size:
            raise DamagedError(f"refers to byte {at}, but has only {self._size} bytes")
        self._stream.seek(at)
