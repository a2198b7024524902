"""Read from a shared library what it needs (libraries, symbol versions, search paths), and where its sections with GPU code
are.

A library that was packed by UPX has no sections. Only what the dynamic loader reads from it is readable."""

from __future__ import annotations

import io
import itertools
import os
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

from envbuild.measure import segments
from envbuild.measure.damage import DamagedError

# Most shared libraries have dozens of sections. Objects that are compiled with one section for each function have 50,000.
_MOST_SECTIONS, _MOST_RECORDS = 60_000, 20_000
_MOST_STRINGS = 2**30  # bytes of a string table or a hash table; the largest one seen has 60 MB
_SECTION = struct.Struct("<IIQQQQIIQQ")
_NOBITS, _HASH, _GNU_HASH = 8, 5, 0x6FFFFFF6
_WRITABLE, _ALLOCATED, _EXECUTABLE = 1, 2, 4
_PIECE = 4 * 2**20
_LONGEST = 200  # bytes of the longest text that is searched for
# If NCCL was not built by its own Makefile, the text has the names of macros in place of CUDA's version.
_NCCL = re.compile(rb"NCCL version (\d{1,3}(?:\.\d{1,4}){1,3})\+cuda(?:(\d{1,3}\.\d{1,3})|CUDA_MAJOR\.CUDA_MINOR)")
# A file that needs an ability of glibc's loader names it as a symbol version without a number:
# https://sourceware.org/git/?p=glibc.git;a=commit;h=57292f574156f817b7cbeb33ea6278c6eab22bcc
# For each ability, this is the first release of glibc that has it. Some distributions add an ability to an older release. An
# ability that is not listed needs at least the newest release in the list.
_ABILITIES = {
    "GLIBC_ABI_DT_RELR": "2.36",  # packed relative relocations
    "GLIBC_ABI_GNU_TLS": "2.42",
    "GLIBC_ABI_GNU2_TLS": "2.42",
    "GLIBC_ABI_DT_X86_64_PLT": "2.42",
}
_NEWEST = "2.42"
_X86_64 = 62
_UPX_TRAILER = 36  # bytes: a record of 32 bytes, and the position of the first packed block
# Limits in bytes. The longest search path seen has 20,297 bytes.
_LONGEST_NAME, _LONGEST_TEXT, _NAME_PIECE = 4096, 2**16, 64  # pyelftools reads names in pieces of 64 bytes


class Symbols(NamedTuple):
    """The highest symbol versions that are needed from glibc, from libstdc++ and from the C++ ABI. Each is empty if none is
    needed."""

    glibc: str
    glibcxx: str
    cxxabi: str


class Needs(NamedTuple):
    """What is read from an ELF file.

    ``libcuda`` says how the file uses libcuda: ``linked``, ``by name`` or ``no``. ``nccl`` is a pair: the version of NCCL, and
    the version of CUDA for which this NCCL was built, which is empty if NCCL does not contain it. ``has_sections`` is false if
    the file has no list of sections: then its GPU code and its constants were not read. ``data`` is the number of bytes of its
    variables with initial values.
    """

    soname: str
    needed: tuple[str, ...]
    rpath: tuple[str, ...]
    runpath: tuple[str, ...]
    symbols: Symbols
    libcuda: str
    nccl: tuple[str, str] | None
    fatbins: tuple[tuple[str, int, int], ...]
    has_sections: bool = True
    data: int = 0


class Limited(io.RawIOBase):
    """A bounded stream of a library, for the parser. It gives at most ``most`` bytes in total, no very long names, and no bytes
    after the end of the file."""

    def __init__(self, stream: IO[bytes], size: int, most: int = 2**28) -> None:
        super().__init__()
        self._stream = stream
        self._size = size
        self._most = self._left = most
        self._of_name = 0

    def seekable(self) -> bool:
        """Return True."""
        return True

    def readable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the current position in the file."""
        return self._stream.tell()

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a position in the file. Raises :class:`DamagedError` if the position is after the end of the file."""
        self._of_name = 0
        if whence == io.SEEK_SET and not 0 <= offset <= self._size:
            raise DamagedError(f"refers to byte {offset}, but has only {self._size} bytes")
        return self._stream.seek(offset, whence)

    def read(self, size: int = -1) -> bytes:
        """Read the next ``size`` bytes. Raises :class:`DamagedError` if too many bytes were read, or if a text is too long."""
        if size < 0 or size > self._left:
            raise DamagedError(f"has more than {self._most} bytes of names and lists")
        self._left -= size
        self._of_name = self._of_name + size if size == _NAME_PIECE else 0
        if self._of_name > _LONGEST_TEXT:
            raise DamagedError(f"has a text of more than {_LONGEST_TEXT} bytes where names are")
        return self._stream.read(size)


