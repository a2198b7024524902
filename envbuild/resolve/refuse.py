"""Why nothing satisfies a request: the facts of the fewest parts that cannot stand together."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from envbuild.errors import Conflict, ConflictError
from envbuild.matrix.platform import SystemRow
from envbuild.matrix.types import Variant
from envbuild.matrix.versions import within
from envbuild.model import Python
from envbuild.resolve.build import Build
from envbuild.resolve.choose import cuda_objections, mismatches
from envbuild.resolve.core import asked, cores, restricted
from envbuild.resolve.facts import Facts, Objection, objection
from envbuild.resolve.nearest import alternatives
from envbuild.resolve.places import describe, offers_on, places, python_on, system_objections
from envbuild.resolve.request import Part, Request, Wanted, kind_of
from envbuild.resolve.search import Option, Search
from envbuild.resolve.together import clashes, together

_SHOWN_CONFLICTS = 8
_COMPARED = 2000  # combinations of builds; of more the first are looked at
_WORDS = {
    "cuda": "CUDA version", "cudnn": "cuDNN version", "nccl": "NCCL version", "python": "Python version",
    "system": "operating system", "gpu": "GPU",
}  # fmt: skip


def refusal(search: Search) -> ConflictError:
    """The error for a request that nothing satisfies."""
    request = search.request
    # Versions and CUDA are kept even where others conflict without them: the facts shown are about what was named.
    always = [part for part in asked(request) if kind_of(part) in ("version", "cuda")]
    found = cores(search)
    told = []
    for core in found:
        names = {part.partition(" ")[0] for part in core}
        kept = [part for part in always if " " not in part or part.partition(" ")[0] in names]
        told += [(core, conflicts(search.facts, restricted(request, {*core, *kept, *base}))) for base in ((), ("base",))]
    core, facts = min(told, key=lambda pair: len(pair[1]))
    nearest = alternatives(search, found)
    shown = f" The nearest that works: {nearest[0].name} ({nearest[0].changes})." if nearest else ""
    return ConflictError(
        f"No combination satisfies {request.text}.", hint=f"{_change(core)}{shown}", conflicts=facts, alternatives=nearest
    )


def _change(core: tuple[Part, ...]) -> str:
    """Which parts stand against each other, in words."""
    words = [f"{part} (any version)" if kind_of(part) == "framework" else f"the {_word(part)}" for part in core]
    if not words:
        return "No environment of it can be made at all."
    if len(words) == 1:
        return f"Change {words[0]}: nothing of the framework goes with it."
    return f"Change {', '.join(words[:-1])} or {words[-1]}: these do not go together."


def _word(part: Part) -> str:
    name, _, kind = part.rpartition(" ")
    return " ".join(filter(None, (name, _WORDS.get(kind, kind))))


def conflicts(facts: Facts, request: Request) -> list[Conflict]:
    """The facts against the candidate that has the fewest of them, among those that the request names."""
    search = Search(facts, request)
    pairs: dict[tuple[str, str], list[Objection]] = {}
    best: tuple[tuple[bool, int], list[Objection], tuple[Build, ...], bool] | None = None
    for options in itertools.islice(itertools.product(*(_kinds(search, wanted) for wanted in request.wanted)), _COMPARED):
        builds = tuple(option.build for option in options)
        against = [item for option in options for item in option.objections]
        against += [item for pair in itertools.combinations(builds, 2) for item in _pair(facts, pairs, *pair)]
        if request.device == "gpu" and all(build.beside_gpus for build in builds):
            against += [_no_gpu(build) for build in builds]
        homeless = len(builds) == 1 or not against
        if homeless:
            against += _place_conflicts(facts, request, builds)
        unasked = any(True for build in builds for _ in cuda_objections(request, build))
        score = (unasked, len({item.conflict for item in against}))
        if best is None or score < best[0]:
            best = (score, against, builds, homeless)
    if best is None:
        return []
    _, against, builds, homeless = best
    found = [item.conflict for item in against]
    if len(builds) == 1:
        found += _premises(request, builds[0], against)
    elif homeless:
        found += [_demands(build) for build in builds]
    return list(dict.fromkeys(found))[:_SHOWN_CONFLICTS]


def _pair(facts: Facts, known: dict[tuple[str, str], list[Objection]], one: Build, other: Build) -> list[Objection]:
    key = (one.row, other.row)
    if key not in known:
        known[key] = clashes(facts, (one, other))
    return known[key]


def _demands(build: Build) -> Conflict:
    """What a build asks of the place where it lives."""
    variant = build.variant
    wants = [f"Python {', '.join(variant.python)}", f"glibc {variant.glibc}"]
    wants += [f"CUDA {variant.cuda} in the image"] if variant.cuda_libraries == "system" else []
    wants += [f"one of {', '.join(variant.systems)}"] if variant.systems else []
    return Conflict(row=build.row, reason=f"needs {'; '.join(wants)}", source=variant.origin.source_of("python"))


def _no_gpu(build: Build) -> Objection:
    reason = "built for CPU alone, as all beside it; the request asks for a GPU environment"
    return objection("cuda", build.row, reason, build.variant.origin.source_of("cuda"))


def _kinds(search: Search, wanted: Wanted) -> list[Option]:
    """The builds of a framework: beside others, one of those that are alike in all that can keep something out."""
    options = list(search.options(wanted))
    if len(search.request.wanted) == 1:
        return options
    kinds: dict[object, Option] = {}
    for option in options:
        need = option.need._replace(holds=frozenset(), pins=frozenset()) if not option.build.variant.upon else option.need
        kinds.setdefault((need, tuple((item.part, item.also) for item in option.objections)), option)
    return list(kinds.values())


def _premises(request: Request, build: Build, against: Sequence[Objection]) -> list[Conflict]:
    """What the build's own row says that the objections of other rows rest on; not what the request itself says."""
    variant = build.variant
    known: dict[str, str] = {
        "cuda": "" if request.cuda.startswith("==") else f"is built for CUDA {variant.cuda}",
        "glibc": f"needs glibc {variant.glibc} or newer",
        "python": "" if request.python.startswith("==") else f"supports Python {', '.join(variant.python)}",
        "cudnn": f"needs cuDNN {describe(variant.cudnn)}" if variant.cudnn else "",
        "nccl": f"needs NCCL {describe(variant.nccl)}" if variant.nccl else "",
    }
    wanted = dict.fromkeys(item.premise for item in against if known.get(item.premise))
    return [Conflict(row=build.row, reason=known[field], source=variant.origin.source_of(field)) for field in wanted]


