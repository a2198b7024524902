"""Finds the runner-up of each choice, and the reason why the runner-up lost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from envbuild.matrix.gpu_code import code_for
from envbuild.matrix.platform import PythonRow
from envbuild.matrix.types import Variant
from envbuild.matrix.versions import numbers, within
from envbuild.model.environment import Python
from envbuild.resolve.request.model import BASE, PYTHON, SYSTEM, Part
from envbuild.resolve.search.addon_builds import siblings
from envbuild.resolve.search.build import Build
from envbuild.resolve.search.candidates import Candidate, build_objections, mismatches
from envbuild.resolve.search.compatibility import clashes_with, together
from envbuild.resolve.search.hardware import expected_driver, only_by_compatibility
from envbuild.resolve.search.lookup import Lookup
from envbuild.resolve.search.objections import Objection
from envbuild.resolve.search.placement import Place, library_releases, offers_on, places
from envbuild.resolve.search.release_order import wider_patch
from envbuild.resolve.search.search import Search, for_gpus


@dataclass(frozen=True, kw_only=True, slots=True)
class Rival:
    """A choice, its runner-up (``next_best``), and why the runner-up lost. ``source`` is the document behind the reason."""

    choice: str
    next_best: str
    because: str
    source: str


def rivals(search: Search, chosen: Candidate) -> tuple[Rival, ...]:
    """Return one runner-up for each choice that had an alternative, in the order in which the choices were made."""
    found: list[Rival] = []
    for build in chosen.builds:
        found += [*_version(search, chosen, build), *_build(search, chosen, build)]
    found += [*_python(search, chosen), *_system(search, chosen), *_base(search, chosen)]
    return tuple([*found, *_libraries(search, chosen)])


def _version(search: Search, chosen: Candidate, build: Build) -> Iterator[Rival]:
    """Yield the runner-up for the version of a framework. The choices for frameworks that come earlier in the request stay the
    same."""
    name, ours = build.framework.name, build.release
    earlier = chosen.builds[: chosen.builds.index(build)]
    gpu = len(chosen.builds) > 1 and all(for_gpus(each) for each in chosen.builds)

    def another(other: Build) -> bool:
        if gpu and not for_gpus(other):
            return False
        kept = next((each for each in earlier if each.framework is other.framework), None)
        return other == kept if kept else other.framework is not build.framework or other.release != ours

    candidate = next(search.solutions(only=another), None)
    if candidate is not None:
        other = candidate.builds[len(earlier)].release
        order = build.framework.releases
        older = order.index(other) > order.index(ours)
        because = f"it is older ({other.released})" if older else _why_newer_lost(search, build, candidate.builds[len(earlier)])
        yield Rival(
            choice=f"{name} {ours.version}",
            next_best=f"{name} {other.version}",
            because=because,
            source=other.origin.source_of("released"),
        )


def _why_newer_lost(search: Search, ours: Build, newer: Build) -> str:
    """Why a newer release comes after the chosen release in the order of choice."""
    for capability in search.request.capabilities:
        if code_for(ours.variant, capability) == "native" != code_for(newer.variant, capability):
            return f"it has no native code for GPUs of compute capability {capability}"
    if wider_patch(newer.release, newer.framework.releases) is not None:
        return (
            f"it has native code for far fewer GPUs ({', '.join(newer.variant.sass)}) than earlier patch releases of "
            "its minor version"
        )
    return "the request is the full name of the chosen environment"


def _build(search: Search, chosen: Candidate, build: Build) -> Iterator[Rival]:
    others = [replace(build, variant=variant) for variant in siblings(search.lookup, build) if variant != build.variant]
    against = {other.row: _against(search, chosen, build, other) for other in others}
    other = next(iter(sorted(others, key=lambda other: bool(against[other.row]))), None)
    if other is None:
        return
    if found := against[other.row]:
        conflict = min((item.conflict for item in found), key=lambda conflict: conflict.row != other.row)
        because = conflict.reason if conflict.row == other.row else f"{conflict.row}: {conflict.reason}"
        source = conflict.source
    else:
        because, source = _why_build(search, chosen, build.variant, other.variant), other.variant.origin.source_of("cuda")
    yield Rival(choice=build.row, next_best=other.row, because=because, source=source)


def _against(search: Search, chosen: Candidate, build: Build, other: Build) -> list[Objection]:
    """Return the objections to using the build ``other`` instead of ``build``."""
    alone = build_objections(search.lookup, search.request, other)
    return alone or clashes_with(search.lookup, other, [each for each in chosen.builds if each != build])


def _why_build(search: Search, chosen: Candidate, ours: Variant, other: Variant) -> str:
    cudas = {build.variant.cuda for build in chosen.builds}
    if len(chosen.builds) > 1 and other.cuda and other.cuda != ours.cuda and cudas <= {ours.cuda, ""}:
        return f"all frameworks use CUDA {ours.cuda}"
    if ours.cuda and not other.cuda:
        return "a GPU build is preferred to the CPU build"
    if ours.default and not other.default:
        return f"the build for CUDA {ours.cuda} is upstream's own default"
    if only_by_compatibility(search.lookup, search.request, ours, [other]):
        _, driver = expected_driver(search.lookup, search.request)
        return f"{driver} runs CUDA {other.cuda} only by minor-version compatibility"
    if numbers(other.cuda or "0") < numbers(ours.cuda or "0"):
        return f"CUDA {other.cuda} is older than CUDA {ours.cuda}"
    return "it needs another base or system, which the matrix does not prefer to the chosen one"


def _others(search: Search, chosen: Candidate, part: Part) -> Iterable[tuple[Place, bool]]:
    """Yield places for the chosen builds, each with a boolean. First come the places that satisfy the whole request, with
    False. Then come the places that violate the request only in ``part``, with True."""
    request = search.request
    asked = (request.cudnn, request.nccl)
    found = places(search.lookup, _whole(chosen), request.image, asked, request.python_from, gpus=request.capabilities)
    known = [(place, mismatches(request, place)) for place in found]
    yield from ((place, False) for place, wrong in known if not wrong)
    yield from ((place, True) for place, wrong in known if wrong == (part,))


def _whole(chosen: Candidate) -> Variant:
    return together(chosen.builds)


def _python(search: Search, chosen: Candidate) -> Iterator[Rival]:
    lookup, request, ours = search.lookup, search.request, chosen.place.python
    for place, excluded in _others(search, chosen, PYTHON):
        other = place.python
        if other.version == ours.version:
            continue
        row = lookup.pythons.get(other.version)
        because = f"the request asks for {request.python.lstrip('=')}" if excluded else ""
        yield Rival(
            choice=f"python {ours.version}",
            next_best=f"python {other.version}",
            because=because or _why_python(lookup, ours, other, row, place.system.name),
            source=row.origin.source if row else chosen.builds[0].variant.origin.source_of("python"),
        )
        return


def _why_python(lookup: Lookup, ours: Python, other: Python, row: PythonRow | None, system: str) -> str:
    if ours.provided_by != other.provided_by:
        return f"no suitable system contains it; {other.provided_by} would have to install it on {system}"
    mine = lookup.pythons.get(ours.version)
    if mine and row and mine.preference != row.preference:
        return f"the matrix prefers Python {ours.version}"
    if numbers(other.version) < numbers(ours.version):
        return "it is older"
    return f"it is the Python of {system}, and the matrix prefers another system"


def _system(search: Search, chosen: Candidate) -> Iterator[Rival]:
    request, ours = search.request, chosen.place
    for place, excluded in _others(search, chosen, SYSTEM):
        if place.system == ours.system or place.python.version != ours.python.version:
            continue
        if excluded:
            because = f"the request asks for {request.system_text or ours.system.name}"
        elif place.offer.deleted:
            because = "its image was deleted upstream"
        elif place.python.provided_by != ours.python.provided_by:
            because = f"it does not contain Python {ours.python.version}; {place.python.provided_by} would have to install it"
        elif place.offer.preference != ours.offer.preference:
            because = (
                f"on {place.system.name}, the base would come from the provider {place.offer.provider}; the matrix prefers the "
                f"provider {ours.offer.provider} on {ours.system.name}"
            )
        else:
            because = f"the matrix prefers {ours.system.name}"
        yield Rival(
            choice=f"os {ours.system.name}",
            next_best=f"os {place.system.name}",
            because=because,
            source=place.system.origin.source,
        )
        return


def _base(search: Search, chosen: Candidate) -> Iterator[Rival]:
    request, ours = search.request, chosen.place
    choice = f"base {ours.offer.provider}"
    for place, excluded in _others(search, chosen, BASE):
        same = place.system == ours.system and place.python == ours.python
        if not same or place.offer == ours.offer:
            continue
        row = place.offer.row
        if place.offer.deleted:
            because = f"the image {row.image if row else ''} was deleted upstream"
        else:
            because = (
                f"the request asks for {request.base}" if excluded else f"the matrix prefers the provider {ours.offer.provider}"
            )
        source = row.origin.source if row else place.system.origin.source
        yield Rival(choice=choice, next_best=f"base {place.offer.provider}", because=because, source=source)
        return
    _, against = offers_on(search.lookup, _whole(chosen), ours.system, request.image)
    for provider, item in against.items():
        if provider and provider != ours.offer.provider:
            conflict = item.conflict
            yield Rival(
                choice=choice,
                next_best=f"base {provider}",
                because=f"{conflict.row}: {conflict.reason}",
                source=conflict.source,
            )
            return


def _who_prefers(chosen: Candidate, library: str, version: str) -> str:
    needs = [(build, getattr(build.variant, library)) for build in chosen.builds]
    build = next((build for build, need in needs if need is not None and need.prefer == version), chosen.builds[0])
    return f"{build.variant.package} {build.release.version}"


def _libraries(search: Search, chosen: Candidate) -> Iterator[Rival]:
    lookup, request = search.lookup, search.request
    variant, offer = _whole(chosen), chosen.place.offer
    asked = (("cudnn", variant.cudnn, offer.cudnn, request.cudnn), ("nccl", variant.nccl, offer.nccl, request.nccl))
    for name, need, ours, clauses in asked:
        if need is None or ours is None or ours.row is None:
            continue
        other = next((row for row in library_releases(lookup, name, variant.cuda, need) if row.version != ours.version), None)
        if other is None:
            continue
        installable = any(item.system == chosen.place.system.name for item in other.apt) or ours.package is None
        if not installable:
            because = f"the matrix has no package of this version for {chosen.place.system.name}"
        elif clauses and not within(other.version, clauses):
            because = f"the request asks for {clauses.lstrip('=')}"
        elif ours.version == need.prefer:
            because = f"{_who_prefers(chosen, name, need.prefer)} prefers {need.prefer}"
        else:
            because = "it is older"
        yield Rival(
            choice=f"{name} {ours.version}", next_best=f"{name} {other.version}", because=because, source=other.origin.source
        )