class WithoutSections(Limited):
    """A stream of an ELF file. In the bytes that the stream returns, the ELF header names no sections."""

    def read(self, size: int = -1) -> bytes:
        """Read the next ``size`` bytes. Raises :class:`DamagedError` as :meth:`Limited.read` does."""
        begin = self.tell()
        data = bytearray(super().read(size))
        for first, end in ((40, 48), (60, 64)):  # bytes of the ELF header: e_shoff; e_shnum and e_shstrndx
            for at in range(max(first - begin, 0), min(end - begin, len(data))):
                data[at] = 0
        return bytes(data)


class _Section(NamedTuple):
    kind: int
    flags: int
    offset: int
    size: int


def is_elf(head: bytes) -> bool:
    """Whether a file that begins with these bytes is a 64-bit little-endian ELF file for x86-64. Images of envbuild are only
    for x86-64."""
    return head[:6] == b"\x7fELF\x02\x01" and len(head) >= 20 and int.from_bytes(head[18:20], "little") == _X86_64


def read(path: Path) -> Needs:
    """Read an ELF file in bounded memory. Raises :class:`DamagedError`, or OSError if the disk fails."""
    with path.open("rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        sections = checked_sections(stream, size)
        try:
            return _read(stream, sections, size)
        except DamagedError:
            raise
        except OSError:
            raise
        except Exception as error:  # the file is untrusted: the parser may raise any error
            raise DamagedError(f"is a malformed ELF file ({type(error).__name__}: {str(error)[:200]})") from error


def checked_sections(stream: IO[bytes], size: int) -> list[_Section]:
    """Return all sections; none if the file has no list of sections. Raises :class:`DamagedError` if a section goes beyond the
    end of the file, because a reader of this section would read beyond the end, too."""
    head = stream.read(64)
    if len(head) < 64:
        raise DamagedError("ends within its ELF header")
    begin, each, count = int.from_bytes(head[40:48], "little"), *struct.unpack("<HH", head[58:62])
    if not begin or (not count and is_packed(stream, size)):
        return []
    if each != _SECTION.size or count > _MOST_SECTIONS or count == 0 or begin + each * count > size:
        raise DamagedError("has a list of sections that is damaged, or was cut off")
    stream.seek(begin)
    table = stream.read(each * count)
    if len(table) < each * count:
        raise DamagedError("has a list of sections that was cut off")
    sections = []
    for fields in _SECTION.iter_unpack(table):
        section = _Section(fields[1], fields[2], fields[4], fields[5])
        if section.kind not in (0, _NOBITS) and section.offset + section.size > size:
            raise DamagedError(f"has a section of {section.size} bytes at byte {section.offset}, but only {size} bytes")
        if section.kind in (_HASH, _GNU_HASH):
            _check_hash(stream, section)
        sections.append(section)
    # Sections do not overlap, so their sizes cannot add up to more than the size of the file. The limit is twice this size,
    # because some tools leave a few sections that overlap.
    if sum(each.size for each in sections if each.kind not in (0, _NOBITS)) > 2 * size:
        raise DamagedError("has sections that overlap each other")
    return sections


def is_packed(stream: IO[bytes], size: int) -> bool:
    """Whether a file was packed by UPX, which writes its mark at the end: https://github.com/upx/upx/blob/master/src/packhead.cpp.
    UPX removes the list of sections, but leaves its place in the header."""
    stream.seek(max(size - _UPX_TRAILER, 0))
    return stream.read(4) == b"UPX!"


def _check_hash(stream: IO[bytes], section: _Section) -> None:
    """Refuse a hash table that claims more buckets than it has room for, because the parser makes a list of all buckets."""
    stream.seek(section.offset)
    first = stream.read(16)
    buckets = int.from_bytes(first[:4], "little")
    other = int.from_bytes(first[4:8], "little") if section.kind == _HASH else int.from_bytes(first[8:12], "little") * 2
    if (buckets + other) * 4 > section.size or section.size > _MOST_STRINGS:
        raise DamagedError("has a hash table that claims more than its section has")


def _read(stream: IO[bytes], sections: list[_Section], size: int) -> Needs:
    from elftools.elf.dynamic import DynamicSection
    from elftools.elf.elffile import ELFFile
    from elftools.elf.gnuversions import GNUVerNeedSection

    stream.seek(0)
    limited: Any = Limited(stream, size) if sections else WithoutSections(stream, size)
    parsed: Any = ELFFile(limited)
    strings: dict[str, list[str]] = {}
    versions: set[str] = set()
    fatbins = []
    if not sections:
        for segment in parsed.iter_segments("PT_DYNAMIC"):
            _add_strings(strings, segment)
        versions = {each.name for names in segments.read_versions(limited, parsed).needed.values() for each in names}
    for section in parsed.iter_sections():
        if isinstance(section, DynamicSection):
            _add_strings(strings, section)
        elif isinstance(section, GNUVerNeedSection):
            for _, needed in bounded(section.iter_versions()):
                versions |= {str(each.name) for each in bounded(needed)}
        elif _has_kernels(section):
            fatbins.append((str(section.name), int(section["sh_offset"]), int(section["sh_size"])))
    needed_names = tuple(strings.get("DT_NEEDED", ()))
    covered = {(begin, length) for _, begin, length in fatbins}
    by_name, nccl = _search(stream, [each for each in sections if (each.offset, each.size) not in covered])
    return Needs(
        soname=next(iter(strings.get("DT_SONAME", ())), ""),
        needed=needed_names,
        rpath=_paths(strings.get("DT_RPATH", ())),
        runpath=_paths(strings.get("DT_RUNPATH", ())),
        symbols=Symbols(*(_highest(versions, kind) for kind in ("GLIBC", "GLIBCXX", "CXXABI"))),
        libcuda="linked" if any(name.startswith("libcuda.so") for name in needed_names) else "by name" if by_name else "no",
        nccl=nccl,
        fatbins=tuple(fatbins),
        has_sections=bool(sections),
        data=sum(each.size for each in sections if each.kind == 1 and each.flags & _WRITABLE),
    )


def _add_strings(strings: dict[str, list[str]], dynamic: Any) -> None:
    for tag in bounded(dynamic.iter_tags()):
        for kind, name in (("DT_NEEDED", "needed"), ("DT_RPATH", "rpath"), ("DT_RUNPATH", "runpath"), ("DT_SONAME", "soname")):
            if tag.entry.d_tag == kind:
                strings.setdefault(kind, []).append(_name(tag, name))


def _name(tag: Any, name: str) -> str:
    text = str(getattr(tag, name))
    if len(text) > _LONGEST_NAME and name in ("needed", "soname"):
        raise DamagedError(f"has a name of more than {_LONGEST_NAME} bytes")
    return text


def _has_kernels(section: Any) -> bool:
    """Whether a section contains GPU code. A file with separate debug information has a section of this name without
    content."""
    return str(section.name).endswith(("nv_fatbin", "nv_relfatbin")) and str(section["sh_type"]) != "SHT_NOBITS"


def bounded(items: Any) -> Iterator[Any]:
    """Yield the items. Refuse more items than any real file has, because a chain of records can form a loop."""
    found = itertools.islice(items, _MOST_RECORDS + 1)
    for count, item in enumerate(found):
        if count >= _MOST_RECORDS:
            raise DamagedError(f"has a table of more than {_MOST_RECORDS} records")
        yield item


def _paths(texts: Any) -> tuple[str, ...]:
    return tuple(part for text in texts for part in text.split(":") if part)


def _highest(names: set[str], kind: str) -> str:
    names = {f"GLIBC_{_ABILITIES.get(name, _NEWEST)}" if name.startswith("GLIBC_ABI_") else name for name in names}
    numbers = [match[1] for name in names if (match := re.fullmatch(rf"{kind}_(\d{{1,4}}(?:\.\d{{1,4}}){{0,5}})", name))]
    return max(numbers, key=lambda text: tuple(map(int, text.split("."))), default="")


def _search(stream: IO[bytes], sections: list[_Section]) -> tuple[bool, tuple[str, str] | None]:
    """Return whether the constants contain the name of libcuda; and the version of NCCL, if NCCL is linked statically."""
    by_name, nccl = False, None
    for piece in constants(stream, sections):
        by_name = by_name or b"libcuda.so" in piece
        if nccl is None and (match := _NCCL.search(piece)):
            nccl = (match[1].decode(), (match[2] or b"").decode())
    return by_name, nccl


def constants(stream: IO[bytes], sections: list[_Section]) -> Iterator[bytes]:
    """Yield the constants of a file in pieces. Each piece begins with the end of the previous piece, so that no text is cut."""
    for section in sections:
        constant = section.flags & _ALLOCATED and not section.flags & _EXECUTABLE
        if section.kind != 1 or not constant:
            continue
        kept = b""
        for at in range(section.offset, section.offset + section.size, _PIECE):
            stream.seek(at)
            piece = kept + stream.read(min(_PIECE, section.offset + section.size - at))
            yield piece
            kept = piece[-_LONGEST:]
