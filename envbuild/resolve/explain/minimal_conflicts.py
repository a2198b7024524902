"""Which parts of a request cannot stand together: the fewest that already have no solution between them."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator
from dataclasses import replace

from envbuild.resolve.request.model import SHARED, Part, Request, kind_of
from envbuild.resolve.search.candidates import Candidate, implying_gpu, mismatches, said_of_cuda
from envbuild.resolve.search.search import Option, Search

_TRIED = 20_000  # sets of parts; where that does not do, one set that lacks nothing needless is found instead


def asked(request: Request) -> tuple[Part, ...]:
    """The parts that the request does not leave open. Hardware that a CPU environment does not use was not asked for."""
    hardware = request.device != "cpu"
    stated: dict[Part, object] = {
        "cuda": said_of_cuda(request),
        "python": request.python,
        "python-from": request.python_from,
        "system": request.systems,
        "base": request.base or request.image,
        "cudnn": request.cudnn,
        "nccl": request.nccl,
        "driver": request.driver and hardware,
        "gpu": request.gpus and hardware,
    }
    return (*_of_frameworks(request), *(part for part in SHARED if stated[part]))


def _of_frameworks(request: Request) -> Iterator[Part]:
    for wanted in request.wanted:
        if len(request.wanted) > 1:
            yield wanted.framework.name
        if wanted.version:
            yield request.part("version", wanted)
        if wanted.cuda:
            yield request.part("cuda", wanted)


def closed(parts: Collection[Part]) -> frozenset[Part]:
    """The parts with those that they are of: who keeps a framework's version keeps the framework."""
    return frozenset(itertools.chain.from_iterable((part, part.rpartition(" ")[0] or part) for part in parts))


def freed(request: Request, keep: Collection[Part]) -> frozenset[Part]:
    """The parts that are free where only ``keep`` is asked for."""
    return frozenset(asked(request)) - closed(keep)


def restricted(request: Request, keep: Collection[Part]) -> Request:
    """The request with all other parts left open, and the frameworks left out of which nothing is kept."""
    kept = closed(keep)
    alone = len(request.wanted) == 1
    wanted = [
        replace(
            each,
            version=each.version if request.part("version", each) in kept else "",
            cuda=each.cuda if request.part("cuda", each) in kept else "",
        )
        for each in request.wanted
        if alone or each.framework.name in kept
    ]
    found = replace(
        request,
        wanted=tuple(wanted),
        cuda=request.cuda if "cuda" in kept else "",
        python=request.python if "python" in kept else "",
        python_from=request.python_from if "python-from" in kept else "",
        systems=request.systems if "system" in kept else (),
        system_text=request.system_text if "system" in kept else "",
        base=request.base if "base" in kept else "",
        image=request.image if "base" in kept else "",
        cudnn=request.cudnn if "cudnn" in kept else "",
        nccl=request.nccl if "nccl" in kept else "",
        driver=request.driver if "driver" in kept else "",
        gpus=request.gpus if "gpu" in kept else (),
    )
    said = "cuda" in kept or any(each.cuda for each in wanted)
    return found if said else replace(found, device="gpu" if implying_gpu(found) else "")


def cores(search: Search) -> list[tuple[Part, ...]]:
    """All smallest sets of parts that no solution satisfies, of a request that has none.

    Naming a base also allows: a deleted image serves who insists on it. A set without the base must fail with it too.
    """
    parts = asked(search.request)
    question = _Question(search, parts)
    tried = 0
    for size in range(len(parts)):
        found = []
        for keep in itertools.combinations(parts, size):
            tried += 1
            if tried > _TRIED:
                return [_irreducible(question, parts)]
            if _is_plain(keep) and not question.satisfiable(keep):
                found.append(keep)
        if found:
            return [keep for keep in found if not any(_weaker(other, keep) for other in found)]
    return [parts]


def _is_plain(keep: tuple[Part, ...]) -> bool:
    """Whether it does not name a framework beside its version, which implies it."""
    return not any(part.rpartition(" ")[0] in keep for part in keep)


def _weaker(one: tuple[Part, ...], other: tuple[Part, ...]) -> bool:
    """Whether ``one`` asks for less than ``other``: a framework in place of its version."""
    return one != other and closed(one) < closed(other)


def _irreducible(question: _Question, parts: tuple[Part, ...]) -> tuple[Part, ...]:
    kept = list(parts)
    for part in parts:
        rest = [other for other in kept if other != part and not other.startswith(f"{part} ")]
        if not question.satisfiable(rest):
            kept = rest
    return tuple(part for part in kept if not any(other.startswith(f"{part} ") for other in kept))


class _Question:
    """Whether parts can be satisfied together. Every solution that is found answers for all sets of parts that it satisfies."""

    def __init__(self, search: Search, parts: tuple[Part, ...]) -> None:
        self._search = search
        self._parts = parts
        self._satisfied: list[frozenset[Part]] = []

    def satisfiable(self, keep: Collection[Part]) -> bool:
        """Whether anything satisfies ``keep``, or ``keep`` with the base that was asked for."""
        wanted = closed(keep)
        if len(self._search.request.wanted) > 1 and not any(kind_of(part) == "framework" for part in wanted):
            return True
        if any(wanted <= known for known in self._satisfied):
            return True
        return self._solved(keep) or ("base" in self._parts and "base" not in keep and self._solved((*keep, "base")))

    def _solved(self, keep: Collection[Part]) -> bool:
        free = freed(self._search.request, keep)
        candidate = next(self._search.solutions(free, order=self._faults), None)
        if candidate is not None and not candidate.place.offer.deleted:
            self._satisfied.append(self._satisfied_by(candidate, free))
        return candidate is not None

    @staticmethod
    def _faults(option: Option) -> tuple[object, ...]:
        """Builds that satisfy most come first: their solutions answer for most sets."""
        return (not option.accepted, len(option.objections))

    def _satisfied_by(self, candidate: Candidate, free: Collection[Part]) -> frozenset[Part]:
        """The parts that a candidate satisfies, which was found where ``free`` parts are open."""
        request = self._search.request
        builds = {build.framework.name: build for build in candidate.builds}
        wrong: set[Part | None] = set(mismatches(request, candidate.place))
        for wanted in request.wanted:
            build = builds.get(wanted.framework.name)
            if build is None:
                wrong |= {wanted.framework.name, request.part("version", wanted), request.part("cuda", wanted)}
                continue
            option = next(each for each in self._search.options(wanted, free) if each.build == build)
            wrong |= {part for item in option.objections for part in (item.part, item.also)}
            if not option.accepted:
                wrong.add(request.part("version", wanted))
        if len(request.wanted) > 1 and not any(build.variant.cuda for build in candidate.builds):
            wrong |= {"cuda", *implying_gpu(request)} if request.device == "gpu" else set()
        return frozenset(self._parts) - wrong