def _place_conflicts(facts: Facts, request: Request, builds: Sequence[Build]) -> list[Objection]:
    """The fewest facts against putting builds where the request wants them."""
    variant = together([build.variant for build in builds])
    possible = places(facts, variant, request.image)
    if any(not mismatches(request, place) for place in possible):
        return []
    wanted = request.systems or {place.system.name for place in possible}
    systems = [row for row in facts.matrix.systems if not wanted or row.name in wanted]
    pythons = list(variant.python)
    unsupported: list[Objection] = []
    if request.python and not any(within(version, request.python) for version in pythons):
        unsupported = list(_unsupported(request, builds))
    elif request.python:
        pythons = [version for version in pythons if within(version, request.python)]
    options = [[*unsupported, *_system_conflicts(facts, request, variant, system, pythons)] for system in systems]
    return min(options, key=len, default=unsupported)


def _unsupported(request: Request, builds: Sequence[Build]) -> Iterator[Objection]:
    """The builds that have no Python of those asked for, else all: they have none of them in common."""
    without = [build for build in builds if not any(within(version, request.python) for version in build.variant.python)]
    for build in without or builds:
        variant = build.variant
        reason = f"supports Python {', '.join(variant.python)}; the request asks for {request.python.lstrip('=')}"
        yield objection("python", build.row, reason, variant.origin.source_of("python"))


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
