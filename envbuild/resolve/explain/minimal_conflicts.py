"""Finds the smallest sets of parts of a request that no environment satisfies together."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator

from envbuild.resolve.request.model import BASE, CUDA, CUDNN, DRIVER, GPU, NCCL, PYTHON, PYTHON_FROM, SYSTEM, Part, Request
from envbuild.resolve.search.candidates import Candidate, implying_gpu, mismatches, said_of_cuda
from envbuild.resolve.search.search import Option, Search

_TRIED = 20_000  # if more sets of parts must be tried, only one minimal set is returned, not all smallest sets


def asked(request: Request) -> tuple[Part, ...]:
    """The parts that the request states. In a request for a CPU environment, driver and GPU do not count, because such an
    environment does not use them."""
    hardware = request.device != "cpu"
    stated: dict[Part, object] = {
        CUDA: said_of_cuda(request),
        PYTHON: request.python,
        PYTHON_FROM: request.python_from,
        SYSTEM: request.systems,
        BASE: request.base or request.image,
        CUDNN: request.cudnn,
        NCCL: request.nccl,
        DRIVER: request.driver and hardware,
        GPU: request.gpus and hardware,
    }
    return (*_of_frameworks(request), *(part for part, is_stated in stated.items() if is_stated))


def _of_frameworks(request: Request) -> Iterator[Part]:
    for wanted in request.wanted:
        if len(request.wanted) > 1:
            yield request.part("framework", wanted)
        if wanted.version:
            yield request.part("version", wanted)
        if wanted.cuda:
            yield request.part("cuda", wanted)


def closed(parts: Collection[Part]) -> frozenset[Part]:
    """Return the parts, and the part of kind ``framework`` for each of their frameworks: keeping a framework's version means
    keeping the framework."""
    return frozenset(itertools.chain.from_iterable((part, part.owner or part) for part in parts))


def freed(request: Request, keep: Collection[Part]) -> frozenset[Part]:
    """The parts of the request that become free if only the parts in ``keep`` remain."""
    return frozenset(asked(request)) - closed(keep)


def restricted(request: Request, keep: Collection[Part]) -> Request:
    """Return the request with only the parts in ``keep``. A framework is left out if none of its parts is kept."""
    kept = closed(keep)
    alone = len(request.wanted) == 1
    wanted = [
        each._replace(
            version=each.version if request.part("version", each) in kept else "",
            cuda=each.cuda if request.part("cuda", each) in kept else "",
        )
        for each in request.wanted
        if alone or request.part("framework", each) in kept
    ]
    found = request._replace(
        wanted=tuple(wanted),
        cuda=request.cuda if CUDA in kept else "",
        python=request.python if PYTHON in kept else "",
        python_from=request.python_from if PYTHON_FROM in kept else "",
        systems=request.systems if SYSTEM in kept else (),
        system_text=request.system_text if SYSTEM in kept else "",
        base=request.base if BASE in kept else "",
        image=request.image if BASE in kept else "",
        cudnn=request.cudnn if CUDNN in kept else "",
        nccl=request.nccl if NCCL in kept else "",
        driver=request.driver if DRIVER in kept else "",
        gpus=request.gpus if GPU in kept else (),
    )
    said = CUDA in kept or any(each.cuda for each in wanted)
    return found if said else found._replace(device="gpu" if implying_gpu(found) else "")


def cores(search: Search) -> list[tuple[Part, ...]]:
    """The smallest sets of parts that no solution satisfies, for a request without a solution. All returned sets have the same
    size.

    A named base can also allow more environments, because a deleted image is used only if the request names it. So a set counts
    only if it has no solution, neither without the requested base nor with it.
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
    """Return False if ``keep`` has the part of kind ``framework`` and another part of one framework: the other part already
    implies the framework."""
    return not any(part.owner in keep for part in keep)


def _weaker(one: tuple[Part, ...], other: tuple[Part, ...]) -> bool:
    """Whether ``one`` requires less than ``other``, for example a framework in any version instead of one version."""
    return one != other and closed(one) < closed(other)


def _irreducible(question: _Question, parts: tuple[Part, ...]) -> tuple[Part, ...]:
    kept = list(parts)
    for part in parts:
        rest = [other for other in kept if part not in (other, other.owner)]
        if not question.satisfiable(rest):
            kept = rest
    return tuple(part for part in kept if not any(other.owner == part for other in kept))


class _Question:
    """Tells whether sets of parts have a solution. Solutions are stored, except those with a deleted image. If a stored
    solution satisfies another set, that set is not searched for again."""

    def __init__(self, search: Search, parts: tuple[Part, ...]) -> None:
        self._search = search
        self._parts = parts
        self._satisfied: list[frozenset[Part]] = []

    def satisfiable(self, keep: Collection[Part]) -> bool:
        """Whether any solution satisfies the parts in ``keep``, or these parts and the requested base."""
        wanted = closed(keep)
        if len(self._search.request.wanted) > 1 and not any(part.kind == "framework" for part in wanted):
            return True
        if any(wanted <= known for known in self._satisfied):
            return True
        return self._solved(keep) or (BASE in self._parts and BASE not in keep and self._solved((*keep, BASE)))

    def _solved(self, keep: Collection[Part]) -> bool:
        free = freed(self._search.request, keep)
        candidate = next(self._search.solutions(free, order=self._faults), None)
        if candidate is not None and not candidate.place.offer.deleted:
            self._satisfied.append(self._satisfied_by(candidate, free))
        return candidate is not None

    @staticmethod
    def _faults(option: Option) -> tuple[object, ...]:
        """Sort key: the builds with the fewest objections come first, because their solutions satisfy the most sets."""
        return (not option.accepted, len(option.objections))

    def _satisfied_by(self, candidate: Candidate, free: Collection[Part]) -> frozenset[Part]:
        """The parts that a candidate satisfies. The search that found the candidate ignored the parts in ``free``."""
        request = self._search.request
        builds = {build.framework.name: build for build in candidate.builds}
        wrong: set[Part | None] = set(mismatches(request, candidate.place))
        for wanted in request.wanted:
            build = builds.get(wanted.framework.name)
            if build is None:
                wrong |= {request.part(kind, wanted) for kind in ("framework", "version", "cuda")}
                continue
            option = next(each for each in self._search.options(wanted, free) if each.build == build)
            wrong |= {part for item in option.objections for part in (item.part, item.other_part)}
            if not option.accepted:
                wrong.add(request.part("version", wanted))
        if len(request.wanted) > 1 and not any(build.variant.cuda for build in candidate.builds):
            wrong |= {CUDA, *implying_gpu(request)} if request.device == "gpu" else set()
        return frozenset(self._parts) - wrong
