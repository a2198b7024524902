"""Finds and ranks the alternatives of a refused request: the smallest change first, then the nearest environment."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from envbuild.errors import Alternative
from envbuild.matrix.types import Variant
from envbuild.matrix.versions import version_parts
from envbuild.resolve.environment import environment_of
from envbuild.resolve.explain.minimal_conflicts import asked, freed
from envbuild.resolve.explain.suitable_hardware import by_ptx, driver_window, nearest_board, uneasy
from envbuild.resolve.request.model import BASE, DRIVER, GPU, GpuWanted, Part, Request, Wanted
from envbuild.resolve.search.build import Build
from envbuild.resolve.search.candidates import Candidate
from envbuild.resolve.search.hardware import last_branch
from envbuild.resolve.search.search import Only, Option, Search

_SHOWN = 5
_SHOWN_OF_SEVERAL = 8
_MOST_CHANGED = 3  # alternatives with more changes are offered only if no smaller change works
_TRIED = 600
_EFFORT = 200_000  # limit for `Search.effort` (a few seconds); beyond it, only the alternatives found so far are used
# How hard each change is for the user: little for another base or Python, much for another driver or for no GPU.
_WEIGHTS: dict[str, int] = {
    "base": 1, "cudnn": 1, "nccl": 1, "python-from": 1, "python": 2, "system": 2, "version": 3, "cuda": 4, "driver": 8,
    "framework": 9, "gpu": 12,
}  # fmt: skip

_SUPPLIES = {"distribution": "the distribution", "base": "the base"}

_Changed = tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class _Near:
    candidate: Candidate
    changed: _Changed
    gives_up_gpu: bool
    distance: tuple[object, ...]

    @property
    def rank(self) -> tuple[int, int, tuple[object, ...]]:
        return _weight(self.changed) + 4 * self.gives_up_gpu, len(self.changed), self.distance


def _weight(changed: _Changed) -> int:
    return sum(_WEIGHTS[part.kind] for part in changed)


def alternatives(search: Search, cores: Sequence[_Changed]) -> list[Alternative]:
    """Environments that nearly satisfy the request: one for each set of changed parts, the smallest change first.

    ``cores`` are sets of conflicting parts, so every alternative changes at least one part of each set. For a GPU request, the
    last alternative is the same request for the CPU, if such an environment exists.
    """
    request = search.request
    shown = _SHOWN if len(request.wanted) == 1 else _SHOWN_OF_SEVERAL
    nearest = _Nearest(search)
    found: list[_Near] = []
    enough = search.effort + _EFFORT
    for changed in _ways(request, cores):
        if found and search.effort > enough:
            break
        if found and (len(changed) > _MOST_CHANGED or (len(found) >= shown and _weight(changed) > found[shown - 1].rank[0])):
            break
        if any(set(near.changed) < set(changed) for near in found):
            continue  # an alternative with a smaller change is already known
        found = sorted([*found, *nearest.of(changed)], key=lambda near: near.rank)
    made: dict[str, Alternative] = {}
    for near in found:
        free = request._replace(
            base="" if BASE in near.changed else request.base, image="" if BASE in near.changed else request.image
        )
        name = environment_of(search.lookup, free, near.candidate).name
        made.setdefault(name, Alternative(name=name, changes=_describe(search, near)))
    fallback = _on_cpu(search)
    if fallback is None or fallback.name in list(made)[:shown]:
        return list(made.values())[:shown]
    return [*list(made.values())[: shown - 1], fallback]


def _on_cpu(search: Search) -> Alternative | None:
    """The CPU environment that satisfies all parts of a GPU request that are not about GPUs or CUDA. If there is none, another
    base is allowed, too. None if there is still no such environment."""
    request = search.request
    if request.device != "gpu":
        return None
    without_gpu = request._replace(
        device="cpu",
        cuda="",
        cudnn="",
        nccl="",
        driver="",
        gpus=(),
        wanted=tuple(wanted._replace(cuda="") for wanted in request.wanted),
    )
    # A provider of CUDA cannot be the base of a CPU environment.
    for attempt in (without_gpu, without_gpu._replace(base="", image="")):
        candidate = Search(search.lookup, attempt).first()
        if candidate is not None:
            name = environment_of(search.lookup, attempt, candidate).name
            return Alternative(name=name, changes=f"CPU instead of {_instead_of_what(request)}")
    return None


def _instead_of_what(request: Request) -> str:
    cuda = request.cuda or next((wanted.cuda for wanted in request.wanted if wanted.cuda), "")
    return f"CUDA {cuda.lstrip('=')}" if cuda and not (request.driver or request.gpus) else "a GPU"


def _ways(request: Request, cores: Sequence[_Changed]) -> Iterator[_Changed]:
    """Sets of parts to change, the smallest change first. Each set changes at least one part of every core; a core is a set of
    conflicting parts."""
    parts = sorted(asked(request), key=lambda part: list(_WEIGHTS).index(part.kind))
    sizes = [
        sorted(
            (changed for changed in itertools.combinations(parts, size) if _is_plain(changed) and _meets(changed, cores)),
            key=_weight,
        )
        for size in range(1, min(len(parts), _MOST_CHANGED) + 1)
    ]
    few = sorted(itertools.chain.from_iterable(sizes), key=lambda changed: (_weight(changed), len(changed)))
    yield from few[:_TRIED]
    for size in range(_MOST_CHANGED + 1, len(parts) + 1 if len(request.wanted) == 1 else 0):
        yield from itertools.combinations(parts, size)


def _is_plain(changed: _Changed) -> bool:
    """Return False if the change removes a framework and also alters another part of the same framework."""
    return not any(part.owner in changed for part in changed)


def _meets(changed: _Changed, cores: Sequence[_Changed]) -> bool:
    """Whether the change alters a part of every core. Removing a framework counts as altering each of its parts."""
    return all(any(part in changed or part.owner in changed for part in core) for core in cores)


class _Nearest:
    """Finds the candidate nearest to a request if given parts of the request may change."""

    def __init__(self, search: Search) -> None:
        self._search = search
        self._away = {wanted.framework.name: _distances(wanted) for wanted in search.request.wanted}
        # Make the two sort functions only once, because the function itself is the key of cached results. One function ranks
        # for the requested GPUs, the other for any GPU.
        self._orders = {gpus: partial(self._order, gpus=gpus) for gpus in ((), search.request.gpus)}

    def of(self, changed: _Changed) -> Iterator[_Near]:
        """Yield the candidate nearest to the request, if there is one. If the CUDA version may change and the request names no
        driver or GPU, also yield the nearest candidate that has only CPU builds."""
        request = self._search.request
        free = freed(request, [part for part in asked(request) if part not in changed and part.owner not in changed])
        kinds = [self._useful(changed)]
        if request.device == "gpu" and any(part.kind == "cuda" for part in changed) and not (request.driver or request.gpus):
            kinds.append(lambda build: not build.variant.cuda)
        for only in kinds:
            gpus = () if GPU in changed else request.gpus
            candidate = self._search.first(free, only=only, order=self._orders[gpus])
            if candidate is not None:
                gives_up = request.device == "gpu" and not any(build.variant.cuda for build in candidate.builds)
                yield _Near(candidate, changed, gives_up, tuple(self._distance(build, gpus) for build in candidate.builds))

    def _useful(self, changed: _Changed) -> Only:
        """Return a filter of builds. The filter rejects CPU builds for a GPU request, and builds without any GPU that the
        requested driver supports; if the driver may change, builds that no driver supports."""
        request, lookup = self._search.request, self._search.lookup

        def useful(build: Build) -> bool:
            if not build.variant.cuda:
                return request.device != "gpu" or build.beside_gpus
            if DRIVER in changed:
                return driver_window(lookup, request, build.variant, GPU in changed) is not None
            last = last_branch(lookup, build.variant) if request.driver else ""
            return not last or version_parts(request.driver)[0] <= version_parts(last)[0]

        return useful

    def _order(self, option: Option, gpus: tuple[GpuWanted, ...]) -> tuple[object, ...]:
        return self._distance(option.build, gpus)

    def _distance(self, build: Build, gpus: tuple[GpuWanted, ...]) -> tuple[object, ...]:
        """Sort key: builds with native code come before builds with only PTX. Then the nearest version comes first, and then
        the nearest CUDA version."""
        wanted = self._search.request.wanted_of(build.framework)
        cuda = _cuda_distance(wanted.cuda or self._search.request.cuda, build.variant)
        return (*uneasy(build, gpus), *self._away[build.framework.name][build.release.version], cuda)


def _distances(wanted: Wanted) -> dict[str, tuple[int, ...]]:
    """The distance of each release from the requested versions, as a sort key. The key says whether the major version differs,
    how many series (X.Y) are in between, and how many versions are in between. For the last number, versions are cut to the
    length of the requested version."""
    parts = version_parts(wanted.version.split(",")[0])
    series, lines = _steps(wanted, min(len(parts), 2)), _steps(wanted, len(parts))
    return {version: (version_parts(version)[:1] != parts[:1], series[version], away) for version, away in lines.items()}


def _steps(wanted: Wanted, length: int) -> dict[str, int]:
    """Return how far each release is from the nearest requested release. The distance is counted in different versions, after
    versions are cut to ``length`` numbers."""
    releases = wanted.framework.releases
    line_of = {release.version: tuple(version_parts(release.version)[:length]) for release in releases}
    place = {line: index for index, line in enumerate(dict.fromkeys(line_of.values()))}
    matching = {place[line_of[release.version]] for release in releases if wanted.accepts(release)}
    return {version: min((abs(place[line] - other) for other in matching), default=0) for version, line in line_of.items()}


def _cuda_distance(clauses: str, variant: Variant) -> int:
    wanted = [int(part) for part in clauses.lstrip("=<>!~").split(",")[0].split(".")[:2] if part.isdecimal()]
    if not wanted or not variant.cuda:
        return 0
    major, minor = (int(part) for part in variant.cuda.split("."))
    return abs((wanted[0] - major) * 100 + (wanted[1] - minor if len(wanted) > 1 else 0))


# --- in words ---------------------------------------------------------------------------------------------------------


def _describe(search: Search, near: _Near) -> str:
    changes = ", ".join(dict.fromkeys(_describe_part(search, near, part) for part in near.changed)) or "nothing"
    gpus = () if GPU in near.changed else search.request.gpus
    compiled = dict.fromkeys(gpu.text for build in near.candidate.builds for gpu in by_ptx(build, gpus))
    return changes + (
        f"; no native code for {', '.join(compiled)}, so the driver compiles PTX at the first start" if compiled else ""
    )


def _describe_part(search: Search, near: _Near, part: Part) -> str:
    request, place, kind = search.request, near.candidate.place, part.kind
    if kind == "framework":
        return f"without {part.framework}"
    if kind in ("driver", "gpu") and not any(build.variant.cuda for build in near.candidate.builds):
        return "CPU instead of a GPU"
    if kind == "driver":
        return f"needs {_drivers(search, near)} instead of {request.driver}"
    if kind == "gpu":
        return _describe_gpu(search, near.candidate)
    if kind in ("version", "cuda"):
        return _describe_own(search, near.candidate, part, kind)
    asked_for = {
        "python": request.python, "python-from": request.python_from, "system": request.system_text,
        "base": request.image or request.base,
        "cudnn": request.cudnn, "nccl": request.nccl,
    }[kind].lstrip("=")  # fmt: skip
    ours = {
        "python": f"Python {place.python.version}",
        "python-from": f"Python from {_SUPPLIES.get(place.python.provided_by, place.python.provided_by)}",
        "system": place.system.name,
        "base": f"base {place.offer.provider}",
        "cudnn": f"cuDNN {place.offer.cudnn.version if place.offer.cudnn else 'none'}",
        "nccl": f"NCCL {place.offer.nccl.version if place.offer.nccl else 'none'}",
    }[kind]
    return f"{ours} instead of {asked_for}"


def _describe_own(search: Search, candidate: Candidate, part: Part, kind: str) -> str:
    """Describe a changed version or CUDA version of one framework, or of all frameworks."""
    request, name = search.request, part.framework
    builds = [build for build in candidate.builds if not name or build.framework.name == name]
    wanted = request.wanted_of(builds[0].framework)
    if kind == "version":
        return f"{name or 'version'} {builds[0].release.version} instead of {wanted.version.lstrip('=')}"
    cudas = dict.fromkeys(build.variant.cuda for build in builds if build.variant.cuda)
    ours = f"CUDA {' and '.join(cudas)}" if cudas else "CPU"
    clauses = (wanted.cuda if name else request.cuda).lstrip("=")
    instead = f"CUDA {clauses}" if clauses else "CPU" if request.device == "cpu" else "a GPU"
    return f"{f'{name} for ' if name else ''}{ours} instead of {instead}"


def _drivers(search: Search, near: _Near) -> str:
    """Describe the drivers that run the build with the highest driver requirement."""
    lookup, builds = search.lookup, [build for build in near.candidate.builds if build.variant.cuda]
    windows = [driver_window(lookup, search.request, build.variant, GPU in near.changed) or "" for build in builds]
    return max(windows, key=version_parts)


def _describe_gpu(search: Search, candidate: Candidate) -> str:
    request = search.request
    build = next(build for build in candidate.builds if build.variant.cuda)
    variant = build.variant
    instead = f"instead of {', '.join(gpu.text for gpu in request.gpus)}"
    board = nearest_board(search.lookup, request, build.row, variant, candidate.place.offer)
    code = ", ".join(variant.sass or (f"PTX {entry}" for entry in variant.ptx))
    holds = f"; the build has GPU code for compute capability {code}" if code else ""
    return (
        f"on {f'the GPU {board.name} ({board.architecture}, {board.capability})' if board else 'another GPU'} {instead}{holds}"
    )
