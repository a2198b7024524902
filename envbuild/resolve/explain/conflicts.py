"""Finds the objections to the requested builds: to each build alone, to each pair, and to each place where they could run."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from envbuild.matrix.placement import bases_on
from envbuild.matrix.platform import SystemRow
from envbuild.matrix.types import Variant
from envbuild.matrix.versions import within
from envbuild.model.environment import Python
from envbuild.resolve.request.model import BASE, CUDA, CUDNN, NCCL, PYTHON, SYSTEM, Request, Wanted
from envbuild.resolve.search.build import Build
from envbuild.resolve.search.candidates import cuda_objections, mismatches
from envbuild.resolve.search.compatibility import clashes, package_clashes, together
from envbuild.resolve.search.lookup import Lookup
from envbuild.resolve.search.objections import Objection, objection
from envbuild.resolve.search.placement import offers_on, places, system_objections
from envbuild.resolve.search.pythons import python_on
from envbuild.resolve.search.search import Option, Search

_COMPARED = 1000  # all combinations of builds are compared only up to this number


@dataclass(frozen=True, slots=True)
class Case:
    """The conflicts of a combination of builds.

    ``placement_only`` is true for a single build, and for several builds that conflict only with the place where they should
    run. ``unasked`` is true if the request did not ask for such builds. Then a build is not for the requested device or CUDA,
    or builds for CPUs and for GPUs are mixed.
    """

    builds: tuple[Build, ...]
    against: list[Objection]
    unasked: bool
    placement_only: bool

    @property
    def score(self) -> tuple[bool, int]:
        """The sort key of a case; a lower score is nearer to the request."""
        return self.unasked, len({item.conflict for item in self.against})


def fewest(search: Search) -> Case | None:
    """The combination of requested builds with the fewest conflicts; the first such combination if there are several.

    If there are too many combinations to try all, return a combination that cannot be improved by replacing a single build.
    """
    scorer = _CaseScorer(search)
    levels = [scorer.kinds(wanted) for wanted in search.request.wanted]
    if not all(levels):
        return None
    if math.prod(map(len, levels)) <= _COMPARED:
        fewest_yet: Case | None = None
        for options in itertools.product(*levels):
            fewest_yet = scorer.better(options, fewest_yet) or fewest_yet
        return fewest_yet
    chosen = [level[0] for level in levels]
    best, before = scorer.better(chosen, None), None
    while best is not None and best is not before:
        before = best
        for index, level in enumerate(levels):
            for option in level:
                tried = [*chosen[:index], option, *chosen[index + 1 :]]
                if (better := scorer.better(tried, best)) is not None:
                    best, chosen = better, tried
    return best


class _CaseScorer:
    """Scores cases. The conflicts between two builds are computed only once."""

    def __init__(self, search: Search) -> None:
        self._search = search
        self._clashes: dict[tuple[object, ...], list[Objection]] = {}

    def kinds(self, wanted: Wanted) -> list[Option]:
        """The builds of a framework. If the request names several frameworks, and several builds have equal needs and
        objections, return only the first of these builds."""
        options = list(self._search.options(wanted))
        if len(self._search.request.wanted) == 1:
            return options
        kinds: dict[object, Option] = {}
        for option in options:
            kinds.setdefault((option.need, tuple((item.part, item.other_part) for item in option.objections)), option)
        return list(kinds.values())

    def better(self, options: Sequence[Option], best: Case | None) -> Case | None:
        """Return the case of the builds ``options`` if its score is lower than that of ``best``; else None.

        Places are checked last, because this check takes longest and can only raise the score.
        """
        request, lookup = self._search.request, self._search.lookup
        builds = tuple(option.build for option in options)
        against = [item for option in options for item in option.objections]
        for pair in itertools.combinations(builds, 2):
            against += self._pair(*pair)
        if request.device == "gpu" and all(build.beside_gpus for build in builds):
            against += [_no_gpu(build) for build in builds]
        mixed = {"cpu", "gpu"} <= {option.need.device for option in options}
        unasked = mixed or any(True for build in builds for _ in cuda_objections(request, build))
        placement_only = len(builds) == 1 or not against
        case = Case(builds, against, unasked, placement_only)
        if best is not None and case.score >= best.score:
            return None
        if placement_only:
            case = replace(case, against=[*against, *_place_conflicts(lookup, request, builds)])
        return case if best is None or case.score < best.score else None

    def _pair(self, one: Build, other: Build) -> list[Objection]:
        key = (one.row, one.variant.upon, other.row, other.variant.upon)
        if key not in self._clashes:
            self._clashes[key] = clashes(self._search.lookup, (one, other))
        return self._clashes[key]


def _no_gpu(build: Build) -> Objection:
    reason = "all frameworks in the request have only CPU builds, but the request asks for a GPU environment"
    return objection(CUDA, build.row, reason, build.variant.origin.source_of("cuda"))


def _place_conflicts(lookup: Lookup, request: Request, builds: Sequence[Build]) -> list[Objection]:
    """The conflicts of builds with the place that the request names. If several systems are possible, return the conflicts with
    the system that has the fewest conflicts."""
    variant = together(builds)
    possible = places(
        lookup, variant, request.image, (request.cudnn, request.nccl), request.python_from, gpus=request.capabilities
    )
    if any(not mismatches(request, place) for place in possible):
        return []
    wanted = request.systems or _with_base(lookup, request, variant) or {place.system.name for place in possible}
    systems = [row for row in lookup.matrix.systems if not wanted or row.name in wanted]
    pythons = list(variant.python)
    unsupported: list[Objection] = []
    if request.python and not any(within(version, request.python) for version in pythons):
        unsupported = list(_unsupported(request, builds))
    elif request.python:
        pythons = [version for version in pythons if within(version, request.python)]
    options = [[*unsupported, *_system_conflicts(lookup, request, variant, system, pythons)] for system in systems]
    nowhere = [objection(SYSTEM, builds[0].row, "the matrix has no operating system", builds[0].variant.origin.source)]
    return min(options, key=len, default=unsupported or nowhere)


def _with_base(lookup: Lookup, request: Request, variant: Variant) -> set[str]:
    """The systems on which the requested provider has rows for the CUDA of a build; empty if the request names no provider."""
    cuda = lookup.cuda.get(variant.cuda)
    if not request.base or request.image or cuda is None:
        return set()
    return {system.name for system in lookup.matrix.systems for row in bases_on(cuda, system) if row.provider == request.base}


def _unsupported(request: Request, builds: Sequence[Build]) -> Iterator[Objection]:
    """Yield objections to the requested Python. If some builds do not support it, the objections come from these builds. Else
    they come from packages that conflict on this Python. Without such packages, they come from all builds, because the builds
    have no requested Python in common."""
    without = [build for build in builds if not any(within(version, request.python) for version in build.variant.python)]
    for one, other in () if without else itertools.combinations(builds, 2):
        asked = [python for python in one.variant.python if python in other.variant.python and within(python, request.python)]
        against = [item._replace(part=PYTHON) for item in package_clashes((one, other), asked)]
        yield from against
        if against:
            return
    for build in without or builds:
        variant = build.variant
        reason = f"supports Python {', '.join(variant.python)}; the request asks for {request.python.lstrip('=')}"
        yield objection(PYTHON, build.row, reason, variant.origin.source_of("python"))


def _system_conflicts(
    lookup: Lookup, request: Request, variant: Variant, system: SystemRow, pythons: list[str]
) -> list[Objection]:
    """The conflicts of a build with one operating system that remain for every Python in ``pythons``."""
    found = system_objections(variant, system)
    supplied = [python_on(lookup, version, system, request.image, request.python_from) for version in pythons]
    bad = [item for item in supplied if isinstance(item, Objection) and item.conflict.row != system.key]
    if bad and len(bad) == len(supplied):
        found.extend(bad)
    elif request.python_from and not any(isinstance(item, Python) for item in supplied):
        found.extend(dict.fromkeys(item for item in supplied if isinstance(item, Objection)))
    elif not any(isinstance(item, Python) for item in supplied):
        carried = ", ".join(python.version for python in system.pythons) or "none"
        reason = f"has Python {carried}; {variant.package} ({variant.name}) needs {', '.join(pythons)}"
        found.append(objection(PYTHON, system.key, reason, system.origin.source_of("pythons"), "python"))
    found.extend(_offer_conflicts(lookup, request, variant, system))
    return found


def _offer_conflicts(lookup: Lookup, request: Request, variant: Variant, system: SystemRow) -> list[Objection]:
    offers, against = offers_on(lookup, variant, system, request.image, gpus=request.capabilities)
    if not offers:
        return [against[request.base]] if request.base in against else list(against.values())[:1]
    found: list[Objection] = []
    if request.base in against:
        found.append(against[request.base])
    elif request.base and request.base not in {offer.provider for offer in offers}:
        has = ", ".join(dict.fromkeys(offer.provider for offer in offers))
        reason = f"{variant.package} ({variant.name}) on {system.name} can use the base providers {has}, but not {request.base}"
        found.append(objection(BASE, system.key, reason, system.origin.source))
    elif not request.base and all(offer.deleted for offer in offers):
        row = offers[0].row
        image, source = (row.image, row.origin.source) if row else ("", "")
        reason = (
            f"{image} was deleted upstream, and no other base supports this build; to use a copy of the image, add "
            f"--base {offers[0].provider}"
        )
        found.append(objection(BASE, f"cuda {variant.cuda} {offers[0].provider} {system.name}", reason, source))
    for part, wanted in ((CUDNN, request.cudnn), (NCCL, request.nccl)):
        versions = dict.fromkeys(library.version for offer in offers if (library := getattr(offer, part.kind)))
        if wanted and not any(within(version, wanted) for version in versions):
            reason = (
                f"{variant.package} ({variant.name}) comes with {part.kind} {', '.join(versions) or 'none'}, but "
                f"the request asks for {wanted}"
            )
            source = variant.origin.source_of(part.kind)
            found.append(objection(part, f"{part.kind} on {system.name}", reason, source))
    return found
