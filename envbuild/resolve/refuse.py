"""Why nothing satisfies a request, and what nearly would."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from envbuild.errors import Alternative, Conflict, ConflictError
from envbuild.matrix.platform import SystemRow
from envbuild.matrix.types import Release, Variant
from envbuild.matrix.versions import within
from envbuild.model import Python
from envbuild.resolve.choose import Candidate, build_objections, mismatches
from envbuild.resolve.core import cores, restricted
from envbuild.resolve.decide import environment_of
from envbuild.resolve.facts import Facts, Objection, objection, row_of
from envbuild.resolve.nearby import driver_window, nearest_board
from envbuild.resolve.places import Place, describe, offers_on, places, python_on, system_objections
from envbuild.resolve.request import Part, Request, version_parts

_SHOWN_CONFLICTS = 8
_SHOWN_ALTERNATIVES = 5
# How much a change asks of a person: another base or Python is little, another driver or giving up the GPU is much.
_WEIGHTS: dict[Part, int] = {
    "base": 1, "cudnn": 1, "nccl": 1, "python": 2, "system": 2, "version": 3, "cuda": 4, "driver": 8, "gpu": 12
}  # fmt: skip

_WORDS: dict[Part, str] = {
    "cuda": "CUDA version", "cudnn": "cuDNN version", "nccl": "NCCL version", "python": "Python version",
    "system": "operating system", "gpu": "GPU",
}  # fmt: skip


def refusal(facts: Facts, request: Request) -> ConflictError:
    """The error for a request that nothing satisfies."""
    # Version and CUDA are kept even where others conflict without them: the facts shown are about what was named.
    told = [
        (core, conflicts(facts, restricted(request, {*core, "version", "cuda", *base})))
        for core in cores(facts, request)
        for base in ((), ("base",))
    ]
    core, found = min(told, key=lambda pair: len(pair[1]))
    nearest = alternatives(facts, request)
    shown = f" The nearest that works: {nearest[0].name} ({nearest[0].changes})." if nearest else ""
    because = f": {found[0].row}: {found[0].reason}" if found else ""
    return ConflictError(
        f"No combination satisfies {request.text}{because}.",
        hint=f"{_change(core)}{shown}",
        conflicts=found,
        alternatives=nearest,
    )


def _change(core: tuple[Part, ...]) -> str:
    """Which parts stand against each other, in words."""
    words = [_WORDS.get(part, part) for part in core]
    if not words:
        return "No environment of it can be made at all."
    if len(words) == 1:
        return f"Change the {words[0]}: nothing of the framework goes with it."
    return f"Change the {', the '.join(words[:-1])} or the {words[-1]}: these do not go together."


def conflicts(facts: Facts, request: Request) -> list[Conflict]:
    """The facts against the candidate that has the fewest of them, among those that the request names."""
    best: list[Objection] = []
    premises: list[Conflict] = []
    fewest: tuple[int, int] | None = None
    for release in request.framework.releases:
        if not request.accepts_release(release):
            continue
        for variant in release.variants:
            against = build_objections(facts, request, release, variant)
            rest = _place_conflicts(facts, request, release, variant)
            unasked = 0 if request.accepts_cuda(variant.cuda) else 1
            score = (unasked, len(against) + len(rest))
            if fewest is None or score < fewest:
                best, fewest = against + rest, score
                premises = _premises(request, release, variant, best)
    return list(dict.fromkeys([*(item.conflict for item in best), *premises]))[:_SHOWN_CONFLICTS]


def _premises(request: Request, release: Release, variant: Variant, against: list[Objection]) -> list[Conflict]:
    """What the build's own row says that the objections of other rows rest on; not what the request itself says."""
    known: dict[str, str] = {
        "cuda": "" if request.cuda.startswith("==") else f"is built for CUDA {variant.cuda}",
        "glibc": f"needs glibc {variant.glibc} or newer",
        "python": "" if request.python.startswith("==") else f"supports Python {', '.join(variant.python)}",
        "cudnn": f"needs cuDNN {describe(variant.cudnn)}" if variant.cudnn else "",
        "nccl": f"needs NCCL {describe(variant.nccl)}" if variant.nccl else "",
    }
    row = row_of(request.framework.name, release, variant)
    wanted = dict.fromkeys(item.premise for item in against if known.get(item.premise))
    return [Conflict(row=row, reason=known[field], source=variant.origin.source_of(field)) for field in wanted]


