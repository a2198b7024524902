"""Read from an ELF file what the dynamic loader reads from it, in bounded memory."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import IO, Any, NamedTuple

from envbuild.linkcheck import elf_symbols
from envbuild.linkcheck.dynamic import Dynamic, Symbols
from envbuild.linkcheck.model import ElfFacts
from envbuild.measure import elf, gpu_code
from envbuild.measure.damage import DamagedError

_SYMBOL = struct.Struct("<IBBHQQ")
_MOST_SYMBOLS, _MOST_NAMES = 4_000_000, 2**30
_ARCHITECTURE = re.compile(rb"\b(?:sm|compute)_(\d{1,2})(\d[af]?)\0")
# The array of default folders in glibc's loader, as `system_dirs` in elf/dl-load.c.
_DEFAULT_FOLDERS = re.compile(rb"(?:/[\w.+/-]*lib[\w.+/-]*/\0){2,}")
_LOADER = "ld-linux-x86-64.so.2"
_ABI, _ABIS = 7, (0, 3)  # the byte of the ELF header with the operating system; System V and Linux


class Wanted(NamedTuple):
    """What to read: patterns for the beginnings of symbols, and for constants. If a file's name matches ``compilers``, the GPUs
    for which this compiler compiles are read, too. ``vendor`` matches the names of NVIDIA's libraries."""

    symbols: re.Pattern[bytes]
    constants: re.Pattern[bytes]
    compilers: re.Pattern[str] = re.compile("(?!)")
    vendor: re.Pattern[str] = re.compile("(?!)")


class _Constants(NamedTuple):
    opens: tuple[str, ...]
    architectures: tuple[str, ...]
    default_folders: tuple[str, ...]


class _GpuCode(NamedTuple):
    native: tuple[str, ...]
    ptx: tuple[str, ...]
    some_native: tuple[str, ...] = ()
    some_ptx: tuple[str, ...] = ()


def read(stream: IO[bytes], size: int, wanted: Wanted, name: str = "") -> ElfFacts | None:
    """Read the facts of an ELF file for x86-64 with the file name ``name``. Return None if the loader never loads the file:
    object files, static programs, debug files.

    The facts of a damaged file are empty except for ``damage``. ``stream`` must be seekable. The loader itself needs no list of
    sections. If this list is missing or damaged, only libraries, folders, versions and symbols are read.
    """
    try:
        try:
            sections = elf.checked_sections(stream, size)
        except DamagedError:
            sections = []
        return _read(stream, size, sections, wanted, name) if sections else _segments(stream, size, wanted)
    except DamagedError as error:
        return ElfFacts(damage=str(error))
    except OSError:
        raise
    except Exception as error:  # the file is untrusted: the parser may raise any error
        return ElfFacts(damage=f"is a malformed ELF file ({type(error).__name__}: {str(error)[:200]})")


def _read(stream: IO[bytes], size: int, sections: list[Any], wanted: Wanted, name: str) -> ElfFacts | None:
    from elftools.elf.dynamic import DynamicSection
    from elftools.elf.elffile import ELFFile

    stream.seek(0)
    limited: Any = elf.Limited(stream, size)
    parsed: Any = ELFFile(limited)
    if parsed["e_type"] not in ("ET_DYN", "ET_EXEC"):
        return None
    fatbins, table, dynamic = [], None, None
    for section in parsed.iter_sections():
        if str(section["sh_type"]) == "SHT_NOBITS":
            continue
        if isinstance(section, DynamicSection):
            dynamic = dynamic or Dynamic(stream, size)
        elif str(section.name).endswith(("nv_fatbin", "nv_relfatbin")):
            fatbins.append((str(section.name), int(section["sh_offset"]), int(section["sh_size"])))
        elif str(section["sh_type"]) == "SHT_DYNSYM":
            table = section
    # A file with debug information has a dynamic segment, too, but no section for it, because the segment is empty.
    if dynamic is None or not dynamic.is_dynamic:
        return None
    symbols = None if table is None else _table(stream, parsed, table)
    covered = {(begin, length) for _, begin, length in fatbins}
    of_vendor = bool(wanted.vendor.fullmatch(dynamic.soname or name))
    code = _gpu_code(stream, fatbins, of_vendor=of_vendor)
    constant = [each for each in sections if (each.offset, each.size) not in covered]
    data = sum(each.size for each in sections if each.kind == 1 and each.flags & 1)
    texts = _constants(stream, constant, wanted, name, is_loader=dynamic.soname == _LOADER)
    return replace(
        _facts(dynamic, wanted, symbols),
        opens=texts.opens,
        native=code.native,
        ptx=code.ptx,
        some_native=code.some_native,
        some_ptx=code.some_ptx,
        architectures=texts.architectures,
        default_folders=texts.default_folders,
        hides_code=of_vendor and gpu_code.hides_code(size, fatbins, data),
    )


