"""What a framework's need of cuDNN or NCCL accepts: the one rule that checking and resolving share."""

from __future__ import annotations

from envbuild.matrix.types import LibraryNeed
from envbuild.matrix.versions import numbers


def accepts(need: LibraryNeed, version: str) -> bool:
    """Whether a release of a library is what a framework needs."""
    if need.exact:
        return numbers(version) == numbers(need.prefer)
    if need.minimum and numbers(version) < numbers(need.minimum):
        return False
    return not need.below or numbers(version) < numbers(need.below)
