"""Finds the matrix's facts about each framework's build in an environment. The environment may also come from an old lock."""

from __future__ import annotations

from envbuild.matrix.pairs import pairs_with
from envbuild.matrix.types import LibraryNeed, Matrix, Variant
from envbuild.model.environment import Environment, Framework
from envbuild.model.resolution import Details, GpuCode, Upon
from envbuild.resolve.search.addon_builds import held_variants
from envbuild.resolve.search.lookup import lookup_of


def details_of(matrix: Matrix, environment: Environment) -> tuple[Details, ...]:
    """Return one entry per framework. An entry is empty if the framework's build no longer has a row in the matrix."""
    return tuple(_details(matrix, environment, framework) for framework in environment.frameworks)


def _details(matrix: Matrix, environment: Environment, framework: Framework) -> Details:
    variants = held_variants(lookup_of(matrix), framework)
    variant = next((variant for variant in variants if variant.name == framework.variant), None)
    if variant is None:
        return Details(upon=(), cudnn=None, nccl=None, compute_capability=None)
    known = variant.sass or variant.ptx or variant.only_ptx
    code = GpuCode(sass=variant.sass, ptx=variant.ptx, only_ptx=variant.only_ptx) if known else None
    alone = len(environment.frameworks) == 1
    return Details(
        upon=_upon(matrix, framework, variant),
        cudnn=_library(variant.cudnn, environment.cudnn, alone),
        nccl=_library(variant.nccl, environment.nccl, alone),
        compute_capability=code,
    )


def _upon(matrix: Matrix, framework: Framework, variant: Variant) -> tuple[Upon, ...]:
    found = []
    above = (framework.name, framework.version)
    for name, version, build in variant.upon:
        tables = (table for table in matrix.frameworks if table.name == above[0])
        release = next(release for table in tables for release in table.releases if release.version == above[1])
        pairs = pairs_with(release, name)
        is_tested = pairs is None or pairs.is_tested(version, variant.cuda)
        found.append(Upon(name=name, version=version, variant=build, pair="tested" if is_tested else "allowed"))
        above = (name, version)
    return tuple(found)


def _library(need: LibraryNeed | None, of_all: str | None, alone: bool) -> str | None:
    """The library version that a build uses. If several frameworks share the image, a build that brings its own library uses
    its own. In all other cases, a build uses the image's library (``of_all``)."""
    if need is None:
        return None
    return of_all if alone or need.taken_from == "system" else need.prefer or None
