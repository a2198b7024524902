"""Which parts of a request cannot stand together: the fewest that already have no solution between them."""

from __future__ import annotations

import itertools
from collections.abc import Collection
from dataclasses import replace

from envbuild.resolve.choose import solutions
from envbuild.resolve.facts import Facts
from envbuild.resolve.request import Part, Request


def asked(request: Request) -> tuple[Part, ...]:
    """The parts that the request does not leave open. Hardware that a CPU environment does not use was not asked for."""
    hardware = request.device != "cpu"
    stated: dict[Part, bool] = {
        "version": bool(request.version),
        "cuda": bool(request.cuda or request.device == "cpu" or (request.device == "gpu" and not _implies_gpu(request))),
        "python": bool(request.python),
        "system": bool(request.systems),
        "base": bool(request.base or request.image),
        "cudnn": bool(request.cudnn),
        "nccl": bool(request.nccl),
        "driver": bool(request.driver) and hardware,
        "gpu": bool(request.gpus) and hardware,
    }
    return tuple(part for part, said in stated.items() if said)


def restricted(request: Request, keep: Collection[Part]) -> Request:
    """The request with all other parts left open."""
    found = replace(
        request,
        version=request.version if "version" in keep else "",
        cuda=request.cuda if "cuda" in keep else "",
        python=request.python if "python" in keep else "",
        systems=request.systems if "system" in keep else (),
        system_text=request.system_text if "system" in keep else "",
        base=request.base if "base" in keep else "",
        image=request.image if "base" in keep else "",
        cudnn=request.cudnn if "cudnn" in keep else "",
        nccl=request.nccl if "nccl" in keep else "",
        driver=request.driver if "driver" in keep else "",
        gpus=request.gpus if "gpu" in keep else (),
    )
    return found if "cuda" in keep else replace(found, device="gpu" if _implies_gpu(found) else "")


def cores(facts: Facts, request: Request) -> list[tuple[Part, ...]]:
    """All smallest sets of parts that no solution satisfies, of a request that has none.

    Naming a base also allows: a deleted image serves who insists on it. A set without the base must fail with it too.
    """
    parts = asked(request)
    for size in range(len(parts)):
        found = [
            keep
            for keep in itertools.combinations(parts, size)
            if _none(facts, restricted(request, keep)) and _none(facts, restricted(request, {*keep, "base"}))
        ]
        if found:
            return found
    return [parts]


def _none(facts: Facts, request: Request) -> bool:
    return next(solutions(facts, request), None) is None


def _implies_gpu(request: Request) -> bool:
    return bool(request.driver or request.gpus or request.cudnn or request.nccl)
