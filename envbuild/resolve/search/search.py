"""Finds candidates, best first. The newest release of the first framework is preferred, then the newest release of the next
framework. GPU builds are preferred to CPU builds, and the best place is preferred.

The same search finds conflicts and alternatives: it then ignores some parts of the request (``free``).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from envbuild.matrix.gpu_code import code_for
from envbuild.matrix.pairs import other_builds, pairs_with, word_of
from envbuild.matrix.types import Release, Variant
from envbuild.matrix.versions import within
from envbuild.resolve.request.model import BASE, CUDA, CUDNN, GPU, NCCL, PYTHON, PYTHON_FROM, SYSTEM, Part, Request, Wanted
from envbuild.resolve.search.addon_builds import builds_upon
from envbuild.resolve.search.build import Build
from envbuild.resolve.search.candidates import Candidate, build_objections, implying_gpu, mismatches, said_of_cuda
from envbuild.resolve.search.compatibility import JointNeed, join, need_of, reduced, same_packages, shared_names, together
from envbuild.resolve.search.hardware import cudnn_without, in_order_of_driver, older_than
from envbuild.resolve.search.lookup import Lookup
from envbuild.resolve.search.objections import Objection
from envbuild.resolve.search.placement import Place, places
from envbuild.resolve.search.release_order import in_order_of_choice

NOTHING: frozenset[Part] = frozenset()
_LOOKED_AT = 500  # limit of the candidates to look at for builds without conflicting CUDA packages


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Option:
    """A build with three facts: whether the request asks for its version, the objections to the build alone, and its needs that
    can exclude other builds."""

    build: Build
    accepted: bool
    objections: tuple[Objection, ...]
    need: JointNeed


Only = Callable[[Build], bool]
Order = Callable[[Option], tuple[object, ...]]


def for_gpus(build: Build) -> bool:
    """Whether a build may be in an environment for GPUs."""
    return bool(build.variant.cuda) or build.beside_gpus


def is_tested(build: Build) -> bool:
    """False for an add-on if upstream allows its pair with the base framework but did not test it; else true."""
    return word_of(build.release, build.variant) != "allowed"


def is_usual(build: Build) -> bool:
    """Whether upstream tested an add-on together with its base framework, or the pair is the default of the add-on's row."""
    name, version, _ = build.variant.upon[0] if build.variant.upon else ("", "", "")
    taken = [(each.framework, each.takes(build.variant.cuda)) for each in build.release.pairs]
    return is_tested(build) or (name, version) in taken


def _both(*conditions: Only | None) -> Only | None:
    stated = [each for each in conditions if each is not None]
    return (lambda build: all(each(build) for each in stated)) if stated else None


class _Level:
    """The builds of one framework. Builds with objections are left out."""

    def __init__(self, options: Iterable[Option]) -> None:
        self.options = list(options)
        self._ordered: dict[Order, list[Option]] = {}

    def ordered(self, order: Order | None) -> list[Option]:
        if order is None:
            return self.options
        if order not in self._ordered:
            self._ordered[order] = sorted(self.options, key=order)
        return self._ordered[order]


