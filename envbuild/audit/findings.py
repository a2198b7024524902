"""What an audit finds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One advisory about one pinned package. ``fixed_in`` lists the versions that mend it, empty where none is known."""

    package: str
    version: str
    advisory: str
    aliases: tuple[str, ...]
    fixed_in: tuple[str, ...]
    summary: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What one database says; ``unchecked`` are the packages that it could not be asked about, with the reason."""

    database: str
    findings: Sequence[Finding]
    unchecked: Sequence[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Audit:
    """``checked`` packages against ``database``; ``unchecked`` says in words what nobody was asked about."""

    database: str
    checked: int
    findings: tuple[Finding, ...]
    unchecked: tuple[str, ...]
