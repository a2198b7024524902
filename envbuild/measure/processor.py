"""Find the instruction sets that a library uses whenever it is loaded.

When a library is loaded, the dynamic loader always calls its initialisers. So the processor must have all instructions in them,
and in the functions of the library that they call or jump to directly. Other functions may be called only on processors that
have their instructions: many libraries choose such functions while a program runs. The file does not show whether these
functions are called, so they are not examined.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterator, Sequence
from typing import IO, Any, NamedTuple

from envbuild.measure import elf
from envbuild.measure.damage import DamagedError

_RELA, _RELATIVE = struct.Struct("<QQq"), 8
_MOST_RELOCATIONS, _MOST_FUNCTIONS, _MOST_CODE = 20_000_000, 50_000, 4096
_MOST_CALLS, _MOST_FOLLOWED = 4, 100_000  # calls within calls; instructions in functions that are not initialisers
_PIECE = 24 * 2**16
_EXECUTABLE, _NOBITS = 4, "SHT_NOBITS"
# Instruction sets that the first x86-64 processors lack: https://gitlab.com/x86-psABIs/x86-64-ABI, "Micro-Architecture Levels".
_BEYOND = frozenset(
    {"SSE3", "SSSE3", "SSE4_1", "SSE4_2", "SSE4A", "POPCNT", "CMPXCHG16B", "BMI1", "BMI2", "F16C", "FMA", "LZCNT"}
)
_BEYOND_FAMILIES = ("AVX", "AMX", "XOP", "FMA4")


class Processor(NamedTuple):
    """The instruction sets that are used by the initialisers of a library and by the functions that they call directly.

    ``certain`` ones are used before the first conditional branch of a function, ``likely`` ones only after such a branch.
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
    found = _Found(stream, code)
    count = sum(found.add(address) for address in initialisers(stream, sections))
    found.follow()
    return Processor(tuple(sorted(found.certain)), tuple(sorted(found.likely - found.certain)), count)


class _Found:
    """The instruction sets that are used by initialisers and by the functions that they call or jump to."""

    def __init__(self, stream: IO[bytes], code: Sequence[_Code]) -> None:
        self.certain: set[str] = set()
        self.likely: set[str] = set()
        self._stream, self._code = stream, code
        self._seen: set[tuple[int, bool]] = set()
        self._next: list[tuple[int, bool]] = []

    def add(self, address: int) -> bool:
        """Add the instruction sets of an initialiser. Return whether it is in the file."""
        return self._add(address, is_certain=True) is not None

    def follow(self) -> None:
        """Add the instruction sets of the functions that initialisers call, then of those that these functions call, and so on,
        until the limits are reached."""
        left = _MOST_FOLLOWED
        for _ in range(_MOST_CALLS):
            todo, self._next = self._next, []
            for address, is_certain in todo:
                left -= self._add(address, is_certain=is_certain) or 0
                if left < 0:
                    return

    def _add(self, address: int, *, is_certain: bool) -> int | None:
        """Add the instruction sets of the function at ``address``. Return the number of its instructions that were read, or
        None if no code is there."""
        if not self._seen.isdisjoint({(address, is_certain), (address, True)}):
            return 0
        self._seen.add((address, is_certain))
        section = next((each for each in self._code if each.address <= address < each.address + each.size), None)
        if section is None:
            return None
        begin = address - section.address
        self._stream.seek(section.offset + begin)
        count = 0
        for step in _steps(self._stream.read(min(_MOST_CODE, section.size - begin)), address, is_certain=is_certain):
            count += 1
            (self.certain if step.is_certain else self.likely).update(step.sets)
            if step.target:
                self._next.append((step.target, step.is_certain))
        return count


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


class _Step(NamedTuple):
    """An instruction of a function. ``sets`` are the instruction sets to which it belongs. ``target`` is the address that it
    calls or jumps to, or 0. ``is_certain`` is true if the function always reaches the instruction."""

    sets: tuple[str, ...]
    target: int
    is_certain: bool


def _steps(code: bytes, address: int, *, is_certain: bool) -> Iterator[_Step]:
    """Yield the instructions of a function, up to its end or its first unconditional jump. Only the instructions before the
    first conditional branch are certain to be reached."""
    from iced_x86 import Decoder, FlowControl, Mnemonic

    ends = (FlowControl.RETURN, FlowControl.UNCONDITIONAL_BRANCH, FlowControl.INDIRECT_BRANCH, FlowControl.EXCEPTION)
    leads = (FlowControl.UNCONDITIONAL_BRANCH, FlowControl.CALL)
    names = _names()
    for instruction in Decoder(64, code, ip=address):
        if instruction.is_invalid:
            return
        # Skip TZCNT, because compilers emit it for older processors, too. These processors run TZCNT as BSF, which has another
        # result only for the operand 0.
        features = instruction.cpuid_features() if instruction.mnemonic != Mnemonic.TZCNT else ()
        found = (names.get(feature, "") for feature in features)
        sets = tuple(name.lower() for name in found if name in _BEYOND or name.startswith(_BEYOND_FAMILIES))
        flow = instruction.flow_control
        yield _Step(sets, instruction.near_branch_target if flow in leads else 0, is_certain)
        if flow in ends:
            return
        if flow == FlowControl.CONDITIONAL_BRANCH:
            is_certain = False


@functools.cache
def _names() -> dict[int, str]:
    from iced_x86 import CpuidFeature

    return {value: name for name, value in vars(CpuidFeature).items() if isinstance(value, int)}