class Search:
    """The candidates of one request. Facts computed about a build are cached."""

    def __init__(self, lookup: Lookup, request: Request) -> None:
        self.lookup = lookup
        self.request = request
        self._names = shared_names(lookup, [wanted.framework for wanted in request.wanted])
        self._options: dict[tuple[str, bool], list[tuple[bool, list[Option]]]] = {}
        self._levels: dict[tuple[str, frozenset[Part]], _Level] = {}
        self._asked_for: dict[str, bool] = {}
        self._cpu_only: dict[str, bool] = {}
        self._needs: dict[JointNeed, JointNeed] = {}
        self._joined: dict[tuple[int, int], JointNeed | None] = {}
        self._releases: dict[str, list[Release]] = {}
        self._made = partial(builds_upon, lookup)
        self._native_first: Order = self._without_native_code  # one object, because it is the key of cached results

    def solutions(
        self, free: Collection[Part] = NOTHING, *, only: Only | None = None, order: Order | None = None
    ) -> Iterator[Candidate]:
        """All candidates that satisfy the request, best first. The parts in ``free`` are ignored.

        ``only`` selects the builds that may be used. ``order`` is a sort key for the builds of each framework, instead of the
        usual order of choice. A framework is left out if its part of kind ``framework`` is free.
        """
        kept = [wanted for wanted in self.request.wanted if Part("framework", wanted.framework.name) not in free]
        levels: list[Iterable[Option]]
        if order is None and self.request.gpus and self.request.device != "cpu" and GPU not in free:
            order = self._native_first
        if len(kept) == 1 and not free and order is None:
            levels = [self._possible(kept[0], free)]  # an iterator, because the first option is often enough
        else:
            levels = [self._level(wanted, free).ordered(order) for wanted in kept]
        if only is not None:
            levels = [[option for option in level if only(option.build)] for level in levels]
        if levels:
            yield from _Descent(self, levels, free).candidates((), None)

    def first(
        self, free: Collection[Part] = NOTHING, *, only: Only | None = None, order: Order | None = None
    ) -> Candidate | None:
        """The first solution. Among the builds of the solution's releases, builds that share a CUDA version are preferred.

        For one framework, the newest release comes first. For several frameworks, GPU environments come before CPU
        environments: the newest releases often fit together only as CPU builds, while slightly older releases fit as GPU
        builds. For an add-on and its base framework, pairs that upstream tested come first, then the default pair, then other
        pairs that upstream allows.
        """
        devices: list[Only | None] = [for_gpus, None] if len(self.request.wanted) > 1 and not self.request.device else [None]
        words: list[Only | None] = [is_tested, is_usual, None] if self._has_pairs() else [None]
        for device, word in itertools.product(devices, words):
            narrowed = _both(device, word, only)
            if (found := next(self.solutions(free, only=narrowed, order=order), None)) is not None:
                return self._of_one_cuda(found, free, _both(word, only))
        return None

    def _has_pairs(self) -> bool:
        """Whether the request names an add-on together with one of its base frameworks."""
        names = {wanted.framework.name for wanted in self.request.wanted}
        below = (
            pairs.framework
            for wanted in self.request.wanted
            for release in wanted.framework.releases
            for pairs in release.pairs
        )
        return len(names) > 1 and any(name in names for name in below)

    def _of_one_cuda(self, chosen: Candidate, free: Collection[Part], only: Only | None) -> Candidate:
        """Of the chosen releases, prefer builds that share one CUDA version, else builds without conflicting CUDA packages."""
        if len({build.variant.cuda for build in chosen.builds} - {""}) < 2:
            return chosen
        releases = {build.framework.name: build.release for build in chosen.builds}
        variants = [option.build.variant for build in chosen.builds for option in self._of_release(build)]

        def same(build: Build, cudas: Collection[str]) -> bool:
            fits = build.beside_gpus or build.variant.cuda in cudas
            return fits and build.release == releases[build.framework.name] and (only is None or only(build))

        every = dict.fromkeys(variant.cuda for variant in variants if variant.cuda)
        for cuda in every:
            if found := next(self.solutions(free, only=partial(same, cudas=(cuda,))), None):
                return found
        others = itertools.islice(self.solutions(free, only=partial(same, cudas=every)), _LOOKED_AT)
        return next((each for each in others if not any(same_packages(each.builds))), chosen)

    def options(self, wanted: Wanted, free: Collection[Part] = NOTHING) -> Iterator[Option]:
        """The builds of the requested releases, or of all releases if the version is free. Builds with objections are
        included."""
        any_version = self.request.part("version", wanted) in free
        others, wide = [each for each in self.request.wanted if each is not wanted], self._wide(wanted, free)
        known = self._options.setdefault((wanted.framework.name, wide), [])
        for index, release in enumerate(self._in_order(wanted)):
            if index == len(known):
                known.append((wanted.accepts(release), []))
            accepted, options = known[index]
            if any_version or accepted:
                if not options:
                    own = in_order_of_driver(self.lookup, self.request, release.variants)
                    variants = [*own, *self._upon_others(release, others, wide)]
                    options += [self._option(wanted, release, variant, accepted) for variant in variants]
                yield from options

    def _wide(self, wanted: Wanted, free: Collection[Part]) -> bool:
        """Whether an add-on may use any release of its base framework. This is so if the add-on's own version is not free, but
        the version of another framework of the request is free."""
        versions = {each.framework.name: self.request.part("version", each) in free for each in self.request.wanted}
        return not versions[wanted.framework.name] and any(versions.values())

    def _upon_others(self, release: Release, others: Sequence[Wanted], wide: bool) -> Iterator[Variant]:
        """The builds of an add-on's release that are based on other releases of its base framework than the default.

        Only those releases of the base framework are used that the request accepts; with ``wide``, all of them. Tested pairs
        come first, then other pairs; each group is in the order of choice.
        """
        for each in others if release.pairs else ():
            accepts: Callable[[Release], bool] = each.accepts if not wide else lambda _: True
            found = in_order_of_driver(
                self.lookup, self.request, list(other_builds(release, each.framework, accepts, self._made))
            )
            place = {below.version: index for index, below in enumerate(self._in_order(each))} if len(found) > 1 else {}
            pairs = pairs_with(release, each.framework.name)
            tested = pairs.tested if pairs is not None else ()
            yield from sorted(found, key=lambda built: (built.upon[0][1] not in tested, place.get(built.upon[0][1], 0)))

    def _of_release(self, build: Build) -> Iterator[Option]:
        """All builds of the release to which a chosen build belongs."""
        options = self.options(self.request.wanted_of(build.framework))
        return (option for option in options if option.build.release is build.release)

    def _in_order(self, wanted: Wanted) -> Sequence[Release]:
        """The releases in the order of choice; for CPU environments simply the newest first, since GPU code does not matter."""
        releases = wanted.framework.releases
        if self.request.device == "cpu":
            return releases
        name = wanted.framework.name
        if name not in self._releases:
            self._releases[name] = list(in_order_of_choice(releases))
        return self._releases[name]

    def _without_native_code(self, option: Option) -> tuple[object, ...]:
        """Sort key of a build: its rank on the request's GPUs."""
        return self._rank_on_gpus(option.build)

    def _rank_on_gpus(self, build: Build) -> tuple[bool, bool, bool]:
        """Builds with native code for the request's GPUs come first; among these, builds that bring a cuDNN for the GPUs, and
        then builds whose CUDA version supports the GPUs."""
        variant = build.variant
        known = [gpu for gpu in self.request.gpus if gpu.capability and variant.cuda]
        native = all(code_for(variant, gpu.capability) == "native" for gpu in known)
        lost = any(cudnn_without(self.lookup, variant, gpu.capability) for gpu in known)
        return (not native, lost, native and any(older_than(variant, gpu) for gpu in known))

    def worst_rank_on_gpus(self, builds: Sequence[Build]) -> tuple[bool, bool, bool]:
        """The rank of the build that suits the request's GPUs least. The smallest rank is the best; it has no true value."""
        return max(map(self._rank_on_gpus, builds))

    def places(self, builds: Sequence[Build], free: Collection[Part] = NOTHING) -> Iterator[Place]:
        """The places that builds can share and that satisfy the request, best first. The parts in ``free`` are ignored."""
        variant = together(builds)
        asked = ("" if CUDNN in free else self.request.cudnn, "" if NCCL in free else self.request.nccl)
        supply = "" if PYTHON_FROM in free else self.request.python_from
        gpus = () if GPU in free else self.request.capabilities
        found: Iterable[Place] = places(self.lookup, variant, self.request.image, asked, supply, gpus=gpus)
        if self.request.image and BASE in free:
            found = itertools.chain(found, places(self.lookup, variant, asked=asked, supply=supply, gpus=gpus))
        insists = bool(self.request.base) and BASE not in free
        for place in found:
            if all(part in free for part in mismatches(self.request, place)) and (insists or not place.offer.deleted):
                yield place

    def wants_gpu(self, free: Collection[Part]) -> bool:
        """Whether the request asks for a GPU, if the parts in ``free`` are ignored."""
        request = self.request
        said = request.device == "gpu" and said_of_cuda(request) and CUDA not in free
        return said or (request.device == "gpu" and any(part not in free for part in implying_gpu(request)))

    def _option(self, wanted: Wanted, release: Release, variant: Variant, accepted: bool) -> Option:
        beside = self._for_cpus_alone(wanted) and not any(each.cuda for each in release.variants)
        build = Build(framework=wanted.framework, release=release, variant=variant, beside_gpus=beside)
        against = tuple(build_objections(self.lookup, self.request, build))
        need = self.one(reduced(need_of(self.lookup, build), self._names))
        return Option(build=build, accepted=accepted, objections=against, need=need)

    def one(self, need: JointNeed) -> JointNeed:
        """Return one object for all equal needs, so that needs can be compared by identity."""
        return self._needs.setdefault(need, need)

    def joined(self, need: JointNeed, other: JointNeed) -> JointNeed | None:
        """Return the joint need of two needs, or None if they are not compatible. For equal joint needs, the same object is
        returned."""
        key = (id(need), id(other))
        if key not in self._joined:
            found = join(need, other)
            self._joined[key] = found and self.one(found)
        return self._joined[key]

    @property
    def effort(self) -> int:
        """The number of pairs of needs that were joined so far. Callers limit this number instead of the elapsed time, because
        the same request always gives the same number."""
        return len(self._joined)

    def _for_cpus_alone(self, wanted: Wanted) -> bool:
        """Whether the request names several frameworks, and no requested release of the framework ``wanted`` has a GPU
        build."""
        name = wanted.framework.name
        if name not in self._cpu_only:
            asked_for = (release for release in wanted.framework.releases if wanted.accepts(release))
            several = len(self.request.wanted) > 1
            self._cpu_only[name] = several and not any(each.cuda for release in asked_for for each in release.variants)
        return self._cpu_only[name]

    def _level(self, wanted: Wanted, free: Collection[Part]) -> _Level:
        own = {each.framework.name for each in self.request.wanted if self._wide(wanted, free)} | {wanted.framework.name, ""}
        key = (wanted.framework.name, frozenset(part for part in free if part.framework in own))
        if key not in self._levels:
            self._levels[key] = _Level(self._possible(wanted, free))
        return self._levels[key]

    def _possible(self, wanted: Wanted, free: Collection[Part]) -> Iterator[Option]:
        for option in self.options(wanted, free):
            if not any(item.holds(free) for item in option.objections) and self.in_reach(option.need, free):
                yield option

    def in_reach(self, need: JointNeed, free: Collection[Part]) -> bool:
        """Whether a need allows the requested Python and system. A part in ``free`` is not checked."""
        request = self.request
        if request.systems and SYSTEM not in free and need.systems.isdisjoint(request.systems):
            return False
        return not request.python or PYTHON in free or any(map(self._is_asked_for, need.pythons))

    def _is_asked_for(self, python: str) -> bool:
        if python not in self._asked_for:
            self._asked_for[python] = within(python, self.request.python)
        return self._asked_for[python]


