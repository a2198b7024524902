"""Decides which frameworks of a stack share one set of packages: each framework is put into the first set into which it fits.

All sets are in one image. So they share one operating system, one base, and one release of CUDA and of each library that is
installed in the image. The other needs of the builds in a set (Python, packages, base frameworks) do not concern other sets.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from envbuild.errors import Conflict, ConflictError
from envbuild.matrix.types import FrameworkTable, LibraryNeed, Variant
from envbuild.model.environment import Python
from envbuild.resolve.explain.conflict_error import clash, refusal
from envbuild.resolve.explain.minimal_conflicts import cores
from envbuild.resolve.request.model import CUDNN, NCCL, Request, Wanted
from envbuild.resolve.search.build import Build
from envbuild.resolve.search.candidates import Candidate, mismatches
from envbuild.resolve.search.compatibility import LIBRARIES, JointNeed, image_clashes, join, shared, together
from envbuild.resolve.search.placement import Place, places
from envbuild.resolve.search.pythons import python_on
from envbuild.resolve.search.search import Option, Search
from envbuild.stacks import Stack, StackMember


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """Frameworks that share a set of packages under one Python (X.Y). The first of these frameworks determined the Python."""

    python: str
    wanted: tuple[Wanted, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Split:
    """The conflicts that keep a framework out of an earlier group. ``group`` is the number of that group, counted from 0."""

    framework: FrameworkTable
    group: int
    conflicts: tuple[Conflict, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Shares:
    """The groups of a stack, with one candidate for each group. ``place`` has the system and the base that all groups use."""

    groups: tuple[Group, ...]
    candidates: tuple[Candidate, ...]
    place: Place
    splits: tuple[Split, ...]

    @property
    def whole(self) -> Candidate:
        """One candidate with the builds of all groups."""
        return Candidate(builds=tuple(build for each in self.candidates for build in each.builds), place=self.place)


class Grouping:
    """Puts the frameworks of a stack into groups, in the order of the stack's file."""

    def __init__(self, search: Search, stack: Stack) -> None:
        self._search = search
        self._stack = stack
        self._levels: dict[str, list[Option]] = {}

    def shares(self) -> Shares:
        """The groups. Raises :class:`ConflictError` if a framework fits into no group, not even into a new one."""
        groups: tuple[Group, ...] = ()
        splits: list[Split] = []
        for member, wanted in zip(self._stack.members, self._search.request.wanted, strict=True):
            added = next((index for index in range(len(groups)) if self._fits(groups, index, member, wanted)), None)
            kept_out = len(groups) if added is None else added
            splits += [self._split(group, index, member, wanted) for index, group in enumerate(groups[:kept_out])]
            groups = self._opened(groups, member, wanted) if added is None else _joined(groups, added, wanted)
        candidates, place = next(self._solutions(groups))
        return Shares(groups=groups, candidates=candidates, place=place, splits=tuple(splits))

    def _fits(self, groups: tuple[Group, ...], index: int, member: StackMember, wanted: Wanted) -> bool:
        group = groups[index]
        if group.python not in member.pythons or any(self._apart(group, member, wanted)):
            return False
        return any(True for _ in self._solutions(_joined(groups, index, wanted)))

    def _opened(self, groups: tuple[Group, ...], member: StackMember, wanted: Wanted) -> tuple[Group, ...]:
        for python in member.pythons:
            trial = (*groups, Group(python=python, wanted=(wanted,)))
            if any(True for _ in self._solutions(trial)):
                return trial
        raise self._refusal(groups, member, wanted)

    # --- solutions ----------------------------------------------------------------------------------------------------

    def _solutions(self, groups: Sequence[Group]) -> Iterator[tuple[tuple[Candidate, ...], Place]]:
        flat = [(index, wanted) for index, group in enumerate(groups) for wanted in group.wanted]
        for chosen in self._descend(flat, groups, {}, None):
            for place, pythons in self._places(chosen, groups):
                rest = iter(chosen)
                builds = [tuple(itertools.islice(rest, len(group.wanted))) for group in groups]
                yield (
                    tuple(
                        Candidate(builds=each, place=place._replace(python=python))
                        for each, python in zip(builds, pythons, strict=True)
                    ),
                    place,
                )

    def _descend(
        self, rest: Sequence[tuple[int, Wanted]], groups: Sequence[Group], own: dict[int, JointNeed], of_all: JointNeed | None
    ) -> Iterator[tuple[Build, ...]]:
        """Find builds for the frameworks in ``rest``. ``own`` maps the number of each group to the joint needs of its builds
        that are already chosen. ``of_all`` are the joint needs that all builds chosen so far have in the image."""
        if not rest:
            yield ()
            return
        (index, wanted), *later = rest
        for option in self._options(wanted):
            need = option.need._replace(pythons=tuple(p for p in option.need.pythons if p == groups[index].python))
            ours = join(own[index], need) if index in own else need
            both = join(of_all, shared(need)) if of_all else shared(need)
            if need.pythons and ours and both:
                for others in self._descend(later, groups, {**own, index: ours}, both):
                    yield (option.build, *others)

    def _options(self, wanted: Wanted) -> list[Option]:
        """The builds of a framework. Builds with objections are left out."""
        name = wanted.framework.name
        if name not in self._levels:
            self._levels[name] = [option for option in self._search.options(wanted) if not option.objections]
        return self._levels[name]

    def _places(self, builds: Sequence[Build], groups: Sequence[Group]) -> Iterator[tuple[Place, list[Python]]]:
        """The places that builds can share, with the Python of each group."""
        lookup, request = self._search.lookup, self._search.request
        whole = together(builds)._replace(python=(groups[0].python,))
        free = [part for library, part in zip(LIBRARIES, (CUDNN, NCCL), strict=True) if not in_image(whole, library)]
        for place in places(
            lookup, whole, asked=(request.cudnn, request.nccl), supply=request.python_from, gpus=request.capabilities
        ):
            found = [python_on(lookup, group.python, place.system, "", request.python_from) for group in groups]
            pythons = [python for python in found if isinstance(python, Python)]
            if len(pythons) == len(groups) and all(part in free for part in mismatches(request, place)):
                yield place, pythons

    # --- reasons for separate groups --------------------------------------------------------------------------------------

    def _split(self, group: Group, index: int, member: StackMember, wanted: Wanted) -> Split:
        found = list(self._apart(group, member, wanted))
        if not found and group.python not in member.pythons:
            asked = f"must have Python {', '.join(member.pythons)}, not {group.python}"
            found = [self._said(wanted, asked, self._stack.source)]
        return Split(framework=wanted.framework, group=index, conflicts=tuple(found or self._clash(group, wanted)))

    def _apart(self, group: Group, member: StackMember, wanted: Wanted) -> Iterator[Conflict]:
        """Yield the objections that the stack's file states to putting a framework into a group."""
        for other, said in itertools.product(group.wanted, member.apart):
            if said.framework == other.framework.name:
                yield self._said(wanted, f"kept apart from {said.framework}: {said.because}", said.source)

    def _said(self, wanted: Wanted, reason: str, source: str) -> Conflict:
        return Conflict(row=f"stack {self._stack.name}: {wanted.framework.name}", reason=reason, source=source)

    def _clash(self, group: Group, wanted: Wanted) -> list[Conflict]:
        """The facts about the smallest conflict of a framework with a group. If the framework alone does not work with the
        group's Python, only that conflict is returned."""
        for several in ((wanted,), (*group.wanted, wanted)):
            search = Search(self._search.lookup, self._narrowed(several, group.python))
            if next(search.solutions(), None) is None:
                return clash(search, cores(search))[1]
        why = "no builds of it can share these packages and work with the rest of the stack"
        return [self._said(wanted, why, wanted.framework.origin.source)]

    def _narrowed(self, wanted: tuple[Wanted, ...], python: str) -> Request:
        """The stack's request for only the frameworks ``wanted``. If none of these frameworks has a GPU build, the GPU options
        are dropped."""
        text = f"{self._stack.name} ({', '.join(each.framework.name for each in wanted)})"
        request = self._search.request._replace(text=text, wanted=wanted, python=python and f"=={python}", cudnn="", nccl="")
        if any(option.build.variant.cuda for each in wanted for option in self._search.options(each)):
            return request
        return request._replace(device="", cuda="", driver="", gpus=())

    def _refusal(self, groups: Sequence[Group], member: StackMember, wanted: Wanted) -> ConflictError:
        """The error for a framework that fits into no group. The error has the framework's own conflicts. If there are none,
        the error has the framework's conflicts with the image that the other frameworks need."""
        python = member.pythons[0] if len(member.pythons) == 1 else ""
        alone = Search(self._search.lookup, self._narrowed((wanted,), python))
        found = refusal(alone) if next(alone.solutions(), None) is None else None
        others = [each.framework.name for group in groups for each in group.wanted]
        beside = f"No build of it works with the system, the CUDA and the libraries of {', '.join(others)}."
        return ConflictError(
            f"The stack {self._stack.name} is impossible: no prefix can contain {member.request}.",
            hint=found.hint if found else f"{beside} Change the versions in the file of the stack.",
            conflicts=found.conflicts if found else self._image_clashes(groups, wanted),
        )

    def _image_clashes(self, groups: Sequence[Group], wanted: Wanted) -> list[Conflict]:
        """The objections to a framework in one image with the frameworks of ``groups``, except conflicts of packages. Of the
        framework's builds, the one with the fewest objections counts."""
        if not groups:
            return []
        lookup = self._search.lookup
        candidates, _ = next(self._solutions(groups))
        builds = [build for each in candidates for build in each.builds]
        found = [image_clashes(lookup, option.build, builds) for option in self._options(wanted)]
        return [item.conflict for item in min(found, key=len, default=[])]


def in_image(builds: Variant, library: str) -> bool:
    """Whether joined builds use a library that is installed in the image. The ``cudnn`` and ``nccl`` of a stack's file mean the
    library in the image."""
    need: LibraryNeed | None = getattr(builds, library)
    return need is not None and need.taken_from == "system"


def _joined(groups: tuple[Group, ...], index: int, wanted: Wanted) -> tuple[Group, ...]:
    """Return the groups after a framework was added to the group ``index``."""
    group = groups[index]
    return (*groups[:index], replace(group, wanted=(*group.wanted, wanted)), *groups[index + 1 :])
