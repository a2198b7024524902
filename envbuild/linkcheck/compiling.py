"""Check whether packages of an image can compile code while a program runs. The rules are in ``images/compiling.yaml``."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from envbuild import rule_files, yaml_reader
from envbuild.linkcheck.model import ElfFacts, Gap
from envbuild.linkcheck.tree import Tree
from envbuild.workspace import COMPILING_RULES

_METADATA = re.compile(
    r"(?P<site>/.*/)(?P<name>[A-Za-z0-9._]+)-(?P<version>[^-/]+)\.(?:dist-info/METADATA|egg-info(?:/PKG-INFO)?)"
)
_VARIABLE = re.compile(r"\$\{(\w+)\}")
_PYTHON = re.compile(r"python(\d+\.\d+)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Need:
    """Something that a compilation needs. Any one of ``programs``, ``files`` and ``libraries`` is enough.

    The need exists only in images that have ``library`` in the version ``since`` or newer. If ``library`` is empty, the need
    exists in every image.
    """

    name: str
    programs: tuple[str, ...]
    files: tuple[str, ...]
    libraries: tuple[str, ...]
    library: str
    since: str
    fill: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """What some releases of packages compile while a program runs, and what they need for this compilation."""

    name: str
    packages: tuple[str, ...]
    versions: str
    always: bool
    on_gpu: bool
    feature: str
    needs: tuple[Need, ...]


class Package(NamedTuple):
    """An installed package: its canonical name, its version, its site-packages folder, and its metadata file."""

    name: str
    version: str
    site: str
    path: str


def load(images: Path) -> tuple[Rule, ...]:
    """Read the rules in ``images/compiling.yaml``. Raises :class:`InvalidInputError` with all problems of the file."""
    return rule_files.load(images, COMPILING_RULES, "The rules for compiling", _rules)


def _rules(table: yaml_reader.Table, sources: set[str]) -> tuple[Rule, ...]:
    return tuple(_rule(each, sources) for each in table.tables("compiling", required=True))


def _rule(table: yaml_reader.Table, sources: set[str]) -> Rule:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    table.text("source", choices=sources)
    versions = table.text("versions", "")
    try:
        SpecifierSet(versions)
    except InvalidSpecifier:
        table.problem("is not a range of versions", "versions")
    found = Rule(
        name=table.text("name"),
        packages=table.texts("packages", required=True),
        versions=versions,
        always=table.boolean("always"),
        on_gpu=table.boolean("on_gpu"),
        feature=table.text("feature", ""),
        needs=tuple(_need(each) for each in table.tables("needs", required=True)),
    )
    table.finish()
    return found


def _need(table: yaml_reader.Table) -> Need:
    found = Need(
        name=table.text("name"),
        programs=table.texts("programs"),
        files=table.texts("files"),
        libraries=table.texts("libraries"),
        library=table.text("library", ""),
        since=table.text("from", ""),
        fill=table.text("fill"),
    )
    if not (found.programs or found.files or found.libraries):
        table.problem("nothing can meet this need", "name")
    table.finish()
    return found


def check(
    tree: Tree, environment: Mapping[str, str], rules: Iterable[Rule], *, has_gpu_code: bool, features: Iterable[str]
) -> tuple[list[dict[str, Any]], list[Gap]]:
    """Return a list and the gaps. The list has an object (as JSON) for each rule and each package to which the rule applies.
    The object says what the package lacks.

    ``features`` are the features that the image's recipes use.
    """
    image = _Image(tree, environment)
    asked = set(features)
    told, gaps = [], []
    for rule in rules:
        if rule.on_gpu and not has_gpu_code:
            continue
        for package in image.packages_of(rule):
            lacking = [each for each in rule.needs if image.counts(each) and not image.has(each, package)]
            required = rule.always or rule.feature in asked
            told.append(
                {
                    "name": rule.name,
                    "package": f"{package.name} {package.version}",
                    "required": required,
                    "lacks": [{"needs": each.name, "fill": image.expanded(each.fill, package)} for each in lacking],
                }
            )
            gaps += [_gap(rule, each, package, image) for each in lacking if required]
    return told, gaps


def notes(told: Iterable[Mapping[str, Any]]) -> list[str]:
    """Notes about code that packages cannot compile, for cases that do not count as gaps."""
    return [
        f"{each['name']} ({each['package']}) lacks {lack['needs']}; what fills the gap: {lack['fill']}"
        for each in told
        if not each["required"]
        for lack in each["lacks"]
    ]


def _gap(rule: Rule, need: Need, package: Package, image: _Image) -> Gap:
    tried = [*(f"{name} in PATH" for name in need.programs), *need.libraries]
    tried += [path for text in need.files if (path := image.expanded(text, package))]
    return Gap(
        kind="compiler",
        object=package.path,
        needs=need.name,
        cause=f"{rule.name} ({package.name} {package.version}) compiles when a program runs, and the image has none of "
        + ", ".join(tried),
        remedy=image.expanded(need.fill, package),
    )


class _Image:
    """Answers questions about the files of an image."""

    def __init__(self, tree: Tree, environment: Mapping[str, str]) -> None:
        from packaging.utils import canonicalize_name

        self._tree = tree
        self._environment = environment
        self._objects: dict[str, ElfFacts] = dict(tree.objects())
        self._names = {posixpath.basename(path) for path in self._objects}
        self._packages = [
            Package(canonicalize_name(match["name"]), match["version"], match["site"], path)
            for path in sorted(tree.paths())
            if (match := _METADATA.fullmatch(path))
        ]

    def packages_of(self, rule: Rule) -> Iterator[Package]:
        """The installed packages to which the rule applies."""
        from packaging.specifiers import SpecifierSet
        from packaging.version import InvalidVersion

        for each in self._packages:
            if any(fnmatchcase(each.name, pattern) for pattern in rule.packages):
                try:
                    fits = SpecifierSet(rule.versions).contains(each.version, prereleases=True)
                except InvalidVersion:
                    fits = False
                if fits:
                    yield each

    def counts(self, need: Need) -> bool:
        """Whether the need exists in this image; see :class:`Need`."""
        if not need.library:
            return True
        found = [name.removeprefix(need.library) for name in self._names if name.startswith(need.library)]
        return any(_numbers(each)[:2] >= _numbers(need.since) for each in found if _numbers(each))

    def has(self, need: Need, package: Package) -> bool:
        """Whether the image has a program, file or library that meets the need."""
        folders = self._environment.get("PATH", "").split(":")
        paths = [posixpath.join(folder, name) for folder in folders if folder for name in need.programs]
        paths += [path for text in need.files if (path := self.expanded(text, package))]
        if any(self._tree.real(posixpath.normpath(path)) is not None for path in paths):
            return True
        return any(fnmatchcase(name, pattern) for pattern in need.libraries for name in self._names)

    def expanded(self, text: str, package: Package) -> str:
        """The text with its placeholders replaced; empty if an environment variable in it is not set in the image."""
        names = _VARIABLE.findall(text)
        if any(not self._environment.get(name) for name in names):
            return ""
        text = _VARIABLE.sub(lambda match: self._environment[match[1]], text)
        site = package.site
        prefix = posixpath.dirname(posixpath.dirname(posixpath.dirname(site.rstrip("/"))))
        program = next(
            (real for name in ("python", "python3") if (real := self._tree.real(posixpath.join(prefix, "bin", name)))), ""
        )
        version = _PYTHON.search(posixpath.basename(program)) or _PYTHON.search(site)
        base = posixpath.dirname(posixpath.dirname(program)) if program else prefix
        places = {"{site}": site, "{prefix}": prefix, "{base}": base, "{python}": version[1] if version else "3"}
        for name, value in places.items():
            text = text.replace(name, value)
        return text


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split("."))) if re.fullmatch(r"\d+(\.\d+)*", text) else ()
