"""The result of an audit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Package:
    """One installed package as databases identify it. ``ecosystem`` is in OSV's terms (``PyPI``, ``Debian:12``).

    For a package of the distribution, ``name`` and ``version`` are those of its source package.
    """

    ecosystem: str
    name: str
    version: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Vulnerability:
    """One advisory about one package. ``fixed_in`` lists the fixed versions; it is empty if none is known."""

    package: str
    version: str
    advisory: str
    aliases: tuple[str, ...]
    fixed_in: tuple[str, ...]
    summary: str
    ecosystem: str = "PyPI"


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """The answer of one database. ``checked`` counts packages; ``unchecked`` lists the packages that were not checked, with the
    reasons."""

    database: str
    checked: int
    findings: Sequence[Vulnerability]
    unchecked: Sequence[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Audit:
    """The result of comparing ``checked`` packages with ``database``. ``unchecked`` describes what was not compared."""

    database: str
    checked: int
    findings: tuple[Vulnerability, ...]
    unchecked: tuple[str, ...]

    @property
    def is_clean(self) -> bool:
        """Whether everything was checked and no vulnerability is known."""
        return bool(self.checked) and not self.findings and not self.unchecked
