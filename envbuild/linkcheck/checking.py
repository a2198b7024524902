"""Load every object (library or program) of an image as the dynamic loader would. Report what is missing, and which one of
several files with the same name is loaded."""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from envbuild.linkcheck import causes, interpreters
from envbuild.linkcheck.loader import Loaded, Loader, Process
from envbuild.linkcheck.model import Copy, Duplicate, ElfFacts, Gap
from envbuild.linkcheck.package_rules import holding
from envbuild.linkcheck.rules import LinkRules
from envbuild.linkcheck.symbol_versions import SymbolVersions
from envbuild.linkcheck.tree import Tree, folder_of_packages

_PYTHONS = ("bin/python", "bin/python3")
_LIBRARY_OF_PYTHON = re.compile(r"(?P<prefix>.*)/lib(?:64)?/(?P<python>python\d+(?:\.\d+t?)?)")
_SHOWN = 10
_DEBUG = "/lib/debug/"


@dataclass(frozen=True, kw_only=True, slots=True)
class Links:
    """The result of :func:`check`: what the objects of an image load, and what is missing.

    ``processes`` maps the path of each object that no other object loads to the process of this object.
    """

    processes: Mapping[str, Process]
    gaps: tuple[Gap, ...]
    excused: tuple[Gap, ...]
    duplicates: tuple[Duplicate, ...]


@dataclass(kw_only=True, slots=True)
class _Found:
    gaps: dict[tuple[str, str, str], Gap] = field(default_factory=dict)

    def add(self, gap: Gap) -> None:
        self.gaps.setdefault((gap.kind, gap.object, gap.needs), gap)


def check(
    tree: Tree,
    environment: Mapping[str, str],
    rules: LinkRules,
    *,
    is_of_driver: Callable[[str], bool],
    package_of: Callable[[str], str],
) -> Links:
    """Check an image. ``tree`` has the files of all its layers.

    ``is_of_driver`` says whether a library comes with the NVIDIA driver. ``package_of`` returns the package of the image's
    system that contains a library, or an empty text if no package is known. Raises :class:`InvalidInputError`
    (``other-c-library``) for an image for musl.
    """
    interpreters.refuse_musl(tree)
    loader = Loader(tree, environment)
    objects = {path: facts for path, facts in tree.objects() if _DEBUG not in path}
    held = _Held(tree, objects, rules)
    programs = _Programs(tree)
    usable = {path: facts for path, facts in objects.items() if not facts.damage}
    processes = {
        path: loader.load(path, program=programs.of(path, facts), held=held.of(path)) for path, facts in usable.items()
    }
    roots = _roots({path: process for path, process in processes.items() if process is not None})
    found = _Found()
    explain = causes.Causes(tree, loader, objects, rules, package_of)
    versioned = SymbolVersions()
    for path, facts in objects.items():
        if facts.damage:
            found.add(Gap(kind="damaged", object=path, needs="", cause=f"{facts.damage}; the loader refuses it"))
    absent = interpreters.absent(objects, tree)
    for gap in interpreters.gaps(absent, objects, tree, rules):
        found.add(gap)
    for path, process in roots.items():
        for gap in _gaps_of(process, held.of(path), explain, versioned, is_of_driver):
            # A program for another C library does not start, so its other missing libraries are not listed.
            if gap.object not in absent or not interpreters.is_for_other_library(objects[gap.object]):
                found.add(gap)
    ignored = {missing.name: missing for process in reversed(roots.values()) for missing in process.ignored}
    for missing in ignored.values():  # for each preload, the first program that ignores it
        found.add(explain.ignored(missing))
    gaps = [_excused(gap, rules) for gap in found.gaps.values()]
    return Links(
        processes=roots,
        gaps=tuple(each for each in gaps if not each.excuse),
        excused=tuple(each for each in gaps if each.excuse),
        duplicates=_duplicates(objects, roots, rules),
    )


def _roots(processes: Mapping[str, Process]) -> dict[str, Process]:
    """The objects that no other object loads. If objects load each other, only the first of them counts.

    Many objects that are loaded by other objects rely on libraries that the other objects have loaded before. So such an object
    is judged only in the processes of the objects that load it.
    """
    loaded_by_others: set[str] = set()
    for path, process in processes.items():
        loaded_by_others |= {each.real for each in process.order if each.real != path}
    roots = {path: process for path, process in processes.items() if path not in loaded_by_others}
    covered = {each.real for process in roots.values() for each in process.order}
    for path, process in processes.items():
        if path not in covered:
            roots[path] = process
            covered |= {each.real for each in process.order}
    return roots


def _gaps_of(
    process: Process,
    held: Mapping[str, str],
    explain: causes.Causes,
    versioned: SymbolVersions,
    is_of_driver: Callable[[str], bool],
) -> Iterator[Gap]:
    for missing in process.missing:
        if not is_of_driver(missing.name):
            yield explain.library(missing)
    offered: set[str] = {symbol for each in process.order for symbol in each.facts.offers}
    absent = {missing.name for missing in process.missing} | held.keys()
    for loaded in process.order:
        for library, versions in loaded.facts.versions.items():
            other = process.found.get((loaded.real, library)) or process.names.get(library)
            if other is not None:
                yield from _gaps_of_versions(loaded, library, other, process, explain=explain, versioned=versioned)
            elif library not in absent and not is_of_driver(library):
                yield explain.unlinked_version(loaded, versions[0], library)
        lacking = [symbol for symbol in loaded.facts.wanted if symbol not in offered]
        if lacking:
            yield from explain.symbols(loaded, lacking, process)


