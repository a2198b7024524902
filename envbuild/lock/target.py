"""What a locked package must run on: one CPython on one glibc, x86_64 Linux. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property

from packaging.markers import Marker
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import InvalidVersion, Version

MACHINE = "x86_64"
# Names that platform tags had before they spelled the glibc version (PEP 513, 571, 599).
_LEGACY_GLIBC = {(2, 17): "manylinux2014", (2, 12): "manylinux2010", (2, 5): "manylinux1"}
_OLDEST_GLIBC_MINOR = 5
# The oldest that a distribution carries (3.5.2, 3.9.2, 3.11.2), and wheels of 2020 and 2021 ask for 3.6.1 or 3.6.2.
_PATCH = 2
# Letters of one requirement: real ones have fewer than 500. Some of the expressions below take the square of the length.
_LONGEST = 4000


class Target:
    """The interpreter (``3.5``) and C library (``2.23``) of an image, as tags and markers see them.

    Only X.Y of the interpreter is known when locking, so a low patch is assumed: what needs a later one is left out.
    """

    def __init__(self, *, python: str, glibc: str) -> None:
        self.python = python
        self.glibc = glibc
        major, minor = (int(part) for part in python.split("."))
        self.python_info = (major, minor)
        self.full_version = Version(f"{python}.{_PATCH}")

    @cached_property
    def rank(self) -> dict[Tag, int]:
        """Every tag that fits, most specific first: its place is its rank."""
        return {tag: place for place, tag in enumerate(self._tags())}

    @cached_property
    def markers(self) -> dict[str, str]:
        """The environment that PEP 508 markers are evaluated in."""
        old = self.python_info < (3, 3)  # those did not have sys.implementation, and said linux2
        return {
            "implementation_name": "" if old else "cpython",
            "implementation_version": "0" if old else f"{self.python}.{_PATCH}",
            "os_name": "posix",
            "platform_machine": MACHINE,
            "platform_python_implementation": "CPython",
            "platform_release": "",
            "platform_system": "Linux",
            "platform_version": "",
            "python_full_version": f"{self.python}.{_PATCH}",
            "python_version": self.python,
            "sys_platform": "linux2" if old else "linux",
        }

    def wants(self, requirement: Requirement, extras: frozenset[str] = frozenset()) -> bool:
        """Whether ``requirement`` holds here, for a package asked for with ``extras``."""
        marker: Marker | None = requirement.marker
        try:
            return marker is None or any(marker.evaluate({**self.markers, "extra": extra}) for extra in extras or {""})
        except (ValueError, LookupError, TypeError, RecursionError) as error:  # `os_name >= "3"` compares what has no order
            raise InvalidRequirement(f"the marker of {requirement.name} cannot be judged: {str(error)[:200]}") from error

    def accepts_python(self, requires_python: str) -> bool:
        """Whether a file's Requires-Python lets our interpreter in; one that nobody can read is ignored, as pip does."""
        if not requires_python:
            return True
        try:
            return read_specifiers(requires_python).contains(self.full_version, prereleases=True)
        except ValueError:  # of which InvalidSpecifier is one; others are numbers of thousands of digits
            return True

    def rank_of_wheel(self, filename: str) -> tuple[int, tuple[int, str]] | None:
        """How well a wheel fits: the smaller the better, then the higher build number; None if it does not fit."""
        try:
            _, _, build, tags = parse_wheel_filename(filename)
        except (InvalidWheelFilename, InvalidVersion):
            return None
        places = [self.rank[tag] for tag in tags if tag in self.rank]
        if not places:
            return None
        number, suffix = build if build else (0, "")
        return min(places), (-number, suffix)

    def _tags(self) -> Iterator[Tag]:
        platforms = list(self._platforms())
        yield from cpython_tags(python_version=self.python_info, abis=[self._abi()], platforms=platforms)
        yield from compatible_tags(
            python_version=self.python_info, interpreter=f"cp{self.python.replace('.', '')}", platforms=platforms
        )

    def _abi(self) -> str:
        digits = self.python.replace(".", "")
        if self.python_info < (3, 3):
            return f"cp{digits}mu"  # Linux distributions build with UCS-4 and pymalloc
        return f"cp{digits}m" if self.python_info < (3, 8) else f"cp{digits}"

    def _platforms(self) -> Iterator[str]:
        major, minor = (int(part) for part in self.glibc.split(".")[:2])
        for older in range(minor, _OLDEST_GLIBC_MINOR - 1, -1):
            yield f"manylinux_{major}_{older}_{MACHINE}"
            if (major, older) in _LEGACY_GLIBC:
                yield f"{_LEGACY_GLIBC[major, older]}_{MACHINE}"
        yield f"linux_{MACHINE}"


def read_specifiers(text: str) -> SpecifierSet:
    """Version bounds, forgiving what old releases wrote and old tools took: ``>=2.7.*``, ``>=2011k``, ``>dev``, a missing or a
    spare comma.

    Raises InvalidSpecifier for what stays unreadable.
    """
    try:
        return SpecifierSet(text)
    except InvalidSpecifier:
        return SpecifierSet(_forgive(text))


def read_requirement(text: str) -> Requirement:
    """A PEP 508 requirement, forgiving as :func:`read_specifiers`. Raises InvalidRequirement for what stays unreadable."""
    if len(text) > _LONGEST:
        raise InvalidRequirement(f"it has {len(text)} letters")
    try:
        return Requirement(text)
    except RecursionError:
        raise InvalidRequirement("its marker is nested too deeply") from None
    except InvalidRequirement:
        body, separator, marker = text.partition(";")
        return Requirement(_forgive(body) + separator + marker)


def _forgive(text: str) -> str:
    text = re.sub(r"\s+", " ", text)
    text = re.sub(r"([0-9*])\s+(?=[<>=!~])", r"\1,", text)
    text = re.sub(r"(>=|<=|>|<)\s*([^\s<>=!~,;()]+)", _bound_by_number, text)
    return re.sub(r",\s*(?=\)?\s*$)", "", text)


def _bound_by_number(bound: re.Match[str]) -> str:
    """A bound whose version is none in PEP 440 counts as that by the number it begins with; without one, as no bound."""
    operator, version = bound.groups()
    try:
        return f"{operator}{Version(version)}"
    except InvalidVersion:
        number = re.match(r"[0-9]+(\.[0-9]+)*", version)
        return f"{operator}{number[0]}" if number else ""
