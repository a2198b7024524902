"""What an update is asked for, and what it found and changed."""

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
    """What an update does. ``locks`` says which locks are renewed, ``pattern`` is a glob over their names.

    ``newest`` are requests whose environments are locked, too, if they have no lock yet. Advisories come from ``databases``
    (OSV), or from ``service``; they are not looked up if both are empty. With ``keeps_going``, a lock that cannot be renewed
    stays as it is; otherwise it ends the update. ``asks_index`` is false for an update without new releases; ``measures`` is
    false if their wheels shall not be measured.
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
    """A release with a new row in ``file``."""

    framework: str
    version: str
    file: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RenewedLock:
    """A changed lock: its differences, the bytes of its files, and the proofs in the repository that no longer hold.

    ``difference`` is None for a new environment. ``closed`` are advisories that only the old lock has, ``opened`` those that
    only the new lock has; both are None if advisories were not looked up.
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
    """A lock that should have been renewed, and the reason why it was not. ``remaining`` are advisories that stay open."""

    name: str
    reason: str
    remaining: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Changes:
    """Everything that an update found and changed. ``unchecked`` says what was not compared with advisories.

    ``stale`` are locks that the matrix accepted before, and no longer accepts.
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
        """A subject line: what changes, in at most 72 characters."""
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
