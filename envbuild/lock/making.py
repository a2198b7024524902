"""Make a lock: pin every file of an environment. A package index is needed for this."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import Requirement

from envbuild.errors import BuildError
from envbuild.lock.gaps import build_image_gap, gap_of, is_pinned, unpinned
from envbuild.lock.installers import tools_of, with_pip
from envbuild.lock.prefix import ByFramework, PrefixMaker
from envbuild.model.environment import Environment, Framework, PrefixPlan
from envbuild.model.lock import Artifact, BaseLock, Lock, Missing, Prefix, SourceArchive
from envbuild.model.progress import OnProgress, Progress, ignore_progress

if TYPE_CHECKING:
    from envbuild.index.client import Index

PinBase = Callable[[Environment], BaseLock | Missing]


@dataclass(frozen=True, kw_only=True, slots=True)
class LockInputs:
    """The inputs for a lock, in addition to the environment. The function ``pin_base`` pins the base. ``ignored`` maps
    frameworks to projects. Requirements on these projects are not followed.

    ``tools`` and ``sources`` are the programs and archives that the matrix pins. A lock contains those that its build needs.
    ``pips`` maps each version of Python to the pip that is installed in images with this Python.
    """

    recipe_requirements: ByFramework
    index: Index
    pin_base: PinBase
    downloads: Path
    ignored: ByFramework = field(default_factory=dict)
    tools: Sequence[Artifact] = ()
    pips: Mapping[str, Artifact] = field(default_factory=dict)
    sources: Sequence[SourceArchive] = ()
    on_progress: OnProgress = ignore_progress

    def maker(self, environment: Environment, plan: PrefixPlan) -> PrefixMaker:
        """Return the object that pins the packages of one prefix."""
        return PrefixMaker(environment, plan, self.index, self.downloads, ignored=self.ignored, on_progress=self.on_progress)


def make(
    environment: Environment, inputs: LockInputs, *, like: Lock | None = None, upgrading: Sequence[Requirement] = ()
) -> Lock:
    """Choose and pin every Python package of ``environment``, in each of its prefixes.

    ``like`` is an earlier lock. Its files are reused if they still fit, and only the projects in ``upgrading`` are chosen
    again. If ``upgrading`` gives a project version bounds, the project may be newer than the date limit. ``Lock.missing`` lists
    everything that cannot be pinned.

    The same environment and index give the same lock, byte for byte. Raises :class:`ConflictError` (``unsatisfiable``), and
    :class:`BuildError` (``index-unreachable``) if an index in pip's configuration cannot be reached.
    """
    earlier = {prefix.name: prefix for prefix in like.prefixes} if like else {}
    prefixes: list[Prefix] = []
    gaps: list[Missing] = []
    for plan in environment.plans():
        maker = inputs.maker(environment, plan)
        ours = environment.part(plan).frameworks
        present = [framework for framework in ours if maker.is_known(framework)]
        gaps += [gap_of(framework) for framework in ours if framework not in present]
        prefixes.append(maker.make(present, inputs.recipe_requirements, like=earlier.get(plan.name), upgrading=upgrading))
    base, base_gap = _pin_base(environment, inputs)
    missing = (*unpinned(environment), *gaps, *base_gap)
    return Lock(
        environment=environment,
        base=base,
        prefixes=with_pip(prefixes, inputs.pips),
        missing=missing,
        tools=tools_of(prefixes, inputs.tools, like.tools if like else ()),
        sources=_sources_of(environment, inputs.sources),
    )


def complete(lock: Lock, inputs: LockInputs) -> Lock:
    """Return ``lock`` after pinning as many entries of its field ``missing`` as possible now. Existing pins stay.

    Tools, pips and sources that the lock lacks are added from the matrix, too. If nothing new is available, an equal lock is
    returned. An index is queried only if a file from an index was missing.
    """
    environment = lock.environment
    missing, base, prefixes = list(lock.missing), lock.base, list(lock.prefixes)
    for place, (plan, prefix) in enumerate(zip(environment.plans(), lock.prefixes, strict=True)):
        absent = [each for each in environment.part(plan).frameworks if each.name not in prefix.frameworks]
        if absent and (whole := _retry(inputs.maker(environment, plan), inputs.recipe_requirements, absent, prefix)):
            prefixes[place] = whole
            answered = {gap_of(framework) for framework in absent}
            missing = [gap for gap in missing if gap not in answered]
    if not is_pinned(base) or build_image_gap(environment, base):
        found, still = _pin_base(environment, inputs)
        if is_pinned(found):
            base = found
            ours = {*unpinned(environment), *map(gap_of, environment.frameworks), *still}
            missing = [gap for gap in missing if gap in ours]
    return replace(
        lock,
        base=base,
        prefixes=with_pip(prefixes, inputs.pips),
        missing=tuple(missing),
        tools=tools_of(prefixes, inputs.tools, lock.tools),
        sources=_sources_of(environment, inputs.sources, lock.sources),
        apt=lock.apt if base == lock.base else None,
    )


def _retry(maker: PrefixMaker, recipe_requirements: ByFramework, absent: Sequence[Framework], prefix: Prefix) -> Prefix | None:
    """Return ``prefix`` with the ``absent`` frameworks added. Return None if an index for one of them still does not answer."""
    if not all(maker.is_known(framework) for framework in absent):
        return None
    try:
        return maker.make(maker.environment.frameworks, recipe_requirements, pins={a.name: a for a in prefix.artifacts})
    except BuildError as error:
        if error.code != "index-unreachable":
            raise
        return None


def _pin_base(environment: Environment, inputs: LockInputs) -> tuple[BaseLock, tuple[Missing, ...]]:
    inputs.on_progress(Progress(stage="lock", message=f"pinning the base {environment.base.image}"))
    found = inputs.pin_base(environment)
    if isinstance(found, Missing):
        return BaseLock(image=environment.base.image, digest=None, bootstrap=None), (found,)
    return found, build_image_gap(environment, found)


def _sources_of(
    environment: Environment, offered: Iterable[SourceArchive], held: Iterable[SourceArchive] = ()
) -> tuple[SourceArchive, ...]:
    """Return the source archives of frameworks that are built from a repository. Archives with unknown hashes are left out."""
    found = {(each.repository, each.revision): each for each in (*offered, *held)}
    wanted = {
        (framework.options["repository"], framework.options.get("revision", ""))
        for framework in environment.frameworks
        if "repository" in framework.options
    }
    return tuple(found[key] for key in sorted(wanted) if key in found)
