"""Find the reason why a published release has no row."""

from __future__ import annotations

from collections.abc import Iterable

from envbuild.matrix.types import LeftOut

PRERELEASES = "prereleases"


def why_left_out(rules: Iterable[LeftOut], version: str) -> LeftOut | None:
    """Return the first rule that covers ``version``; None if no rule covers it, or if the version is invalid."""
    from packaging.specifiers import SpecifierSet  # imported late: every request imports this module
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
