"""Read the symbols of an ELF file: those that the rules look for, and those with versions."""

from __future__ import annotations

import itertools
import re
import struct
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from envbuild.linkcheck.dynamic import Dynamic, Symbols, Versions
from envbuild.measure.damage import DamagedError

_SYMBOL = struct.Struct("<IBBHQQ")
_GLOBAL, _WEAK, _UNIQUE = 1, 2, 10
_NUMBER, _IS_HIDDEN = 0x7FFF, 0x8000
_MOST_TEXT = 2**26
_IS_CPP = b"_Z"


class ElfSymbols(NamedTuple):
    """The symbols of a file, as :class:`~envbuild.linkcheck.model.ElfFacts` describes them."""

    undefined: tuple[str, ...] = ()
    exported: tuple[str, ...] = ()
    needed: Mapping[str, Mapping[str, str]] = {}
    offered: Mapping[str, str] = {}
    are_unknown: bool = False


def read(dynamic: Dynamic, wanted: re.Pattern[bytes], table: Symbols | None = None) -> ElfSymbols:
    """Read the symbols of a file. ``wanted`` matches the beginnings of those that the rules look for. ``table`` are the symbols
    of a section, if the file has one; otherwise the hash table leads to them. They are unknown if the tables are damaged."""
    try:
        symbols = table or dynamic.symbols()
        return _read(symbols, wanted, dynamic.versions(len(symbols.table) // _SYMBOL.size))
    except (DamagedError, ValueError, struct.error):
        return ElfSymbols(are_unknown=True)


def _read(symbols: Symbols, wanted: re.Pattern[bytes], versions: Versions) -> ElfSymbols:
    undefined, exported = set[str](), set[str]()
    needed: dict[str, dict[str, set[str]]] = {}
    offered: dict[str, set[str]] = {}
    left = _MOST_TEXT
    for label, is_defined, number, is_wanted in _relevant(symbols, wanted, versions):
        if is_wanted:
            (exported if is_defined else undefined).add(label)
        needs = versions.needed.get(number & _NUMBER)
        if " " in label:
            continue
        if not is_defined and needs is not None:
            needed.setdefault(needs.library, {}).setdefault(needs.name, set()).add(label)
        elif is_defined and ((version := _version(versions, number)) or not number & _IS_HIDDEN):
            offered.setdefault(version, set()).add(label)
        left -= len(label)
        if left < 0:
            raise DamagedError("has too many symbols")
    return ElfSymbols(
        undefined=tuple(sorted(undefined)),
        exported=tuple(sorted(exported)),
        needed={library: _joined(of_version) for library, of_version in needed.items()},
        offered=_joined(offered),
    )


def _relevant(symbols: Symbols, wanted: re.Pattern[bytes], versions: Versions) -> Iterator[tuple[str, bool, int, bool]]:
    """The symbols that are facts: name, whether the file defines the symbol, number of its version, whether it is wanted.

    pyelftools is not used for this: it reads one symbol at a time, which takes a minute for a large library.
    """
    match, text = wanted.match, symbols.names
    for (at, info, _, place, _, _), number in zip(_SYMBOL.iter_unpack(symbols.table), _numbers(versions), strict=False):
        bind = info >> 4
        if bind not in (_GLOBAL, _WEAK, _UNIQUE) or (not place and bind != _GLOBAL):
            continue
        # Versions of C++ symbols are rare. So a file without versions of its own is taken to define none that has a version
        # elsewhere: frameworks define hundreds of thousands of such symbols.
        is_wanted = match(text, at) is not None
        is_kept = (versions.defined or not text.startswith(_IS_CPP, at)) if place else number & _NUMBER in versions.needed
        if is_wanted or is_kept:
            yield text[at : text.index(b"\0", at)].decode("ascii", "replace"), bool(place), number, is_wanted


def _numbers(versions: Versions) -> Iterator[int]:
    return iter(versions.numbers) if versions.numbers else itertools.repeat(1)


def _version(versions: Versions, number: int) -> str:
    """The version of a definition; empty if it has none. A program has copies of the variables of libraries, whose versions are
    among those that it needs."""
    number &= _NUMBER
    if number in versions.needed:
        return versions.needed[number].name
    return "" if number == versions.base else versions.defined.get(number, "")


def _joined(of_version: Mapping[str, set[str]]) -> dict[str, str]:
    return {version: " ".join(sorted(names)) for version, names in of_version.items()}