class _Descent:
    """A depth-first search through the builds of one framework after the other. A combination that led to no candidate is never
    tried again."""

    def __init__(self, search: Search, levels: Sequence[Iterable[Option]], free: Collection[Part]) -> None:
        self._search = search
        self._free = free
        self._levels = levels
        self._kinds: list[list[JointNeed]] = []  # for each of several frameworks, the different needs of its builds
        if len(levels) > 1:
            self._levels = [list(level) for level in levels]
            self._kinds = [list({id(option.need): option.need for option in level}.values()) for level in self._levels]
        self._dead: set[tuple[int, int]] = set()

    def candidates(self, builds: tuple[Build, ...], need: JointNeed | None) -> Iterator[Candidate]:
        """Yield the candidates whose first builds are ``builds``. ``need`` is the joint need of these builds."""
        key = (len(builds), id(need))
        if key in self._dead:
            return
        found = False
        for candidate in self._leaves(builds, need) if len(builds) == len(self._levels) else self._branches(builds, need):
            found = True
            yield candidate
        if not found:
            self._dead.add(key)

    def _branches(self, builds: tuple[Build, ...], need: JointNeed | None) -> Iterator[Candidate]:
        if need is not None and not all(any(self._join(need, kind) for kind in kinds) for kinds in self._kinds[len(builds) :]):
            return
        for option in self._levels[len(builds)]:
            joined = option.need if need is None else self._join(need, option.need)
            if joined is not None:
                yield from self.candidates((*builds, option.build), joined)

    def _join(self, need: JointNeed, other: JointNeed) -> JointNeed | None:
        joined = self._search.joined(need, other)
        return joined if joined is not None and self._search.in_reach(joined, self._free) else None

    def _leaves(self, builds: tuple[Build, ...], need: JointNeed | None) -> Iterator[Candidate]:
        alone = len(builds) == 1
        if alone or (need and need.device == "gpu") or not self._search.wants_gpu(self._free):
            for place in self._search.places(builds, self._free):
                yield Candidate(builds=builds, place=place)
