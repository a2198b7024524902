"""Find libraries as glibc's dynamic loader does: https://man7.org/linux/man-pages/man8/ld.so.8.html."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from envbuild.linkcheck import loader_cache
from envbuild.linkcheck.model import ElfFacts
from envbuild.linkcheck.tree import Tree

_DEFAULTS = ("/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib")


@dataclass(frozen=True, kw_only=True, slots=True)
class Loaded:
    """A loaded file: the path at which it was found, its path without links, its facts, and the object that needed it."""

    path: str
    real: str
    facts: ElfFacts
    by: Loaded | None = None


@dataclass(kw_only=True, slots=True)
class Process:
    """Everything that the start of one program (or the opening of one library) loads. ``names`` maps each known name to its
    file."""

    names: dict[str, Loaded] = field(default_factory=dict)
    order: list[Loaded] = field(default_factory=list)
    missing: list[tuple[Loaded, str]] = field(default_factory=list)
    found: dict[tuple[str, str], Loaded] = field(default_factory=dict)


class Loader:
    """Finds the libraries of objects in a tree."""

    def __init__(self, tree: Tree, environment: Mapping[str, str]) -> None:
        self._tree = tree
        self._library_path = [each or "/" for each in environment.get("LD_LIBRARY_PATH", "").split(":") if each]
        cache = tree.texts.get("/etc/ld.so.cache")
        self.cache = loader_cache.read(cache.encode("latin-1")) if cache is not None else None
        self._in_folder: dict[tuple[str, str], tuple[str, str] | None] = {}
        self._started: dict[str | None, tuple[Process, Loaded | None]] = {}
        preload = tree.texts.get("/etc/ld.so.preload", "")
        self.preloads = [*environment.get("LD_PRELOAD", "").replace(":", " ").split(), *preload.split()]

    def load(self, path: str, *, program: str | None, held: Mapping[str, str]) -> Process | None:
        """Load the object at ``path`` into the process of ``program``, which is loaded first.

        ``held`` has libraries (name → path) that the process may have loaded before. They count only if the search finds
        nothing. Returns None if no loadable object is at ``path``.
        """
        begun, main = self._begun(program)
        process = Process(
            names=dict(begun.names), order=list(begun.order), missing=list(begun.missing), found=dict(begun.found)
        )
        root = self._at(path, None)
        if root is None:
            return None
        if not any(each.real == root.real for each in process.order):
            self._fill(process, root, main, held)
        return process

    def _begun(self, program: str | None) -> tuple[Process, Loaded | None]:
        """The process after the start of ``program``, and the loaded program."""
        if program not in self._started:
            process, main = Process(), self._at(program, None) if program else None
            if main is not None:
                self._fill(process, main, main, {})
            for name in self.preloads:
                self._need(process, name, main, main, {})
            self._started[program] = (process, main)
        return self._started[program]

    def _fill(self, process: Process, first: Loaded, main: Loaded | None, held: Mapping[str, str]) -> None:
        begin = len(process.order)
        self._register(process, first, posixpath.basename(first.path))
        while begin < len(process.order):
            loaded = process.order[begin]
            begin += 1
            for name in loaded.facts.needed:
                self._need(process, name, loaded, main, held)

    def _need(self, process: Process, name: str, by: Loaded | None, main: Loaded | None, held: Mapping[str, str]) -> None:
        known = process.names.get(name)
        if known is None:
            known = self.search(name, by, main)
            if known is None and name in held:
                known = self._at(held[name], by)
            if known is None:
                if by is not None:
                    process.missing.append((by, name))
                return
            known = next((each for each in process.order if each.real == known.real), known)
            self._register(process, known, name)
        if by is not None:
            process.found[by.real, name] = known

    def _register(self, process: Process, loaded: Loaded, name: str) -> None:
        process.names.setdefault(name, loaded)
        if loaded.facts.soname:
            process.names.setdefault(loaded.facts.soname, loaded)
        if not any(each is loaded for each in process.order):
            process.order.append(loaded)

    def search(self, name: str, by: Loaded | None, main: Loaded | None) -> Loaded | None:
        """Search for a library that is not loaded yet. The object ``by`` needs it, in the process of the program ``main``."""
        if "/" in name:
            place = _expanded(name, by)
            return self._at(place if place.startswith("/") else f"/{place}", by)
        for folder in (*_run_paths(by, main), *self._library_path, *(_own(by.facts.runpath, by) if by else ())):
            if found := self._try(folder, name, by):
                return found
        if self.cache and name in self.cache and (found := self._at(self.cache[name], by)):
            return found
        return next((found for folder in _DEFAULTS if (found := self._try(folder, name, by))), None)

    def _try(self, folder: str, name: str, by: Loaded | None) -> Loaded | None:
        key = (folder, name)
        if key not in self._in_folder:
            path = posixpath.join(posixpath.normpath(folder), name)
            real = self._tree.real(path)
            usable = real is not None and _is_loadable(self._tree.facts(real))
            self._in_folder[key] = (path, real) if usable and real is not None else None
        found = self._in_folder[key]
        return self._loaded(*found, by) if found else None

    def _at(self, path: str, by: Loaded | None) -> Loaded | None:
        real = self._tree.real(posixpath.normpath(path))
        return self._loaded(path, real, by) if real is not None and _is_loadable(self._tree.facts(real)) else None

    def _loaded(self, path: str, real: str, by: Loaded | None) -> Loaded:
        facts = self._tree.facts(real)
        assert facts is not None
        return Loaded(path=path, real=real, facts=facts, by=by)


def _is_loadable(facts: ElfFacts | None) -> bool:
    return facts is not None and not facts.damage


def _run_paths(by: Loaded | None, main: Loaded | None) -> Iterable[str]:
    """The RPATHs of the object, of the objects that loaded it, and of the program. If the object has a RUNPATH, there are none.
    The RPATH of any other object is ignored only if this other object has a RUNPATH."""
    if by is not None and by.facts.runpath:
        return
    at = by
    while at is not None:
        if not at.facts.runpath:
            yield from _own(at.facts.rpath, at)
        at = at.by
    if main is not None and not main.facts.runpath:
        yield from _own(main.facts.rpath, main)


def _own(paths: Sequence[str], of: Loaded) -> Iterable[str]:
    return (_expanded(path, of) for path in paths)


def _expanded(text: str, of: Loaded | None) -> str:
    """Replace the variables of a search path. ``$ORIGIN`` is the folder in which the loader found the object."""
    origin = posixpath.dirname(of.path) if of is not None else "/"
    for name, value in (("ORIGIN", origin), ("LIB", "lib/x86_64-linux-gnu"), ("PLATFORM", "x86_64")):
        text = text.replace(f"${{{name}}}", value).replace(f"${name}", value)
    return text
