"""Checks whether the matrix still accepts an earlier decision. An accepted decision need not be what the matrix prefers
today."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from envbuild.errors import Conflict
from envbuild.matrix.libraries import accepts
from envbuild.matrix.types import Matrix, Variant
from envbuild.matrix.versions import numbers
from envbuild.model.environment import Environment, Framework, Python
from envbuild.resolve.search.addon_builds import held_variants, pins_upon
from envbuild.resolve.search.build import Build
from envbuild.resolve.search.compatibility import LIBRARIES, clashes, image_clashes, together
from envbuild.resolve.search.hardware import limit_objections
from envbuild.resolve.search.lookup import Lookup, lookup_of
from envbuild.resolve.search.objections import status_objection
from envbuild.resolve.search.placement import offers_on, system_objections
from envbuild.resolve.search.pythons import python_on


def recheck(matrix: Matrix, environment: Environment) -> list[Conflict]:
    """The objections of the current matrix to a decision; empty if the matrix still accepts the decision."""
    if not environment.frameworks:
        return [Conflict(row=environment.name, reason="the lock has no framework", source="")]
    lookup = lookup_of(matrix)
    levels = [_builds(lookup, environment, framework) for framework in environment.frameworks]
    if gone := [found for found in levels if isinstance(found, Conflict)]:
        return gone
    found = itertools.product(*(level for level in levels if not isinstance(level, Conflict)))
    options = [list(dict.fromkeys(_all(lookup, environment, builds))) for builds in found]
    return min(options, key=len)


def _builds(lookup: Lookup, environment: Environment, framework: Framework) -> list[Build] | Conflict:
    """Return the builds of the matrix that match a framework of the decision. If there is no such build, return a conflict."""
    row = f"{framework.name} {framework.version}"
    table = next((table for table in lookup.matrix.frameworks if table.name == framework.name), None)
    release = next((item for item in table.releases if item.version == framework.version), None) if table else None
    if table is None or release is None:
        return Conflict(row=row, reason="is no longer in the matrix", source=table.origin.source if table else "")
    cuda = environment.cuda_of(framework)
    found = [
        Build(framework=table, release=release, variant=variant, beside_gpus=not any(each.cuda for each in release.variants))
        for variant in held_variants(lookup, framework)
        if (variant.package, variant.cuda or None, variant.cuda_libraries)
        == (framework.package, cuda, framework.cuda_libraries)
    ]
    if found:
        return found
    reason = f"no longer has a build {framework.package} for {f'CUDA {cuda}' if cuda else 'CPU'}"
    return Conflict(row=row, reason=reason, source=release.origin.source)


def _all(lookup: Lookup, environment: Environment, builds: Sequence[Build]) -> Iterator[Conflict]:
    """Yield all conflicts. Each prefix is checked as a separate environment on the same image, with the system, CUDA and
    libraries of this image."""
    whole = together(builds)
    pairs = list(zip(builds, environment.frameworks, strict=True))
    sets = [[build for build, _ in pairs if build.framework.name in plan.frameworks] for plan in environment.plans()]
    for plan, ours in zip(environment.plans(), sets, strict=True):
        for build, framework in pairs:
            if build in ours:
                yield from _build(lookup, plan.python.version, framework, build)
                yield from _libraries(environment, build, whole)
        yield from (item.conflict for item in clashes(lookup, ours))
    for one, other in itertools.combinations(sets, 2):
        yield from (item.conflict for build in other for item in image_clashes(lookup, build, one))
    yield from _place(lookup, environment, whole)


def _build(lookup: Lookup, python: str, framework: Framework, build: Build) -> Iterator[Conflict]:
    row, variant = build.row, build.variant
    origin = variant.origin
    if origin.status == "known-bad":
        yield Conflict(row=row, reason=origin.why_bad, source=origin.source)
    if (cuda := lookup.cuda.get(variant.cuda)) and (bad := status_objection(cuda.key, cuda.origin)):
        yield bad.conflict
    yield from (item.conflict for item in limit_objections(lookup, variant))
    if python not in variant.python:
        reason = f"supports Python {', '.join(variant.python)}, but no longer {python}"
        yield Conflict(row=row, reason=reason, source=origin.source_of("python"))
    if variant.upon and not set(pins_upon(lookup.matrix, variant)) <= set(framework.requirements):
        name, version, _ = variant.upon[0]
        yield Conflict(
            row=row, reason=f"is based on {name} {version}, which the lock does not pin", source=origin.source_of("upon")
        )
    for own in variant.pins(build.release.version):
        if own not in framework.requirements:
            yield Conflict(row=row, reason=f"is now installed as {own}", source=origin.source_of("package"))
    if variant.index != framework.index:
        yield Conflict(row=row, reason=f"now comes from another index: {variant.index}", source=origin.source_of("index"))


def _libraries(environment: Environment, build: Build, whole: Variant) -> Iterator[Conflict]:
    """Yield a conflict for each library of the decision that a build does not accept. If a build brings its own copy of a
    library, this copy is not checked."""
    for name in LIBRARIES:
        need, version = getattr(build.variant, name), getattr(environment, name)
        theirs = need is not None and need != getattr(whole, name) and need.taken_from != "system"
        if need is not None and version is not None and not theirs and not accepts(need, version):
            reason = f"no longer accepts {name} {version}"
            yield Conflict(row=build.row, reason=reason, source=build.variant.origin.source_of(name))


def _place(lookup: Lookup, environment: Environment, variant: Variant) -> Iterator[Conflict]:
    base = environment.base
    system = lookup.systems.get(environment.system.name)
    if system is None:
        yield Conflict(row=f"system {environment.system.name}", reason="is no longer in the matrix", source="")
        return
    image = base.image if base.provider == "local" else ""
    yield from (item.conflict for item in system_objections(variant, system))
    if numbers(system.glibc) != numbers(environment.system.glibc):
        reason = f"has glibc {system.glibc}, but the lock says {environment.system.glibc}"
        yield Conflict(row=system.key, reason=reason, source=system.origin.source)
    for python in dict.fromkeys(plan.python for plan in environment.plans()):
        found = python_on(lookup, python.version, system, image, python.provided_by)
        if not isinstance(found, Python):
            yield found.conflict
    offers, against = offers_on(lookup, variant, system, image)
    serving = [offer for offer in offers if offer.provider == base.provider]
    if not serving:
        reason = f"{base.provider} no longer provides CUDA {environment.cuda or 'none'} here"
        ours = against.get(base.provider, against.get(""))
        yield ours.conflict if ours else Conflict(row=system.key, reason=reason, source=system.origin.source)
    elif base.provider == "tag" and base.image not in {offer.row.image for offer in serving if offer.row}:
        yield Conflict(row=system.key, reason=f"no longer lists the image {base.image}", source=system.origin.source)
