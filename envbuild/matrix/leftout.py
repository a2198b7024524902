"""Releases that upstream published and that have no row on purpose: asking for one is answered with the reason."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from envbuild.matrix.platform import Provenance
from envbuild.matrix.types import LeftOut

if TYPE_CHECKING:  # every request asks this module; few read YAML
    from envbuild.matrix.reading import Context
    from envbuild.yaml_reader import Table

PRERELEASES = "prereleases"


def left_out(context: Context, file: Table, defaults: Provenance) -> tuple[LeftOut, ...]:
    """A file's ``left_out``; in a file without a framework it is said of all of them."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    found = []
    for table in file.tables("left_out"):
        releases = table.texts("releases", required=True)
        for text in releases:
            try:
                if text != PRERELEASES:
                    SpecifierSet(text)
            except InvalidSpecifier:
                table.problem(f"{text!r} is neither a condition on versions such as <1.4 nor {PRERELEASES}", "releases")
        origin = context.origin(table, defaults)
        if not origin.note:
            table.problem("what is left out needs a note that says why")
        found.append(LeftOut(releases=releases, origin=origin))
        table.finish()
    return tuple(found)


def why_left_out(rules: Iterable[LeftOut], version: str) -> LeftOut | None:
    """The first rule that covers ``version``; None for a version that none does, or that is no version at all."""
    from packaging.specifiers import SpecifierSet
    from packaging.version import InvalidVersion, Version

    try:
        number = Version(version)
    except InvalidVersion:
        return None
    for rule in rules:
        for text in rule.releases:
            if number.is_prerelease if text == PRERELEASES else SpecifierSet(text).contains(number, prereleases=True):
                return rule
    return None