def _place_conflicts(facts: Facts, request: Request, release: Release, variant: Variant) -> list[Objection]:
    """The fewest facts against putting a build where the request wants it."""
    if any(not mismatches(request, place) for place in places(facts, variant, request.image)):
        return []
    served = {place.system.name for place in places(facts, variant, request.image)}
    wanted = request.systems or served
    systems = [row for row in facts.matrix.systems if not wanted or row.name in wanted]
    pythons = list(variant.python)
    unsupported: list[Objection] = []
    if request.python and not any(within(version, request.python) for version in pythons):
        row = row_of(request.framework.name, release, variant)
        reason = f"supports Python {', '.join(variant.python)}; the request asks for {request.python.lstrip('=')}"
        unsupported = [objection("python", row, reason, variant.origin.source_of("python"))]
    elif request.python:
        pythons = [version for version in pythons if within(version, request.python)]
    options = [[*unsupported, *_system_conflicts(facts, request, variant, system, pythons)] for system in systems]
    return min(options, key=len, default=unsupported)


def _system_conflicts(
    facts: Facts, request: Request, variant: Variant, system: SystemRow, pythons: list[str]
) -> list[Objection]:
    """What speaks against one system, with any of ``pythons``."""
    found = system_objections(variant, system)
    supplied = [python_on(facts, version, system, request.image) for version in pythons]
    bad = [item for item in supplied if isinstance(item, Objection) and item.conflict.row != system.key]
    if bad and len(bad) == len(supplied):
        found.extend(bad)
    elif not any(isinstance(item, Python) for item in supplied):
        carried = ", ".join(python.version for python in system.pythons) or "none"
        reason = f"carries Python {carried}; {variant.package} ({variant.name}) would need {', '.join(pythons)}"
        found.append(objection("python", system.key, reason, system.origin.source_of("pythons"), "python"))
    found.extend(_offer_conflicts(facts, request, variant, system))
    return found


def _offer_conflicts(facts: Facts, request: Request, variant: Variant, system: SystemRow) -> list[Objection]:
    offers, against = offers_on(facts, variant, system, request.image)
    if not offers:
        return list(against.values())[:1]
    found: list[Objection] = []
    if request.base in against:
        found.append(against[request.base])
    elif request.base and request.base not in {offer.provider for offer in offers}:
        has = ", ".join(dict.fromkeys(offer.provider for offer in offers))
        reason = f"{variant.package} ({variant.name}) on {system.name} is served by {has}, not by {request.base}"
        found.append(objection("base", system.key, reason, system.origin.source))
    elif not request.base and all(offer.deleted for offer in offers):
        row = offers[0].row
        image, source = (row.image, row.origin.source) if row else ("", "")
        reason = f"{image} was deleted upstream, and nothing else serves; --base {offers[0].provider} insists on it"
        found.append(objection("base", f"cuda {variant.cuda} {offers[0].provider} {system.name}", reason, source))
    for part, wanted in (("cudnn", request.cudnn), ("nccl", request.nccl)):
        versions = dict.fromkeys(library.version for offer in offers if (library := getattr(offer, part)))
        if wanted and not any(within(version, wanted) for version in versions):
            reason = f"{variant.package} ({variant.name}) comes with {part} {', '.join(versions) or 'none'}, not {wanted}"
            source = variant.origin.source_of(part)
            found.append(objection("cudnn" if part == "cudnn" else "nccl", f"{part} on {system.name}", reason, source))
    return found


@dataclass(frozen=True, slots=True)
class _Near:
    candidate: Candidate
    changed: tuple[Part, ...]
    distance: tuple[int, ...]

    @property
    def rank(self) -> tuple[int, int, tuple[int, ...]]:
        return sum(_WEIGHTS[part] for part in self.changed), len(self.changed), self.distance


def alternatives(facts: Facts, request: Request) -> list[Alternative]:
    """Requests that would work, the least change first; for each set of changed parts the nearest one."""
    best: dict[tuple[Part, ...], _Near] = {}
    for near in _nearby(facts, request):
        known = best.get(near.changed)
        if known is None or near.rank < known.rank:
            best[near.changed] = near
    found: dict[str, Alternative] = {}
    for near in sorted(best.values(), key=lambda item: item.rank):
        if any(set(other) < set(near.changed) for other in best) or (found and len(near.changed) > 3):
            continue  # it gives up more than another does, or is another request altogether
        free = replace(
            request, base="" if "base" in near.changed else request.base, image="" if "base" in near.changed else request.image
        )
        name = environment_of(facts, free, near.candidate).name
        found.setdefault(name, Alternative(name=name, changes=_describe(facts, request, near)))
    return list(found.values())[:_SHOWN_ALTERNATIVES]


