"""The rules of ``verify`` for modules and libraries. People write them in ``images/imports.yaml``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from envbuild import rule_files, yaml_reader
from envbuild.rule_files import regular_expression
from envbuild.workspace import IMPORT_RULES

_SYSTEM = re.compile(r"(?P<family>[a-z]+)(?P<number>[0-9.]+)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Skip:
    """Patterns of modules that are not imported, and the reason for this."""

    modules: tuple[str, ...]
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class WithoutGpu:
    """A regular expression that matches errors caused by a missing driver or GPU, and the reason in words."""

    text: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Contradiction:
    """A requirement of ``package`` that an image deliberately does not meet."""

    package: str
    requires: str
    reason: str
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportRules:
    """The rules of ``verify``. ``libraries`` maps each shared library to operating systems, and each of these systems to the
    package that contains the library. ``frameworks`` maps each project to a framework of the matrix.

    A system may have no list of packages of its own. Then ``made_from`` maps this system to the system whose list is used.
    ``ignored`` are projects that the recipes do not install although a package requires them.
    """

    skip: tuple[Skip, ...] = ()
    without_gpu: tuple[WithoutGpu, ...] = ()
    driver_libraries: tuple[str, ...] = ()
    contradictions: tuple[Contradiction, ...] = ()
    libraries: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    made_from: Mapping[str, str] = field(default_factory=dict)
    frameworks: Mapping[str, str] = field(default_factory=dict)
    ignored: frozenset[str] = frozenset()

    def is_of_the_driver(self, library: str) -> bool:
        """Whether this library comes with the machine's NVIDIA driver."""
        return any(fnmatchcase(library, pattern) for pattern in self.driver_libraries)

    def without_gpu_reason(self, said: str) -> str:
        """The reason why an import with this output cannot be tested on a machine without a GPU; empty for any other error."""
        return next((rule.reason for rule in self.without_gpu if re.search(rule.text, said)), "")

    def package_of(self, library: str, system: str) -> tuple[str, str]:
        """The system package with ``library``, and the system whose list names this package. If no package is known, both texts
        are empty."""
        known = self.libraries.get(library, {})
        order = [system, self.made_from.get(system, system), *sorted(known, reverse=True)]
        return next(((known[name], name) for name in order if name in known), ("", ""))

    def own_package_of(self, library: str, system: str) -> str:
        """The package of this system with ``library``; empty if no package of it is known."""
        package, of = self.package_of(library, system)
        return package if of in (system, self.made_from.get(system)) else ""


def load(images: Path) -> ImportRules:
    """Read the rules in ``images/imports.yaml``. Raises :class:`InvalidInputError` with all problems of the file."""
    return rule_files.load(images, IMPORT_RULES, "The rules for imports", _rules)


def _rules(table: yaml_reader.Table, sources: set[str]) -> ImportRules:
    return ImportRules(
        skip=tuple(_skip(each, sources) for each in table.tables("skip", required=True)),
        without_gpu=tuple(_without_gpu(each, sources) for each in table.tables("without_gpu", required=True)),
        driver_libraries=table.texts("driver_libraries", required=True),
        contradictions=tuple(_contradiction(each) for each in table.tables("contradictions")),
        made_from=table.text_map("made_from"),
        libraries={name: _packages(each, sources) for name, each in table.named_tables("libraries", required=True)},
    )


def _skip(table: yaml_reader.Table, sources: set[str]) -> Skip:
    table.text("source", choices=sources)
    found = Skip(modules=table.texts("modules", required=True), reason=table.text("reason"))
    table.finish()
    return found


def _without_gpu(table: yaml_reader.Table, sources: set[str]) -> WithoutGpu:
    table.text("source", choices=sources)
    found = WithoutGpu(text=regular_expression(table, "text"), reason=table.text("reason"))
    table.finish()
    return found


def _contradiction(table: yaml_reader.Table) -> Contradiction:
    found = Contradiction(
        package=table.text("package"),
        requires=table.text("requires"),
        reason=table.text("reason"),
        source=table.text("source", pattern=r"(https://|pkg:)\S+"),
    )
    table.finish()
    return found


def _packages(table: yaml_reader.Table, sources: set[str]) -> Mapping[str, str]:
    found = {}
    for system in table.keys():  # noqa: SIM118 - the table is not a dict
        if f"contents-{system}" not in sources or not _SYSTEM.fullmatch(system):
            table.problem(f"add the source of these package names to `sources` as `contents-{system}`", system)
        found[system] = table.text(system, pattern=r"[a-z0-9][a-z0-9+.-]+")
    return found
