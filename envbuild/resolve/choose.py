"""Finds the best candidate for a request. The order is the matrix's: newest version, GPU before CPU, then the best place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from envbuild.matrix.types import Release, Variant
from envbuild.matrix.versions import within
from envbuild.resolve.facts import Facts, Objection, hardware_objections, objection, row_of, status_objection
from envbuild.resolve.places import Place, places
from envbuild.resolve.request import Part, Request


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """One complete choice."""

    release: Release
    variant: Variant
    place: Place


def solutions(facts: Facts, request: Request) -> Iterator[Candidate]:
    """All candidates that satisfy the request, best first."""
    for release in request.framework.releases:
        if not request.accepts_release(release):
            continue
        for variant in release.variants:
            if build_objections(facts, request, release, variant):
                continue
            for place in places(facts, variant, request.image):
                if not mismatches(request, place):
                    yield Candidate(release=release, variant=variant, place=place)


def build_objections(facts: Facts, request: Request, release: Release, variant: Variant) -> list[Objection]:
    """What speaks against one build of a release, wherever it is put."""
    row = row_of(request.framework.name, release, variant)
    found = [status_objection(row, variant.origin), cuda_objection(request, row, variant)]
    if (cuda := facts.cuda.get(variant.cuda)) is not None:
        found.append(status_objection(cuda.key, cuda.origin))
    against = [item for item in found if item is not None]
    return against + hardware_objections(facts, request, row, variant)


def cuda_objection(request: Request, row: str, variant: Variant) -> Objection | None:
    """Whether the build is for the CUDA, or the CPU, that was asked for."""
    if request.accepts_cuda(variant.cuda):
        return None
    built = f"CUDA {variant.cuda}" if variant.cuda else "CPU alone"
    wanted = request.cuda.lstrip("=") if request.cuda else ""
    asked = "a CPU environment" if request.device == "cpu" else f"CUDA {wanted}" if wanted else "a GPU environment"
    reason = f"built for {built}; the request asks for {asked}"
    return objection("cuda", row, reason, variant.origin.source_of("cuda"))


def mismatches(request: Request, place: Place) -> tuple[Part, ...]:
    """The parts of the request that a possible place does not satisfy. A deleted image satisfies only who insists on it."""
    offer = place.offer
    found: list[Part] = []
    if request.python and not within(place.python.version, request.python):
        found.append("python")
    if request.systems and place.system.name not in request.systems:
        found.append("system")
    if request.base != offer.provider if request.base else offer.deleted:
        found.append("base")
    if request.cudnn and not (offer.cudnn and within(offer.cudnn.version, request.cudnn)):
        found.append("cudnn")
    if request.nccl and not (offer.nccl and within(offer.nccl.version, request.nccl)):
        found.append("nccl")
    return tuple(found)
