"""What an audit finds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Package:
    """One installed package as a database knows it: ``ecosystem`` is OSV's word (``PyPI``, ``Debian:12``).

    Of a distribution's package ``name`` and ``version`` are those of its source package.
    """

    ecosystem: str
    name: str
    version: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Vulnerability:
    """One advisory about one package. ``fixed_in`` lists the versions that mend it, empty where none is known."""

    package: str
    version: str
    advisory: str
    aliases: tuple[str, ...]
    fixed_in: tuple[str, ...]
    summary: str
    ecosystem: str = "PyPI"


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What one database says; ``checked`` counts packages, ``unchecked`` tells what it could not be asked about, and why."""

    database: str
    checked: int
    findings: Sequence[Vulnerability]
    unchecked: Sequence[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Audit:
    """``checked`` packages against ``database``; ``unchecked`` says in words what nobody was asked about."""

    database: str
    checked: int
    findings: tuple[Vulnerability, ...]
    unchecked: tuple[str, ...]

    @property
    def is_clean(self) -> bool:
        """Whether everything was checked and nothing is known of it: what was not checked is not clean."""
        return bool(self.checked) and not self.findings and not self.unchecked