def _segments(stream: IO[bytes], size: int, wanted: Wanted) -> ElfFacts | None:
    """Read only the facts that are in the segments: libraries, folders, versions and symbols, but no constants and no GPU code.
    The loader maps only segments."""
    from elftools.elf.elffile import ELFFile

    stream.seek(0)
    limited: Any = elf.WithoutSections(stream, size)
    parsed: Any = ELFFile(limited)
    if parsed["e_type"] not in ("ET_DYN", "ET_EXEC"):
        return None
    found = Dynamic(stream, size)
    if found.is_cut_off:
        raise DamagedError(f"has a segment that ends behind its {size} bytes: it was cut off")
    if not found.is_dynamic:
        return None
    return replace(_facts(found, wanted), hides_code=elf.is_packed(stream, size))


def _facts(found: Dynamic, wanted: Wanted, table: Symbols | None = None) -> ElfFacts:
    versions = found.versions(0)
    needed: dict[str, list[str]] = {}
    for each in versions.needed.values():
        if not each.is_weak:
            needed.setdefault(each.library, []).append(each.name)
    symbols = elf_symbols.read(found, wanted.symbols, table)
    return ElfFacts(
        soname=found.soname,
        needed=found.needed,
        rpath=found.rpath,
        runpath=found.runpath,
        has_no_default_folders=found.has_no_default_folders,
        interpreter=found.interpreter,
        versions={library: tuple(names) for library, names in needed.items()},
        defines=tuple(versions.defined.values()),
        wanted=symbols.undefined,
        offers=symbols.exported,
        needed_symbols=symbols.needed,
        offered_symbols=symbols.offered,
        hides_symbols=symbols.are_unknown,
    )


def _table(stream: IO[bytes], parsed: Any, table: Any) -> Symbols:
    """The symbols in a section."""
    names = parsed.get_section(table["sh_link"])
    if table["sh_size"] > _MOST_SYMBOLS * _SYMBOL.size or names is None or names["sh_size"] > _MOST_NAMES:
        raise DamagedError("has a table of symbols that is damaged")
    stream.seek(table["sh_offset"])
    raw = stream.read(table["sh_size"] // _SYMBOL.size * _SYMBOL.size)
    stream.seek(names["sh_offset"])
    return Symbols(raw, stream.read(names["sh_size"]))


def _gpu_code(stream: IO[bytes], fatbins: list[tuple[str, int, int]], *, of_vendor: bool) -> _GpuCode:
    """The GPUs for which the file has native code, and the GPUs for which it has PTX.

    For NVIDIA's libraries, all GPUs are listed, because these libraries have different kernels for different GPUs. For other
    libraries, only the GPUs for which the framework was compiled are listed. If the file does not show which GPUs these are,
    only some kernels have code for any GPU.
    """
    lists = gpu_code.read_sections(_reader(stream), fatbins).lists if fatbins else ()
    every = _all(each.native for each in lists), _all(each.ptx for each in lists)
    own = gpu_code.own_code(lists)
    if of_vendor or own is None:
        return _GpuCode(*every)
    return _GpuCode(own.native, own.ptx) if own.certainty != "unclear" else _GpuCode((), (), *every)


def _all(lists: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(sorted({capability for each in lists for capability in each}, key=gpu_code.capability_order))


def _reader(stream: IO[bytes]) -> Callable[[int, int], bytes]:
    try:
        number = stream.fileno()
    except OSError:  # a file in memory has no descriptor

        def read(begin: int, count: int) -> bytes:
            stream.seek(begin)
            return stream.read(count)

        return read
    return lambda begin, count: os.pread(number, count, begin)


def _constants(stream: IO[bytes], sections: list[Any], wanted: Wanted, name: str, *, is_loader: bool) -> _Constants:
    """The names of libraries among the constants of a file that match a pattern of the rules. If the file is a compiler, also
    the GPUs for which it compiles; if it is a dynamic loader, also the folders that it searches by default."""
    found: set[bytes] = set()
    architectures: set[str] = set()
    folders: tuple[str, ...] = ()
    compiles = bool(wanted.compilers.fullmatch(name))
    for piece in elf.constants(stream, sections):
        found.update(match[0] for match in wanted.constants.finditer(piece))
        if compiles:
            architectures.update(f"{match[1].decode()}.{match[2].decode()}" for match in _ARCHITECTURE.finditer(piece))
        if is_loader and not folders and (match := _DEFAULT_FOLDERS.search(piece)):
            folders = tuple(each.decode().rstrip("/") for each in match[0].split(b"\0") if each)
    opens = tuple(sorted(each.decode("ascii", "replace") for each in found))
    return _Constants(opens, tuple(sorted(architectures, key=gpu_code.capability_order)), folders)


def is_candidate(head: bytes) -> bool:
    """Whether a file that begins with these bytes is an ELF file that the loader of envbuild's images can load."""
    return elf.is_elf(head) and head[_ABI] in _ABIS


def is_for_other_processor(head: bytes) -> bool:
    """Whether a file that begins with these bytes is an ELF file for another processor. The loader ignores such a file. If it
    finds any other file that it cannot load, it stops."""
    return head.startswith(b"\x7fELF") and not elf.is_elf(head)


def pieces(stream: IO[bytes], size: int) -> Iterator[bytes]:
    """Yield the rest of a stream, in pieces of at most ``size`` bytes."""
    while piece := stream.read(size):
        yield piece
