"""Decide which releases of cuDNN and NCCL a build accepts, and which CUDA and GPUs a release supports."""

from __future__ import annotations

from collections.abc import Iterable

from envbuild.matrix.platform import LibraryRow
from envbuild.matrix.types import LibraryNeed, Variant
from envbuild.matrix.versions import numbers, serves


def accepts(need: LibraryNeed, version: str) -> bool:
    """Whether a release of a library satisfies a framework's need."""
    if need.exact:
        return numbers(version) == numbers(need.prefer)
    if need.minimum and numbers(version) < numbers(need.minimum):
        return False
    return not need.below or numbers(version) < numbers(need.below)


def needs(variant: Variant) -> list[tuple[str, LibraryNeed]]:
    """Return what a build needs of cuDNN and NCCL, as pairs of the library's name and the need."""
    return [(name, need) for name, need in (("cudnn", variant.cudnn), ("nccl", variant.nccl)) if need is not None]


def serves_cuda(row: LibraryRow, cuda: str) -> bool:
    """Whether a release of a library was built for a CUDA version."""
    return any(serves(cuda, entry) for entry in row.cuda)


def accepted_releases(rows: Iterable[LibraryRow], need: LibraryNeed, cuda: str) -> list[LibraryRow]:
    """The releases of a library that a need accepts and that exist for a CUDA version."""
    return [row for row in rows if accepts(need, row.version) and serves_cuda(row, cuda)]


def drops(row: LibraryRow, capability: str) -> bool:
    """Whether a release of a library no longer supports a compute capability, according to a document."""
    return bool(row.capability_min) and numbers(capability) < numbers(row.capability_min)


def describe(need: LibraryNeed) -> str:
    """Describe a need in words."""
    if need.exact:
        return need.prefer
    parts = [f">={need.minimum}" if need.minimum else "", f"<{need.below}" if need.below else ""]
    return ",".join(filter(None, parts)) or "of any version"
