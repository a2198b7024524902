"""Explain why a library, version or symbol is missing, and which package would provide it."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from envbuild.linkcheck.loader import Loaded, Loader, Missing, Process
from envbuild.linkcheck.model import ElfFacts, Gap
from envbuild.linkcheck.rules import WITH_NUMBER_OF_CUDA, LinkRules
from envbuild.linkcheck.tree import Tree

_SHOWN = 3
_HWCAPS = "/glibc-hwcaps/"  # in such a folder, the loader finds libraries only if the processor is new enough
_STEM = re.compile(r"(?P<stem>.+?\.so)(?P<version>[.\d]*)")


class Causes:
    """Makes a :class:`Gap` for each library, version and symbol that a process lacks."""

    def __init__(
        self, tree: Tree, loader: Loader, objects: Mapping[str, ElfFacts], rules: LinkRules, package_of: Callable[[str], str]
    ) -> None:
        self._tree = tree
        self._loader = loader
        self._objects = objects
        self._rules = rules
        self._package_of = package_of
        self._cuda_of_image = self._only_cuda()
        self._links: dict[str, list[str]] = {}
        for path in tree.paths():
            if ".so" in posixpath.basename(path) and path not in objects and tree.real(path) in objects:
                self._links.setdefault(posixpath.basename(path), []).append(path)
        self._by_name: dict[str, list[str]] = {}
        for path, facts in objects.items():
            for name in {facts.soname, posixpath.basename(path)} - {""}:
                self._by_name.setdefault(name, []).append(path)

    def library(self, missing: Missing) -> Gap:
        """The gap for a needed library that the loader does not find, or refuses."""
        by, name, refused = missing
        places = self._places(name)
        if refused:
            cause = f"the loader finds {refused}, which it cannot load, and stops there"
            remedy = f"remove {refused}, or replace it by the library"
        else:
            cause, remedy = f"not found: {self._why_absent(by, name, places)}", self._remedy(by, name, places)
        return Gap(kind="library", object=by.real, needs=name, cause=cause, remedy=remedy)

    def ignored(self, missing: Missing) -> Gap:
        """The excused gap for a library of LD_PRELOAD that the loader cannot load."""
        cause = f"the loader finds {missing.refused}, which it cannot load" if missing.refused else self.library(missing).cause
        excuse = "the loader prints a warning about a library of LD_PRELOAD that it cannot load, and goes on"
        remedy = "remove it from LD_PRELOAD or /etc/ld.so.preload"
        return Gap(kind="library", object=missing.by.real, needs=missing.name, cause=cause, remedy=remedy, excuse=excuse)

    def _places(self, name: str) -> list[str]:
        """The paths of the image's files with this name; if there are none, the paths of links with this name."""
        files = [path for path in self._by_name.get(name, []) if posixpath.basename(path) == name]
        return files or sorted(self._links.get(name, []))

    def _is_left_out(self, by: Loaded, places: Sequence[str]) -> bool:
        """Whether the loader leaves out the folder of the library only because ``by`` was linked in this way."""
        return by.facts.has_no_default_folders and any(posixpath.dirname(path) in self._loader.defaults for path in places)

    def _why_absent(self, by: Loaded, name: str, places: Sequence[str]) -> str:
        known, cached = self._by_name.get(name, []), (self._loader.cache or {}).get(name, "")
        if cached and self._tree.real(cached) is None:
            return f"/etc/ld.so.cache names {cached}, which the image lacks"
        if places and all(_HWCAPS in path for path in places):
            return f"the image has it only for newer processors, as {_list(places)}"
        if self._is_left_out(by, places):
            where = f"the image has it as {_list(places)}, but the object was linked with `-z nodefaultlib`"
            return f"{where}, so the loader searches no default folder for it"
        if places:
            why = f"the image has it as {_list(places)}, which is in no folder that the loader searches for this object"
            is_uncached = self._loader.cache is not None and not cached
            return f"{why}, and not in /etc/ld.so.cache" if is_uncached else why
        if known:
            return f"no file or link has this name, but the image has the library as {_list(known)}"
        others = self._other_versions(name)
        return f"the image has another version instead: {_list(others)}" if others else "no file of the image has this name"

    def version(self, by: Loaded, version: str, other: Loaded) -> Gap:
        """Describe a missing symbol version: ``by`` needs it, and ``other``, the library that the loader chooses, lacks it."""
        kind = version.partition("_")[0]
        highest = _highest(other.facts.defines, kind)
        cause = f"{other.path} has versions up to {highest}" if highest else f"{other.path} does not define it"
        name = other.facts.soname or posixpath.basename(other.real)
        better = [path for path in self._by_name.get(name, []) if path != other.real and version in self._objects[path].defines]
        remedy = ""
        if better:
            cause += f"; {_list(better)} has it, but the loader does not take that file"
            remedy = f"remove {other.real}, or make the loader search the folder of the other file first"
        elif kind == "GLIBC":
            number = version.partition("_")[2]
            remedy = f"a system with glibc {number} or newer, or a build of the package for an older glibc"
        elif package := self._package_of(name):
            remedy = f"a newer {package}"
        return Gap(kind="version", object=by.real, needs=f"{name}: {version}", cause=cause, remedy=remedy)

    def unlinked_version(self, by: Loaded, version: str, library: str) -> Gap:
        """Describe a version of symbols that ``by`` needs from a ``library`` that neither it nor another loaded object
        needs."""
        cause = f"the object is not linked with {library}, and no other library has loaded it, so the loader stops"
        remedy = f"add {library} to the needed libraries of the object again, or load it before"
        return Gap(kind="version", object=by.real, needs=f"{library}: {version}", cause=cause, remedy=remedy)

    def symbol_of_version(self, by: Loaded, version: str, symbols: Sequence[str], other: Loaded) -> Gap:
        """Describe missing symbols of a version: ``by`` needs them, and ``other``, the library that the loader chooses, defines
        the version, but not these symbols."""
        name = other.facts.soname or posixpath.basename(other.real)
        more = f" (and {len(symbols) - 1} more)" if len(symbols) > 1 else ""
        cause = f"{other.path} defines the version {version}, but lacks this symbol{more}"
        better = [path for path in self._by_name.get(name, []) if self._offers(path, symbols[0], version)]
        remedy = ""
        if better:
            cause += f"; {_list(better)} has it, but the loader does not take that file"
            remedy = f"remove {other.real}, or make the loader search the folder of the other file first"
        elif package := self._package_of(name):
            remedy = f"the version of {package} that the object was built with"
        return Gap(kind="symbol", object=by.real, needs=f"{name}: {symbols[0]}@{version}", cause=cause, remedy=remedy)

    def _offers(self, path: str, symbol: str, version: str) -> bool:
        return symbol in self._objects[path].offered_symbols.get(version, "").split(" ")

    def symbols(self, by: Loaded, lacking: Sequence[str], process: Process) -> Iterator[Gap]:
        """The gaps for symbols in ``lacking`` that belong to a family of libraries, if ``by`` loads a library of this
        family."""
        for family in self._rules.families:
            matched = [each for each in lacking if family.symbols and re.match(family.symbols, each)]
            linked = [name for name in by.facts.needed if family.has(name)]
            loaded = [each for name in linked if (each := process.found.get((by.real, name))) is not None]
            if not matched or not loaded or any(each.facts.hides_symbols for each in loaded):
                continue
            first = loaded[0]
            name = first.facts.soname or posixpath.basename(first.real)
            more = f" (and {len(matched) - 1} more)" if len(matched) > 1 else ""
            cause = f"the loader chooses {first.path}, which lacks this symbol{more}"
            better = [path for path in self._by_name.get(name, []) if matched[0] in self._objects[path].offers]
            remedy = ""
            if better:
                cause += f"; {_list(better)} has it"
                remedy = f"remove {first.real}, or make the loader search the folder of the other file first"
            elif wheel := self._rules.wheel_of(name, self._cuda(by)):
                remedy = f"the version of {wheel} that the object was built with"
            yield Gap(kind="symbol", object=by.real, needs=f"{name}: {matched[0]}", cause=cause, remedy=remedy)

    def _remedy(self, by: Loaded, name: str, places: Sequence[str]) -> str:
        if places and all(_HWCAPS in path for path in places):
            return f"add a build of the library for all processors in {places[0].partition(_HWCAPS)[0]}"
        if self._is_left_out(by, places):
            return "another build of the object, without `-z nodefaultlib`, or a RUNPATH of it with this folder"
        if places:
            return f"set LD_LIBRARY_PATH to {posixpath.dirname(places[0])}, or run ldconfig with this folder"
        if known := self._by_name.get(name):
            folder, file = posixpath.split(known[0])
            return f"make the link {name} to {file} in {folder}, and let the loader search this folder"
        if wheel := self._rules.wheel_of(name, self._cuda(by, name)):
            return f"the wheel {wheel}"
        package = self._package_of(name)
        return f"the package {package}" if package else ""

    def _cuda(self, by: Loaded, name: str = "") -> str:
        """The major version of CUDA for which the object (or an object that loaded it) was built. If this is unknown, the only
        version to which libraries of the image belong, or that objects of the image need; empty if there are several."""
        at: Loaded | None = by
        names = [name]
        while at is not None:
            names += at.facts.needed
            at = at.by
        return next((match[1] for each in names if (match := WITH_NUMBER_OF_CUDA.fullmatch(each))), self._cuda_of_image)

    def _only_cuda(self) -> str:
        found = (facts.soname for facts in self._objects.values())
        needed = (name for facts in self._objects.values() for name in facts.needed)
        for names in (found, needed):
            versions = {match[1] for name in names if (match := WITH_NUMBER_OF_CUDA.fullmatch(name))}
            if versions:
                return versions.pop() if len(versions) == 1 else ""
        return ""

    def _other_versions(self, name: str) -> list[str]:
        match = _STEM.fullmatch(name)
        if match is None:
            return []
        stem = match["stem"]
        return sorted({path for known, paths in self._by_name.items() if known.startswith(f"{stem}.") for path in paths})


def _highest(names: Sequence[str], kind: str) -> str:
    """The highest of ``names`` that is a version of this ``kind``. For example, GLIBC_2.36 is of the kind GLIBC."""
    found = [each for each in names if re.fullmatch(rf"{re.escape(kind)}_\d+(\.\d+)*", each)]
    return max(found, key=lambda each: tuple(map(int, each.partition("_")[2].split("."))), default="")


def _list(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
    return ", ".join(paths[:_SHOWN]) + more
