"""What a lock says beside the decision: libraries of another CUDA than the environment is named for."""

from __future__ import annotations

from dataclasses import replace

from envbuild.model import Lock, Resolution


def with_remarks(resolution: Resolution, held: Lock | None) -> Resolution:
    """``resolution`` with a warning for what its lock, where there is one, holds of another CUDA."""
    from envbuild import lock as locks

    remarks = locks.other_cuda(held) if held is not None else ()
    return replace(resolution, warnings=tuple(dict.fromkeys((*resolution.warnings, *remarks))))
