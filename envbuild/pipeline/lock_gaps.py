"""Whether a lock lacks something that may be had now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envbuild.pipeline.tools import Tools

if TYPE_CHECKING:
    from envbuild.pipeline.stages import Locked


def may_be_completed(tools: Tools, locked: Locked) -> bool:
    """Whether the lock lacks something that may be had now.

    Its tools and its pip always can: the matrix pins them. Asking the network for the rest is idle where an image was made
    without it.
    """
    from envbuild import lock as locks

    without_pip = any(each.pip is None and each.python.version in tools.pips for each in locked.lock.prefixes)
    return (
        without_pip or bool(locks.missing_tools(locked.lock)) or (bool(locked.lock.missing) and not _built_from(tools, locked))
    )


def _built_from(tools: Tools, locked: Locked) -> bool:
    """Whether an image was made from exactly this lock."""
    from envbuild import build

    record = build.read_record(tools.workspace, locked.lock.environment.name)
    return record is not None and record.lock == locked.digest
