"""The target of locked packages: one version of CPython and one glibc, on x86_64 Linux. The functions are pure (no network,
files or clock)."""

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
# Platform tags that older wheels use instead of a tag with the glibc version (PEP 513, 571, 599).
_LEGACY_GLIBC = {(2, 17): "manylinux2014", (2, 12): "manylinux2010", (2, 5): "manylinux1"}
_OLDEST_GLIBC_MINOR = 5
# The patch release of Python that is assumed. The oldest ones in distributions are 3.5.2, 3.9.2 and 3.11.2. Wheels of 2020 and
# 2021 require 3.6.1 or 3.6.2.
_PATCH = 2
# The longest requirement (in letters) that is parsed, because some regular expressions below take quadratic time. Real
# requirements have fewer than 500 letters.
_LONGEST = 4000


class Target:
    """The Python version (``3.5``) and glibc version (``2.23``) of an image. Wheel tags and markers are compared with them.

    During locking, only X.Y of the Python version is known, so a low patch release is assumed. Files that need a later patch
    release are left out.
    """

    def __init__(self, *, python: str, glibc: str) -> None:
        self.python = python
        self.glibc = glibc
        major, minor = (int(part) for part in python.split("."))
        self.python_info = (major, minor)
        self.full_version = Version(f"{python}.{_PATCH}")

    @cached_property
    def rank(self) -> dict[Tag, int]:
        """Return every wheel tag that fits, with its rank. The most specific tag has rank 0."""
        return {tag: place for place, tag in enumerate(self._tags())}

    @cached_property
    def markers(self) -> dict[str, str]:
        """Return the values of variables with which PEP 508 markers are evaluated."""
        old = self.python_info < (3, 3)  # before 3.3, there was no sys.implementation, and the platform was linux2
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
        """Whether ``requirement`` applies to the target. ``extras`` are the requested extras of the package that declares the
        requirement."""
        marker: Marker | None = requirement.marker
        try:
            return marker is None or any(marker.evaluate({**self.markers, "extra": extra}) for extra in extras or {""})
        except (
            ValueError,
            LookupError,
            TypeError,
            RecursionError,
        ) as error:  # for example `os_name >= "3"`: texts have no such order
            raise InvalidRequirement(f"the marker of {requirement.name} cannot be evaluated: {str(error)[:200]}") from error

    def accepts_python(self, requires_python: str) -> bool:
        """Whether a file's Requires-Python allows the Python version. An invalid Requires-Python is ignored, as in pip."""
        if not requires_python:
            return True
        try:
            return read_specifiers(requires_python).contains(self.full_version, prereleases=True)
        except ValueError:  # InvalidSpecifier, or a number of thousands of digits
            return True

    def rank_of_wheel(self, filename: str) -> tuple[int, tuple[int, str]] | None:
        """Return the rank of a wheel, or None if the wheel does not fit. A smaller rank is better. Among wheels of equal rank,
        a higher build number is better."""
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
            return f"cp{digits}mu"  # Linux distributions build these versions with UCS-4 (u) and pymalloc (m)
        return f"cp{digits}m" if self.python_info < (3, 8) else f"cp{digits}"

    def _platforms(self) -> Iterator[str]:
        major, minor = (int(part) for part in self.glibc.split(".")[:2])
        for older in range(minor, _OLDEST_GLIBC_MINOR - 1, -1):
            yield f"manylinux_{major}_{older}_{MACHINE}"
            if (major, older) in _LEGACY_GLIBC:
                yield f"{_LEGACY_GLIBC[major, older]}_{MACHINE}"
        yield f"linux_{MACHINE}"


def read_specifiers(text: str) -> SpecifierSet:
    """Parse version bounds. Tolerate errors of old releases: ``>=2.7.*``, ``>=2011k``, ``>dev``, a missing or extra comma.

    Raises InvalidSpecifier for other errors.
    """
    try:
        return SpecifierSet(text)
    except InvalidSpecifier:
        return SpecifierSet(_forgive(text))


def read_requirement(text: str) -> Requirement:
    """Parse a PEP 508 requirement. Tolerates the same errors as :func:`read_specifiers`. Raises InvalidRequirement."""
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
    """Return the bound in a form that PEP 440 allows. If its version is invalid, keep only the number at the version's
    beginning. If there is no such number, return no bound."""
    operator, version = bound.groups()
    try:
        return f"{operator}{Version(version)}"
    except InvalidVersion:
        number = re.match(r"[0-9]+(\.[0-9]+)*", version)
        return f"{operator}{number[0]}" if number else ""
