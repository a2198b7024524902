"""Find the instruction sets that a library uses whenever it is loaded.

When a library is loaded, the dynamic loader always calls its initialisers. So the processor must have all instructions in them.
Other functions may be called only on processors that have their instructions: many libraries choose such functions while a
program runs. The file does not show whether these functions are called, so they are not examined.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import IO, Any, NamedTuple

from envbuild.measure import elf
from envbuild.measure.damage import DamagedError

_RELA, _RELATIVE = struct.Struct("<QQq"), 8
_MOST_RELOCATIONS, _MOST_FUNCTIONS, _MOST_CODE = 20_000_000, 50_000, 4096
_PIECE = 24 * 2**16
_EXECUTABLE, _NOBITS = 4, "SHT_NOBITS"
# Instruction sets that the first x86-64 processors lack: https://gitlab.com/x86-psABIs/x86-64-ABI, "Micro-Architecture Levels".
_BEYOND = frozenset(
    {"SSE3", "SSSE3", "SSE4_1", "SSE4_2", "SSE4A", "POPCNT", "CMPXCHG16B", "BMI1", "BMI2", "F16C", "FMA", "LZCNT"}
)
_BEYOND_FAMILIES = ("AVX", "AMX", "XOP", "FMA4")


class Processor(NamedTuple):
    """The instruction sets that the initialisers of a library use.

    ``certain`` ones are used before the first conditional branch of an initialiser, ``likely`` ones only after such a branch.
    ``functions`` is the number of initialisers that were read; 0 means that nothing is known.
    """

    certain: tuple[str, ...]
    likely: tuple[str, ...]
    functions: int


UNKNOWN = Processor((), (), 0)


class _Code(NamedTuple):
    address: int
    offset: int
    size: int


def read(stream: IO[bytes], size: int) -> Processor:
    """Read the instruction sets that the initialisers of a library use. The sections of the library must have been checked
    before. Raises :class:`DamagedError`."""
    from elftools.elf.elffile import ELFFile

    stream.seek(0)
    limited: Any = elf.Limited(stream, size)
    try:
        return _read(stream, ELFFile(limited))
    except (DamagedError, OSError):
        raise
    except Exception as error:  # the file is untrusted: the parser may raise any error
        raise DamagedError(f"is a malformed ELF file ({type(error).__name__}: {str(error)[:200]})") from error


def _read(stream: IO[bytes], parsed: Any) -> Processor:
    sections = [each for each in parsed.iter_sections() if str(each["sh_type"]) != _NOBITS]
    code = [
        _Code(int(each["sh_addr"]), int(each["sh_offset"]), int(each["sh_size"]))
        for each in sections
        if int(each["sh_flags"]) & _EXECUTABLE
    ]
    certain: set[str] = set()
    likely: set[str] = set()
    count = 0
    for address in initialisers(stream, sections):
        found = next((each for each in code if each.address <= address < each.address + each.size), None)
        if found is None:
            continue
        count += 1
        begin = address - found.address
        stream.seek(found.offset + begin)
        for name, is_certain in _instruction_sets(stream.read(min(_MOST_CODE, found.size - begin)), address):
            (certain if is_certain else likely).add(name)
    return Processor(tuple(sorted(certain)), tuple(sorted(likely - certain)), count)


def initialisers(stream: IO[bytes], sections: list[Any]) -> list[int]:
    """The addresses of the initialisers, which the loader calls. In a position-independent file, the relocations contain these
    addresses."""
    found: dict[int, int] = {}
    for section in sections:
        if str(section["sh_type"]) == "SHT_INIT_ARRAY":
            first, size = int(section["sh_addr"]), min(int(section["sh_size"]), _MOST_FUNCTIONS * 8) // 8 * 8
            stream.seek(int(section["sh_offset"]))
            values = struct.unpack(f"<{size // 8}Q", stream.read(size))
            found |= dict(zip(range(first, first + size, 8), values, strict=True))
    if found:
        for section in sections:
            if str(section["sh_type"]) == "SHT_RELA":
                for place, kind, value in _relocations(stream, section):
                    if kind & 0xFFFFFFFF == _RELATIVE and place in found:
                        found[place] = value
    return sorted({address for address in found.values() if address > 0})


def _relocations(stream: IO[bytes], section: Any) -> Iterator[tuple[int, int, int]]:
    begin, size = int(section["sh_offset"]), int(section["sh_size"])
    size = min(size, _MOST_RELOCATIONS * _RELA.size) // _RELA.size * _RELA.size
    for at in range(begin, begin + size, _PIECE):
        stream.seek(at)
        yield from _RELA.iter_unpack(stream.read(min(_PIECE, begin + size - at)))


def _instruction_sets(code: bytes, address: int) -> Iterator[tuple[str, bool]]:
    """Yield the instruction sets that a function uses before its end or its first unconditional jump. Each instruction set
    comes with a flag. The flag is true if no conditional branch precedes the instruction."""
    from iced_x86 import Decoder, FlowControl, Mnemonic

    ends = (FlowControl.RETURN, FlowControl.UNCONDITIONAL_BRANCH, FlowControl.INDIRECT_BRANCH, FlowControl.EXCEPTION)
    names = _names()
    is_certain = True
    for instruction in Decoder(64, code, ip=address):
        if instruction.is_invalid:
            return
        # Skip TZCNT, because compilers emit it for older processors, too. These processors run TZCNT as BSF, which has another
        # result only for the operand 0.
        for feature in instruction.cpuid_features() if instruction.mnemonic != Mnemonic.TZCNT else ():
            name = names.get(feature, "")
            if name in _BEYOND or name.startswith(_BEYOND_FAMILIES):
                yield name.lower(), is_certain
        if instruction.flow_control in ends:
            return
        if instruction.flow_control == FlowControl.CONDITIONAL_BRANCH:
            is_certain = False


def _names() -> dict[int, str]:
    from iced_x86 import CpuidFeature

    return {value: name for name, value in vars(CpuidFeature).items() if isinstance(value, int)}
