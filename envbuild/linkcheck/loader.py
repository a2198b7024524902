"""Find libraries as glibc's dynamic loader does: https://man7.org/linux/man-pages/man8/ld.so.8.html."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from envbuild.linkcheck import loader_cache
from envbuild.linkcheck.model import ElfFacts
from envbuild.linkcheck.tree import Tree

LOADER = "/lib64/ld-linux-x86-64.so.2"
# The default folders of Debian's loader, for an image without a loader.
DEFAULT_FOLDERS = ("/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib", "/usr/lib")


@dataclass(frozen=True, kw_only=True, slots=True)
class Loaded:
    """A loaded file: the path at which it was found, its path without links, its facts, and the object that needed it."""

    path: str
    real: str
    facts: ElfFacts
    by: Loaded | None = None


class Missing(NamedTuple):
    """A library that the object ``by`` needs and the loader does not get. If the search ends at a file that is no library, the
    loader stops there, and ``refused`` is the path of this file."""

    by: Loaded
    name: str
    refused: str = ""


class _Refused(NamedTuple):
    path: str


@dataclass(kw_only=True, slots=True)
class Process:
    """Everything that the start of one program (or the opening of one library) loads. ``names`` maps each known name to its
    file. ``ignored`` are preloads that the loader cannot load: it prints a warning and goes on."""

    names: dict[str, Loaded] = field(default_factory=dict)
    order: list[Loaded] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)
    ignored: list[Missing] = field(default_factory=list)
    found: dict[tuple[str, str], Loaded] = field(default_factory=dict)


class Loader:
    """Finds the libraries of objects in a tree."""

    def __init__(self, tree: Tree, environment: Mapping[str, str]) -> None:
        self._tree = tree
        self._library_path = [each for each in re.split("[:;]", environment.get("LD_LIBRARY_PATH", "")) if each]
        cache = tree.texts.get("/etc/ld.so.cache")
        self.cache = loader_cache.read(cache.encode("latin-1")) if cache is not None else None
        self._in_folder: dict[tuple[str, str], tuple[str, str] | _Refused | None] = {}
        self._started: dict[str | None, tuple[Process, Loaded | None]] = {}
        preload = re.sub("#.*", "", tree.texts.get("/etc/ld.so.preload", ""))
        self._preloads = re.sub("[:\\s]+", " ", f"{environment.get('LD_PRELOAD', '')} {preload}").split()
        loader = tree.facts(tree.real(LOADER) or "")
        self.defaults = (loader.default_folders if loader else ()) or DEFAULT_FOLDERS
        self._lib = self.defaults[0].lstrip("/")  # the value of $LIB, such as lib64

    def load(self, path: str, *, program: str | None, held: Mapping[str, str]) -> Process | None:
        """Load the object at ``path`` into the process of ``program``, which is loaded first.

        ``held`` has libraries (name → path) that the process may have loaded before. They count only if the search finds
        nothing. Returns None if no loadable object is at ``path``.
        """
        begun, main = self._begun(program)
        process = Process(
            names=dict(begun.names),
            order=list(begun.order),
            missing=list(begun.missing),
            ignored=list(begun.ignored),
            found=dict(begun.found),
        )
        root = self._at(path, None)
        if not isinstance(root, Loaded):
            return None
        if main is None:
            self._fill(process, root, root, held, is_start=True)
        elif not any(each.real == root.real for each in process.order):
            self._fill(process, root, main, held)
        return process

    def _begun(self, program: str | None) -> tuple[Process, Loaded | None]:
        """The process after the start of ``program``, and the loaded program. For a program, ``$ORIGIN`` is the folder of the
        file without links."""
        if program not in self._started:
            process, main = Process(), self._at(self._tree.real(program) or "", None) if program else None
            if isinstance(main, Loaded):
                self._fill(process, main, main, {}, is_start=True)
            self._started[program] = (process, main if isinstance(main, Loaded) else None)
        return self._started[program]

    def _fill(self, process: Process, first: Loaded, main: Loaded, held: Mapping[str, str], *, is_start: bool = False) -> None:
        begin = len(process.order)
        self._register(process, first, first.path)
        if is_start:
            self._register_interpreter(process, first)
            for name in self._preloads:
                self._preload(process, name, first, held)
        while begin < len(process.order):
            loaded = process.order[begin]
            begin += 1
            for name in loaded.facts.needed:
                self._need(process, name, loaded, main, held)

    def _register_interpreter(self, process: Process, program: Loaded) -> None:
        """Register the dynamic loader. The kernel has put it into the process before any library is searched, so a library that
        needs it gets it without a search."""
        path = program.facts.interpreter or LOADER
        found = self._at(path, None)
        if isinstance(found, Loaded) and found.real != program.real:
            self._register(process, found, path)

    def _preload(self, process: Process, name: str, program: Loaded, held: Mapping[str, str]) -> None:
        found = self._search(name, program, program)
        if isinstance(found, Loaded):
            self._need(process, name, program, program, held)
        else:
            process.ignored.append(Missing(program, name, found.path if found else ""))

    def _need(self, process: Process, name: str, by: Loaded, main: Loaded, held: Mapping[str, str]) -> None:
        known = process.names.get(name)
        if known is None:
            found = self._search(name, by, main)
            if not isinstance(found, Loaded) and name in held:
                found = self._at(held[name], by)
            if not isinstance(found, Loaded):
                process.missing.append(Missing(by, name, found.path if found else ""))
                return
            known = next((each for each in process.order if each.real == found.real), found)
            self._register(process, known, name)
        process.found[by.real, name] = known

    def _register(self, process: Process, loaded: Loaded, name: str) -> None:
        process.names.setdefault(name, loaded)
        if loaded.facts.soname:
            process.names.setdefault(loaded.facts.soname, loaded)
        if not any(each is loaded for each in process.order):
            process.order.append(loaded)

    def _search(self, name: str, by: Loaded, main: Loaded) -> Loaded | _Refused | None:
        """Search for a library that is not loaded yet. The object ``by`` needs it, in the process of the program ``main``."""
        if "/" in name:
            place = self._expanded(name, by)
            return self._at(place if place.startswith("/") else f"/{place}", by)
        library_path = (self._expanded(each, main) for each in self._library_path)
        for folder in (*self._run_paths(by, main), *library_path, *self._own(by.facts.runpath, by)):
            if found := self._try(folder, name, by):
                return found
        if (cached := self._cached(name, by)) and (found := self._at(cached, by)):
            return found
        folders = () if by.facts.has_no_default_folders else self.defaults
        return next((found for folder in folders if (found := self._try(folder, name, by))), None)

    def _cached(self, name: str, by: Loaded) -> str:
        """The path in ``/etc/ld.so.cache``; empty if there is none that counts for ``by``."""
        path = (self.cache or {}).get(name, "")
        is_default = any(path.startswith(f"{folder}/") for folder in self.defaults)
        return "" if is_default and by.facts.has_no_default_folders else path

    def _try(self, folder: str, name: str, by: Loaded) -> Loaded | _Refused | None:
        key = (folder, name)
        if key not in self._in_folder:
            found = self._at(posixpath.join(folder, name), None)
            self._in_folder[key] = (found.path, found.real) if isinstance(found, Loaded) else found
        known = self._in_folder[key]
        return self._loaded(*known, by) if known is not None and not isinstance(known, _Refused) else known

    def _short(self, folder: str) -> str:
        """The path of a folder without ``..``. If the path leads through links, this may be another folder; then the path
        stays as it is."""
        short = posixpath.normpath(folder)
        return short if self._tree.folder(short) == self._tree.folder(folder) else folder

    def _at(self, path: str, by: Loaded | None) -> Loaded | _Refused | None:
        real = self._tree.real(path)
        if real is None:  # the loader opens a folder, and stops because it cannot read it; at a loop of links, it stops, too
            return _Refused(path) if self._tree.is_folder(path) or self._tree.is_loop(path) else None
        if self._tree.is_for_other_processor(real):
            return None
        facts, (folder, name) = self._tree.facts(real), posixpath.split(path)
        path = posixpath.join(self._short(folder), name)
        return self._loaded(path, real, by) if facts is not None and not facts.damage else _Refused(path)

    def _loaded(self, path: str, real: str, by: Loaded | None) -> Loaded:
        facts = self._tree.facts(real)
        assert facts is not None
        return Loaded(path=path, real=real, facts=facts, by=by)

    def _run_paths(self, by: Loaded, main: Loaded) -> Iterable[str]:
        """The RPATHs of the object, of the objects that loaded it, and of the program. If the object has a RUNPATH, there are
        none. The RPATH of any other object is ignored only if this other object has a RUNPATH."""
        if by.facts.runpath:
            return
        at: Loaded | None = by
        while at is not None:
            if not at.facts.runpath:
                yield from self._own(at.facts.rpath, at)
            at = at.by
        if not main.facts.runpath:
            yield from self._own(main.facts.rpath, main)

    def _own(self, paths: Sequence[str], of: Loaded) -> Iterable[str]:
        return (self._expanded(path, of) for path in paths)

    def _expanded(self, text: str, of: Loaded) -> str:
        """Replace the variables of a search path. ``$ORIGIN`` is the folder in which the loader found the object."""
        for name, value in (("ORIGIN", posixpath.dirname(of.path)), ("LIB", self._lib), ("PLATFORM", "x86_64")):
            text = text.replace(f"${{{name}}}", value).replace(f"${name}", value)
        return text