def _gaps_of_versions(
    loaded: Loaded, library: str, other: Loaded, process: Process, *, explain: causes.Causes, versioned: SymbolVersions
) -> Iterator[Gap]:
    """The versions, and the symbols of a version, that ``loaded`` needs from ``library`` and that the loader does not find.
    ``other`` is the file that the loader chooses."""
    if not other.facts.defines:  # glibc accepts a library without versions, with a warning
        return
    for version in loaded.facts.versions[library]:
        if version not in other.facts.defines:
            yield explain.version(loaded, version, other)
    for version, symbols in versioned.lacking(loaded, library, other, process):
        yield explain.symbol_of_version(loaded, version, symbols, other)


def _excused(gap: Gap, rules: LinkRules) -> Gap:
    reason = rules.excuse(gap.object, gap.needs) if gap.kind != "damaged" else ""
    return replace(gap, excuse=gap.excuse or reason)


def _duplicates(objects: Mapping[str, ElfFacts], roots: Mapping[str, Process], rules: LinkRules) -> tuple[Duplicate, ...]:
    """The libraries that the image has as several files. Each comes with its files, and the number of objects that load each
    file. Libraries that belong to no family count only if an object loads one of the files."""
    places: dict[str, list[str]] = {}
    for path, facts in objects.items():
        if facts.soname or not facts.interpreter:  # programs with the same name are not copies of a library
            places.setdefault(facts.soname or posixpath.basename(path), []).append(path)
    several = {name: paths for name, paths in places.items() if len(paths) > 1}
    wanted = {path for paths in several.values() for path in paths}
    users: Counter[str] = Counter(
        each.real for root, process in roots.items() for each in process.order if each.real in wanted and each.real != root
    )
    return tuple(
        _duplicate(name, paths, users, objects)
        for name, paths in sorted(several.items())
        if rules.family_of(name) is not None or any(users[path] for path in paths)
    )


def _duplicate(name: str, paths: Sequence[str], users: Mapping[str, int], objects: Mapping[str, ElfFacts]) -> Duplicate:
    copies = sorted((Copy(path=path, users=users[path]) for path in paths), key=lambda each: (-each.users, each.path))
    first = set(objects[copies[0].path].offers)
    more = [(path, offers) for path in paths if (offers := set(objects[path].offers)) > first]
    if not copies[0].users or objects[copies[0].path].hides_symbols or not more:
        return Duplicate(library=name, copies=tuple(copies))
    path, offers = max(more, key=lambda each: len(each[1]))
    return Duplicate(library=name, copies=tuple(copies), newer=path, lacks=tuple(sorted(offers - first))[:_SHOWN])


class _Held:
    """For each site-packages folder: the libraries that a package loads before other objects in this folder need them."""

    def __init__(self, tree: Tree, objects: Mapping[str, ElfFacts], rules: LinkRules) -> None:
        self._of: dict[str, dict[str, str]] = {}
        of_folder = holding(tree.paths(), rules.loaded_before)
        for path, facts in objects.items():
            folder = folder_of_packages(path)
            if any(fnmatchcase(path[len(folder) :], each.libraries) for each in of_folder.get(folder, ())):
                names = self._of.setdefault(folder, {})
                for name in (posixpath.basename(path), facts.soname):
                    if name:
                        names.setdefault(name, path)

    def of(self, path: str) -> Mapping[str, str]:
        """The libraries (name → path) that are already loaded when an object at ``path`` is loaded."""
        return self._of.get(folder_of_packages(path), {})


class _Programs:
    """Finds the Python that loads an object: the one in the nearest parent folder of the object that has a Python in its
    ``bin``. The program of a folder such as ``lib/python3.11`` is ``bin/python3.11`` beside it, if it exists: an image may have
    several Pythons in one folder, and ``make altinstall`` makes no ``bin/python3``."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._of_folder: dict[str, str | None] = {}

    def of(self, path: str, facts: ElfFacts) -> str | None:
        """The path of this Python; None if the object is a program itself."""
        return None if facts.interpreter else self._near(posixpath.dirname(path))

    def _near(self, folder: str) -> str | None:
        """The Python of the nearest folder. A loop searches the parent folders, because recursion could exceed Python's
        limit."""
        below: list[str] = []
        while folder not in self._of_folder and folder != "/":
            below.append(folder)
            folder = posixpath.dirname(folder)
        if folder not in self._of_folder:
            self._of_folder[folder] = self._python_in(folder)
        program = self._of_folder[folder]
        for each in reversed(below):
            program = self._of_folder[each] = self._python_in(each) or program
        return program

    def _python_in(self, folder: str) -> str | None:
        of_library = _LIBRARY_OF_PYTHON.fullmatch(folder)
        named = [f"{of_library['prefix']}/bin/{of_library['python']}"] if of_library else []
        paths = (*named, *(posixpath.join(folder, name) for name in _PYTHONS))
        return next((path for path in paths if self._is_program(path)), None)

    def _is_program(self, path: str) -> bool:
        real = self._tree.real(path)
        return real is not None and self._tree.facts(real) is not None
