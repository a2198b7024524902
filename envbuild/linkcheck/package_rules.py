"""Find the rules that hold in a folder of Python packages. Each rule names packages; it holds if the folder has one of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from envbuild.linkcheck.rules import any_of
from envbuild.linkcheck.tree import folder_of_packages


class OfPackages(Protocol):
    """A rule with patterns of files. It holds in a folder of Python packages that has such a file."""

    @property
    def packages(self) -> tuple[str, ...]:
        """The patterns of the files. They begin in the folder of Python packages."""


R = TypeVar("R", bound=OfPackages)


def holding(paths: Iterable[str], rules: Sequence[R]) -> dict[str, list[R]]:
    """Map each folder of Python packages to the rules that hold in it. ``paths`` are the paths of all files of the image."""
    if not rules:
        return {}
    of_any = any_of(pattern for each in rules for pattern in each.packages)
    there: dict[str, list[str]] = {}
    for path in paths:
        folder = folder_of_packages(path)
        if folder and of_any.fullmatch(path, len(folder)):
            there.setdefault(folder, []).append(path[len(folder) :])
    return {
        folder: [each for each in rules if any(map(any_of(each.packages).fullmatch, names))] for folder, names in there.items()
    }
