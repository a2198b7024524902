"""Reads locks by the name of their environment."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from envbuild.pipeline.tools import Tools

if TYPE_CHECKING:
    from envbuild.model.lock import Lock


class Locked(NamedTuple):
    """A lock on disk. ``kept`` is true if the lock was found there, and false if it was made or completed now."""

    lock: Lock
    digest: str
    path: Path
    kept: bool


def read_locked(tools: Tools, name: str) -> Locked | None:
    """Return the lock of ``name``; None if there is no lock. Raises :class:`InvalidInputError` if the lock cannot be read."""
    from envbuild.lock import lock_file

    path = tools.workspace.lock_file(name)
    if not os.path.lexists(path):
        return None
    lock = read_lock(path)
    return Locked(lock=lock, digest=lock_file.digest(lock), path=path, kept=True)


def read_lock(path: Path) -> Lock:
    """Return the lock in ``path``. Raises :class:`InvalidInputError` if the file is not a valid lock."""
    from envbuild.lock import lock_file

    return lock_file.read(path)
