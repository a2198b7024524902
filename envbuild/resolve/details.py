"""What the matrix tells of each framework's build in an environment, whether decided now or locked earlier."""

from __future__ import annotations

from envbuild.matrix.types import LibraryNeed, Matrix, Variant
from envbuild.model import ComputeCapability, Details, Environment, Framework, Upon


def details_of(matrix: Matrix, environment: Environment) -> tuple[Details, ...]:
    """One entry per framework; of a build that has no row any more, nothing is told."""
    return tuple(_details(environment, _variant(matrix, framework)) for framework in environment.frameworks)


def _variant(matrix: Matrix, framework: Framework) -> Variant | None:
    """The row of a framework's build."""
    releases = (release for table in matrix.frameworks if table.name == framework.name for release in table.releases)
    variants = (variant for release in releases if release.version == framework.version for variant in release.variants)
    return next((variant for variant in variants if variant.name == framework.variant), None)


def _details(environment: Environment, variant: Variant | None) -> Details:
    if variant is None:
        return Details(upon=(), cudnn=None, nccl=None, compute_capability=None)
    code = ComputeCapability(sass=variant.sass, ptx=variant.ptx) if variant.sass or variant.ptx else None
    alone = len(environment.frameworks) == 1
    return Details(
        upon=tuple(Upon(name=name, version=version, variant=build) for name, version, build in variant.upon),
        cudnn=_library(variant.cudnn, environment.cudnn, alone),
        nccl=_library(variant.nccl, environment.nccl, alone),
        compute_capability=code,
    )


def _library(need: LibraryNeed | None, of_all: str | None, alone: bool) -> str | None:
    """The library that a build uses: the image's, or, beside others, the one that it brings itself."""
    if need is None:
        return None
    return of_all if alone or need.taken_from == "system" else need.prefer or None
