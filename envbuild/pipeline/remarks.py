"""What a lock says beside the decision: libraries of another CUDA than the environment is named for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from envbuild.errors import EnvbuildError
from envbuild.model import Resolution

if TYPE_CHECKING:
    from envbuild.pipeline.stages import Locked


def with_remarks(resolution: Resolution, read: Callable[[str], Locked | None]) -> Resolution:
    """``resolution`` with a warning for what its lock holds of another CUDA; ``read`` finds the lock, if there is one."""
    from envbuild import lock as locks

    try:
        held = read(resolution.environment.name)
    except EnvbuildError:
        return resolution  # whoever needs the lock says what is wrong with it
    remarks = locks.other_cuda(held.lock) if held is not None else ()
    return replace(resolution, warnings=tuple(dict.fromkeys((*resolution.warnings, *remarks))))
