"""What each choice was made over: the next best, and why it comes after. The order is the matrix's, as in choose.py."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from envbuild.matrix.platform import PythonRow
from envbuild.matrix.types import Variant
from envbuild.matrix.versions import numbers
from envbuild.model import Python
from envbuild.resolve.choose import Candidate, build_objections, mismatches, solutions
from envbuild.resolve.facts import Facts, row_of
from envbuild.resolve.places import Place, candidates, offers_on, places
from envbuild.resolve.request import Part, Request


@dataclass(frozen=True, kw_only=True, slots=True)
class Rival:
    """A choice, the next best in its place, and why that lost; ``source`` supports the reason."""

    choice: str
    next_best: str
    because: str
    source: str


def rivals(facts: Facts, request: Request, chosen: Candidate) -> tuple[Rival, ...]:
    """One for each choice that had another possibility, in the order in which the choices were made."""
    found = [*_version(facts, request, chosen), *_build(facts, request, chosen)]
    found += [*_python(facts, request, chosen), *_system(facts, request, chosen), *_base(facts, request, chosen)]
    return tuple([*found, *_libraries(facts, chosen)])


def _version(facts: Facts, request: Request, chosen: Candidate) -> Iterator[Rival]:
    name, ours = request.framework.name, chosen.release
    other = next((found.release for found in solutions(facts, request) if found.release != ours), None)
    if other is not None:
        order = request.framework.releases
        older = order.index(other) > order.index(ours)
        because = f"it is older ({other.released})" if older else "the request is the chosen one's own name"
        yield Rival(
            choice=f"{name} {ours.version}",
            next_best=f"{name} {other.version}",
            because=because,
            source=other.origin.source_of("released"),
        )


def _build(facts: Facts, request: Request, chosen: Candidate) -> Iterator[Rival]:
    ours = chosen.variant
    others = [variant for variant in chosen.release.variants if variant != ours]
    possible = [variant for variant in others if not build_objections(facts, request, chosen.release, variant)]
    other = next(iter([*possible, *others]), None)
    if other is None:
        return
    against = build_objections(facts, request, chosen.release, other)
    if against:
        because, source = against[0].conflict.reason, against[0].conflict.source
    else:
        because, source = _why_build(ours, other), other.origin.source_of("cuda")
    row = row_of(request.framework.name, chosen.release, ours)
    yield Rival(choice=row, next_best=row_of(request.framework.name, chosen.release, other), because=because, source=source)


def _why_build(ours: Variant, other: Variant) -> str:
    if ours.cuda and not other.cuda:
        return "a GPU build comes before the CPU build"
    if ours.default and not other.default:
        return f"upstream's own default is the build for CUDA {ours.cuda}"
    if numbers(other.cuda or "0") < numbers(ours.cuda or "0"):
        return f"CUDA {other.cuda} is older than {ours.cuda}"
    return "no place of it comes before the chosen one's"


def _others(facts: Facts, request: Request, chosen: Candidate, part: Part) -> Iterable[tuple[Place, bool]]:
    """The other places of the build that differ from the request in ``part`` alone, if at all; those that do not come first."""
    known = [(place, mismatches(request, place)) for place in places(facts, chosen.variant, request.image)]
    yield from ((place, False) for place, wrong in known if not wrong)
    yield from ((place, True) for place, wrong in known if wrong == (part,))


def _python(facts: Facts, request: Request, chosen: Candidate) -> Iterator[Rival]:
    ours = chosen.place.python
    for place, excluded in _others(facts, request, chosen, "python"):
        other = place.python
        if other.version == ours.version:
            continue
        row = facts.pythons.get(other.version)
        because = f"the request asks for {request.python.lstrip('=')}" if excluded else ""
        yield Rival(
            choice=f"python {ours.version}",
            next_best=f"python {other.version}",
            because=because or _why_python(facts, ours, other, row, place.system.name),
            source=row.origin.source if row else chosen.variant.origin.source_of("python"),
        )
        return


def _why_python(facts: Facts, ours: Python, other: Python, row: PythonRow | None, system: str) -> str:
    if ours.provided_by != other.provided_by:
        return f"no system that serves carries it: it would come from {other.provided_by} on {system}"
    mine = facts.pythons.get(ours.version)
    if mine and row and mine.preference != row.preference:
        return f"the matrix prefers Python {ours.version}"
    if numbers(other.version) < numbers(ours.version):
        return "it is older"
    return f"it comes with {system}, which the matrix puts after"


def _system(facts: Facts, request: Request, chosen: Candidate) -> Iterator[Rival]:
    ours = chosen.place
    for place, excluded in _others(facts, request, chosen, "system"):
        if place.system == ours.system or place.python.version != ours.python.version:
            continue
        if excluded:
            because = f"the request asks for {request.system_text or ours.system.name}"
        elif place.offer.deleted:
            because = "its image was deleted upstream"
        elif place.python.provided_by != ours.python.provided_by:
            because = f"it does not carry Python {ours.python.version}, which would come from {place.python.provided_by}"
        elif place.offer.preference != ours.offer.preference:
            because = f"its base ({place.offer.provider}) is not preferred to {ours.offer.provider} on {ours.system.name}"
        else:
            because = f"the matrix prefers {ours.system.name}"
        yield Rival(
            choice=f"os {ours.system.name}",
            next_best=f"os {place.system.name}",
            because=because,
            source=place.system.origin.source,
        )
        return


def _base(facts: Facts, request: Request, chosen: Candidate) -> Iterator[Rival]:
    ours = chosen.place
    choice = f"base {ours.offer.provider}"
    for place, excluded in _others(facts, request, chosen, "base"):
        same = place.system == ours.system and place.python == ours.python
        if not same or place.offer == ours.offer:
            continue
        row = place.offer.row
        if place.offer.deleted:
            because = f"the image {row.image if row else ''} was deleted upstream"
        else:
            because = f"the request asks for {request.base}" if excluded else "the matrix puts it after"
        source = row.origin.source if row else place.system.origin.source
        yield Rival(choice=choice, next_best=f"base {place.offer.provider}", because=because, source=source)
        return
    _, against = offers_on(facts, chosen.variant, ours.system, request.image)
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


def _libraries(facts: Facts, chosen: Candidate) -> Iterator[Rival]:
    variant, offer = chosen.variant, chosen.place.offer
    for name, need, ours in (("cudnn", variant.cudnn, offer.cudnn), ("nccl", variant.nccl, offer.nccl)):
        if need is None or ours is None or ours.row is None:
            continue
        other = next((row for row in candidates(facts, name, variant.cuda, need) if row.version != ours.version), None)
        if other is None:
            continue
        installable = any(item.system == chosen.place.system.name for item in other.apt) or ours.package is None
        if not installable:
            because = f"no package of it for {chosen.place.system.name} is in the matrix"
        elif ours.version == need.prefer:
            because = f"{variant.package} {chosen.release.version} prefers {need.prefer}"
        else:
            because = "it is older"
        yield Rival(
            choice=f"{name} {ours.version}", next_best=f"{name} {other.version}", because=because, source=other.origin.source
        )
