"""The request for an update, and its result: what it found and what it changed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from envbuild.lock.comparison import LockDifference
    from envbuild.matrix.online.differences import IndexDifference
    from envbuild.matrix.online.waiting import Waiting
    from envbuild.model.vulnerabilities import Vulnerability

Policy = Literal["none", "security", "all"]


@dataclass(frozen=True, kw_only=True, slots=True)
class UpdateRequest:
    """The request for an update. ``locks`` says which locks are renewed; ``pattern`` is a glob that their names must match.

    ``newest`` are requests. Their environments get a lock, too, if they have none yet. Advisories come from OSV ``databases``
    or from a ``service``; if both are empty, none are looked up. If a lock cannot be renewed, the update ends. With
    ``keeps_going``, such a lock stays as it is, and the update goes on. ``asks_index`` is false for an update without new
    releases. ``measures`` is false if the wheels of new releases must not be measured.
    """

    frameworks: tuple[str, ...] = ()
    locks: Policy = "none"
    pattern: str = ""
    newest: tuple[str, ...] = ()
    databases: tuple[Path, ...] = ()
    service: str = ""
    keeps_going: bool = False
    asks_index: bool = True
    measures: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class NewRelease:
    """A release that got a new row in the matrix file ``file``."""

    framework: str
    version: str
    file: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RenewedLock:
    """A changed lock: its differences, the sizes of its Python packages in bytes, and the committed proofs that it lost.

    ``difference`` is None for a new environment. ``closed`` are advisories that apply only to the old lock. ``opened`` are
    advisories that apply only to the new lock. Both are None if no advisories were looked up.
    """

    name: str
    difference: LockDifference | None
    size_before: int
    size_after: int
    closed: tuple[Vulnerability, ...] | None
    opened: tuple[Vulnerability, ...] | None
    lost: tuple[str, ...]
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptLock:
    """A lock that could not be renewed, or could be renewed only in part, and the ``reason``. ``remaining`` are advisories that
    stay open."""

    name: str
    reason: str
    remaining: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Changes:
    """The findings and the changes of an update. ``unchecked`` lists packages and advisories that could not be compared.

    ``stale`` are locks that the matrix accepted before the update, and does not accept after it.
    """

    releases: tuple[NewRelease, ...]
    waiting: tuple[Waiting, ...]
    left: tuple[IndexDifference, ...]
    locks: tuple[RenewedLock, ...]
    kept: tuple[KeptLock, ...]
    stale: tuple[str, ...]
    database: str
    unchecked: tuple[str, ...]

    @property
    def title(self) -> str:
        """The subject line of the commit. It says in at most 72 characters what changes."""
        new = [each for each in self.locks if each.difference is None]
        parts = [
            _count(len(self.releases), "release", "Add"),
            _count(len(new), "environment", "lock"),
            _count(len(self.locks) - len(new), "lock", "renew"),
        ]
        text = ", ".join(part for part in parts if part)
        return text[:1].upper() + text[1:]


def _count(count: int, noun: str, verb: str) -> str:
    return f"{verb} {count} {noun}{'s' if count != 1 else ''}" if count else ""
