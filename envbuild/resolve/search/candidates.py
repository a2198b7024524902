"""Candidates: a candidate is one build of each framework, and the place where these builds run. Also finds the parts of a
request that a candidate does not satisfy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from envbuild.matrix.pairs import pairs_with
from envbuild.matrix.versions import within
from envbuild.resolve.request.model import BASE, CUDA, CUDNN, DRIVER, GPU, NCCL, PYTHON, PYTHON_FROM, SYSTEM, Part, Request
from envbuild.resolve.search.build import Build
from envbuild.resolve.search.hardware import hardware_objections
from envbuild.resolve.search.lookup import Lookup
from envbuild.resolve.search.objections import Objection, objection, status_objection
from envbuild.resolve.search.placement import Place

# A request that names one of these parts asks for a GPU.
IMPLY_GPU = (DRIVER, GPU, CUDNN, NCCL)


class Candidate(NamedTuple):
    """One complete choice: a build of each framework, in the order of the request."""

    builds: tuple[Build, ...]
    place: Place


def build_objections(lookup: Lookup, request: Request, build: Build) -> list[Objection]:
    """Return the objections to one build that do not depend on the place or on the other builds."""
    found = [status_objection(build.row, build.variant.origin), *cuda_objections(request, build)]
    if (cuda := lookup.cuda.get(build.variant.cuda)) is not None:
        found.append(status_objection(cuda.key, cuda.origin))
    against = [item for item in found if item is not None]
    return against + hardware_objections(lookup, request, build.row, build.variant)


def cuda_objections(request: Request, build: Build) -> Iterator[Objection]:
    """Check whether the build is for the requested CUDA or the CPU; return an objection for each part of the request that it
    violates."""
    wanted, cuda = request.wanted_of(build.framework), build.variant.cuda
    clauses = wanted.cuda or request.cuda
    part = request.part("cuda", wanted) if wanted.cuda else CUDA
    if cuda:
        fits = request.device != "cpu" and (not clauses or within(cuda, clauses))
        parts: list[Part] = [] if fits else [part]
    elif request.device != "gpu" or build.beside_gpus:
        parts = []
    else:
        parts = [*([part] if wanted.cuda or said_of_cuda(request) else []), *implying_gpu(request)]
    built = f"CUDA {cuda}" if cuda else "CPUs only"
    asked = (
        "a CPU environment" if request.device == "cpu" else f"CUDA {clauses.lstrip('=')}" if clauses else "a GPU environment"
    )
    reason, source = f"built for {built}", build.variant.origin.source_of("cuda")
    if cuda and request.device == "cpu" and _lacks_cpu(build):
        note = build.release.origin.note
        reason = f"the package has no build for CPUs{f' ({note})' if note else ''}"
        source = build.release.origin.source
    for each in parts:
        yield objection(each, build.row, f"{reason}; the request asks for {asked}", source)


def _lacks_cpu(build: Build) -> bool:
    """Whether the row of an add-on leaves out the CPU builds of the base framework."""
    pairs = pairs_with(build.release, build.variant.upon[0][0]) if build.variant.upon else None
    return pairs is not None and "cpu" in pairs.added.without


def said_of_cuda(request: Request) -> bool:
    """Whether the request names CUDA, GPU or CPU for all frameworks. A driver, for example, only implies a GPU."""
    elsewhere = implying_gpu(request) or any(wanted.cuda for wanted in request.wanted)
    return bool(request.cuda or request.device == "cpu" or (request.device == "gpu" and not elsewhere))


def implying_gpu(request: Request) -> list[Part]:
    """The parts of the request that imply a GPU: a driver, a GPU, cuDNN or NCCL."""
    said = (request.driver, request.gpus, request.cudnn, request.nccl)
    return [part for part, value in zip(IMPLY_GPU, said, strict=True) if value]


def mismatches(request: Request, place: Place) -> tuple[Part, ...]:
    """The parts of the request that a possible place does not satisfy. A deleted image is used only if the request names it."""
    offer = place.offer
    found: list[Part] = []
    if request.python and not within(place.python.version, request.python):
        found.append(PYTHON)
    if request.python_from not in ("", place.python.provided_by):
        found.append(PYTHON_FROM)
    if request.systems and place.system.name not in request.systems:
        found.append(SYSTEM)
    if request.base != offer.provider if request.base else offer.deleted:
        found.append(BASE)
    if request.cudnn and not (offer.cudnn and within(offer.cudnn.version, request.cudnn)):
        found.append(CUDNN)
    if request.nccl and not (offer.nccl and within(offer.nccl.version, request.nccl)):
        found.append(NCCL)
    return tuple(found)
