"""Why each choice was made, in words, with the document that supports it."""

from __future__ import annotations

from collections.abc import Iterator

from envbuild.matrix.types import LibraryNeed
from envbuild.matrix.versions import within
from envbuild.model import Environment, Reason
from envbuild.resolve.choose import Candidate
from envbuild.resolve.facts import Facts
from envbuild.resolve.places import Library, describe
from envbuild.resolve.request import Request


def reasons(facts: Facts, request: Request, chosen: Candidate, environment: Environment) -> tuple[Reason, ...]:
    """One reason per choice, in the order in which the choices were made."""
    return tuple(_reasons(facts, request, chosen, environment))


def _reasons(facts: Facts, request: Request, chosen: Candidate, environment: Environment) -> Iterator[Reason]:
    release, variant, place = chosen.release, chosen.variant, chosen.place
    yield Reason(
        choice=f"{request.framework.name} {release.version}",
        because=_version(request, chosen),
        source=release.origin.source_of("version"),
    )
    yield Reason(
        choice=_comes_from(chosen),
        because=_package(request, chosen),
        source=variant.origin.source_of("package"),
    )
    yield from _cuda(facts, chosen)
    yield from _library("cudnn", variant.cudnn, place.offer.cudnn, chosen)
    yield from _library("nccl", variant.nccl, place.offer.nccl, chosen)
    yield _python(facts, request, chosen)
    yield Reason(
        choice=f"os {place.system.name}",
        because=("asked for" if request.systems else "the best system that serves the choices above")
        + f"; glibc {place.system.glibc} is enough for {variant.glibc}",
        source=place.system.origin.source,
    )
    yield _base(request, chosen, environment)
    yield Reason(
        choice=f"dependencies until {release.exclude_newer}",
        because=f"{request.framework.title} {release.version} is from {release.released}: what it needs, as of its own time",
        source=release.origin.source_of("released"),
    )


def _version(request: Request, chosen: Candidate) -> str:
    matching = [release.version for release in request.framework.releases if request.accepts_release(release)]
    if len(matching) == 1:
        return "the only version that was asked for" if request.version else "the only version in the matrix"
    asked = f"of those that {request.version.lstrip('=')} names" if request.version else "of all in the matrix"
    rest = "" if matching[0] == chosen.release.version else " that satisfies the whole request"
    return f"{asked}, the newest{rest}"


def _comes_from(chosen: Candidate) -> str:
    variant = chosen.variant
    if variant.repository:
        return f"source {variant.repository} at {variant.revision}"
    if variant.distribution:
        return f"package {variant.package} {variant.distribution} of {chosen.place.system.name}"
    return f"package {variant.pins(chosen.release.version)[0]}"


def _package(request: Request, chosen: Candidate) -> str:
    variant = chosen.variant
    kinds = {bool(other.cuda) for other in chosen.release.variants}
    if len(chosen.release.variants) == 1:
        return "the only build of this version"
    if not variant.cuda:
        return "the CPU build" + (" was asked for" if request.device == "cpu" else ": no GPU build satisfies the request")
    if request.cuda:
        return f"the build for CUDA {variant.cuda}"
    return "a GPU build comes before the CPU build" if len(kinds) == 2 else "the preferred build"


def _cuda(facts: Facts, chosen: Candidate) -> Iterator[Reason]:
    variant = chosen.variant
    if not variant.cuda:
        return
    where = {
        "system": "its binaries need it in the image",
        "wheels": "it comes in packages that the framework requires",
        "bundled": "it is inside the framework's package",
    }[variant.cuda_libraries]
    yield Reason(
        choice=f"cuda {variant.cuda}",
        because=f"{variant.package} {chosen.release.version} is built for it; {where}",
        source=variant.origin.source_of("cuda"),
    )
    row = facts.cuda.get(variant.cuda)
    if row is None:
        return
    rule = facts.rules.get(variant.cuda.partition(".")[0])
    floor = f"; native code runs from {rule.driver_min} on (minor-version compatibility)" if rule else ""
    yield Reason(
        choice=f"driver >= {row.driver_min}",
        because=f"CUDA {row.release} needs it{floor}",
        source=row.origin.source_of("driver_min"),
    )


def _library(name: str, need: LibraryNeed | None, chosen: Library | None, candidate: Candidate) -> Iterator[Reason]:
    if need is None or chosen is None:
        return
    origin = candidate.variant.origin
    if need.taken_from == "bundled":
        because = "it is inside the framework's binary; nothing is installed"
    elif need.taken_from == "wheels":
        because = "the framework's own packages bring it"
    elif chosen.version == need.prefer:
        because = f"the framework needs {describe(need)}; this one is preferred"
    else:
        because = f"the framework needs {describe(need)}; the newest that the base has"
    source = origin.source_of(name) if chosen.row is None else chosen.row.origin.source
    yield Reason(choice=f"{name} {chosen.version}", because=because, source=source)


def _python(facts: Facts, request: Request, chosen: Candidate) -> Reason:
    place, variant = chosen.place, chosen.variant
    origin = {
        "distribution": f"{place.system.name} carries it",
        "uv": "a standalone build is installed",
        "conda": "conda installs it",
        "base": "the base image carries it",
    }[place.python.provided_by]
    asked = "asked for" if request.python and within(place.python.version, request.python) else "preferred"
    row = facts.pythons.get(place.python.version)
    among = ", ".join(variant.python)
    source = variant.origin.source_of("python") or (row.origin.source if row else "")
    return Reason(
        choice=f"python {place.python.version}",
        because=f"{asked} among those that {variant.package} {chosen.release.version} supports ({among}); {origin}",
        source=source,
    )


def _base(request: Request, chosen: Candidate, environment: Environment) -> Reason:
    offer, system = chosen.place.offer, chosen.place.system
    what = {
        "distribution": "a plain distribution, since nothing of CUDA is needed",
        "wheels": "a plain distribution, since CUDA comes with the framework's packages",
        "apt": f"{system.name} with CUDA {chosen.variant.cuda} from NVIDIA's packages by exact version",
        "tag": f"an image that holds CUDA {chosen.variant.cuda}",
        "conda": f"conda packages of CUDA {chosen.variant.cuda}",
        "local": "the image that was named; what is inside it is checked after the build",
    }[offer.provider]
    others = ", ".join(environment.base.other_providers)
    insisted = "asked for: " if request.base else ""
    return Reason(
        choice=f"base {offer.provider} {environment.base.image}",
        because=f"{insisted}{what}" + (f"; others: {others}" if others else ""),
        source=offer.row.origin.source if offer.row else system.origin.source,
    )