def _nearby(facts: Facts, request: Request) -> Iterator[_Near]:
    releases = request.framework.releases
    distances = _distances(request)
    for release in releases:
        matches = request.accepts_release(release)
        away = distances[release.version]
        for variant in release.variants:
            changed = _changed_by_build(facts, request, release, variant)
            if changed is None or (request.image and variant.cuda_libraries == "none" and request.device == "gpu"):
                continue
            if "driver" in changed and driver_window(facts, request, variant, "gpu" in changed) is None:
                continue
            if not matches:
                changed.add("version")
            for more, place in _changed_by_place(facts, request, variant):
                order: tuple[Part, ...] = tuple(part for part in _WEIGHTS if part in changed or part in more)
                candidate = Candidate(release=release, variant=variant, place=place)
                yield _Near(candidate, order, (*away, _cuda_distance(request, variant)))


def _changed_by_build(facts: Facts, request: Request, release: Release, variant: Variant) -> set[Part] | None:
    """The parts that a build would change; None where it is of no use to anyone."""
    changed: set[Part] = set()
    for item in build_objections(facts, request, release, variant):
        if item.part is None:
            return None
        changed.add(item.part)
    if "cuda" in changed and not variant.cuda and (request.driver or request.gpus):
        return None  # who names a GPU is not helped by an environment without it
    return changed


def _changed_by_place(facts: Facts, request: Request, variant: Variant) -> Iterator[tuple[tuple[Part, ...], Place]]:
    """For each set of parts that a place would change, the best such place."""
    seen: set[tuple[Part, ...]] = set()
    options: Iterable[Place] = places(facts, variant, request.image)
    if request.image:
        options = itertools.chain(options, places(facts, variant))
    for place in options:
        more = mismatches(request, place)
        if more not in seen and not (place.offer.deleted and "base" in more):
            seen.add(more)
            yield more, place


def _distances(request: Request) -> dict[str, tuple[bool, int]]:
    """How far each release is from those asked for: another major, and how many lines (X.Y for X.Y) lie between."""
    wanted = version_parts(request.version.split(",")[0])
    releases = request.framework.releases
    line_of = {release.version: tuple(version_parts(release.version)[: len(wanted)]) for release in releases}
    place = {line: index for index, line in enumerate(dict.fromkeys(line_of.values()))}
    matching = {place[line_of[release.version]] for release in releases if request.accepts_release(release)}
    return {
        version: (line[:1] != tuple(wanted[:1]), min((abs(place[line] - other) for other in matching), default=0))
        for version, line in line_of.items()
    }


def _cuda_distance(request: Request, variant: Variant) -> int:
    wanted = [int(part) for part in request.cuda.lstrip("=<>!~").split(",")[0].split(".")[:2] if part.isdecimal()]
    if not wanted or not variant.cuda:
        return 0
    major, minor = (int(part) for part in variant.cuda.split("."))
    return abs((wanted[0] - major) * 100 + (wanted[1] - minor if len(wanted) > 1 else 0))


def _describe(facts: Facts, request: Request, near: _Near) -> str:
    return ", ".join(_describe_part(facts, request, near, part) for part in near.changed) or "nothing"


def _describe_gpu(facts: Facts, request: Request, candidate: Candidate) -> str:
    variant = candidate.variant
    instead = f"instead of {', '.join(gpu.text for gpu in request.gpus)}"
    board = nearest_board(facts, request, row_of(request.framework.name, candidate.release, variant), variant)
    code = ", ".join(variant.sass or (f"PTX {entry}" for entry in variant.ptx))
    holds = f"; its GPU code is for {code}" if code else ""
    return f"on {f'a {board.name} ({board.architecture}, {board.capability})' if board else 'another GPU'} {instead}{holds}"


def _describe_part(facts: Facts, request: Request, near: _Near, part: Part) -> str:
    candidate = near.candidate
    place, variant = candidate.place, candidate.variant
    asked = {
        "version": request.version, "cuda": request.cuda, "python": request.python, "system": request.system_text,
        "base": request.image or request.base, "cudnn": request.cudnn, "nccl": request.nccl,
    }.get(part, "").lstrip("=")  # fmt: skip
    ours = {
        "version": f"version {candidate.release.version}",
        "cuda": f"CUDA {variant.cuda}" if variant.cuda else "CPU",
        "python": f"Python {place.python.version}",
        "system": place.system.name,
        "base": f"base {place.offer.provider}",
        "cudnn": f"cuDNN {place.offer.cudnn.version if place.offer.cudnn else 'none'}",
        "nccl": f"NCCL {place.offer.nccl.version if place.offer.nccl else 'none'}",
    }.get(part, "")
    if part == "driver":
        return f"needs {driver_window(facts, request, variant, 'gpu' in near.changed)} instead of {request.driver}"
    if part == "gpu":
        return _describe_gpu(facts, request, candidate)
    if part == "cuda":
        asked = f"CUDA {asked}" if asked else "CPU" if request.device == "cpu" else "a GPU"
    return f"{ours} instead of {asked}"
