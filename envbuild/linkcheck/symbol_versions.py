"""Find the symbols that an object needs in a version, and that no loaded object has in this version."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from envbuild.linkcheck.loader import Loaded, Process

_NO_VERSION = ""


class Lacking(NamedTuple):
    """The symbols of one version that are missing."""

    version: str
    symbols: Sequence[str]


class SymbolVersions:
    """Compares the symbols that objects need with those that libraries export. Each list of symbols is split only once, because
    thousands of objects load the same libraries."""

    def __init__(self) -> None:
        self._exports: dict[tuple[str, str], frozenset[str]] = {}
        self._not_in: dict[tuple[str, str, str], tuple[Lacking, ...]] = {}

    def lacking(self, by: Loaded, library: str, found: Loaded, process: Process) -> Iterator[Lacking]:
        """The symbols that ``by`` needs from ``library``, for which the loader has ``found`` a file, and that no object of the
        process has. The loader accepts a symbol with the right version of any object, and a symbol without a version.

        Left out are versions that the file does not define at all, and symbols that the rules look for: other checks find them.
        """
        key = (by.real, library, found.real)
        if key not in self._not_in:
            self._not_in[key] = tuple(self._compared(by, library, found))
        for version, symbols in self._not_in[key]:
            left = [each for each in symbols if not self._has(process, each, version)]
            if left:
                yield Lacking(version, left)

    def _compared(self, by: Loaded, library: str, found: Loaded) -> Iterator[Lacking]:
        if found.facts.hides_symbols:
            return
        for version, names in by.facts.needed_symbols.get(library, {}).items():
            if version in found.facts.defines:
                absent = set(names.split(" ")) - self._of(found, version) - self._of(found, _NO_VERSION)
                if absent := absent.difference(by.facts.wanted):
                    yield Lacking(version, sorted(absent))

    def _has(self, process: Process, symbol: str, version: str) -> bool:
        return any(symbol in self._of(each, kind) for kind in (version, _NO_VERSION) for each in process.order)

    def _of(self, loaded: Loaded, version: str) -> frozenset[str]:
        key = (loaded.real, version)
        if key not in self._exports:
            self._exports[key] = frozenset(filter(None, loaded.facts.offered_symbols.get(version, "").split(" ")))
        return self._exports[key]
