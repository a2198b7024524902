"""Published releases that have no row on purpose, and why: a request for one gets the reason."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from envbuild.matrix.types import LeftOut

if TYPE_CHECKING:  # every request asks this module; few read YAML
    pass

PRERELEASES = "prereleases"


def why_left_out(rules: Iterable[LeftOut], version: str) -> LeftOut | None:
    """The first rule that covers ``version``; None if no rule does, or if it is not a valid version."""
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
