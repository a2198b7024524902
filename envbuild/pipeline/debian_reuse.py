"""Reuses the Debian packages of an earlier lock on the same base, so that the images of both locks share layers.

Mirrors drop old packages within days. Dropped packages can still be in this machine's store and in the distribution's
snapshots.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from envbuild.engine import bootstrap, package_store
from envbuild.engine.apt_archive import Archive
from envbuild.errors import BuildError
from envbuild.lock import gaps
from envbuild.model.lock import AptLock, AptPlan, AptStep, DebianPackage, Lock
from envbuild.model.progress import Progress
from envbuild.pipeline.debian_steps import install_steps, snapshot_of
from envbuild.pipeline.tools import Tools


def is_upon_the_same_base(lock: Lock, like: Lock) -> bool:
    """Whether ``like`` pins Debian packages, and has the same base as ``lock``."""
    ours, theirs = lock.environment, like.environment
    return (
        like.apt is not None
        and like.base.bootstrap is not None
        and ours.system == theirs.system
        and (ours.base.provider, ours.base.image) == (theirs.base.provider, theirs.base.image)
        and ours.base.components == theirs.base.components
    )


def pinned_like(tools: Tools, lock: Lock, like: Lock) -> Lock:
    """Return ``lock`` with packages of ``like``: the base packages, and those of each apt step before the first that differs.

    The packages of the other steps are chosen again: from the mirror if it still lists all packages of ``like`` that are used,
    else from the snapshots that ``like`` uses.

    Raises :class:`BuildError` (``package-gone``, ``packages-unavailable``, ``unknown-package``, ``base-unreachable``) if
    packages of ``like`` are no longer available, or if no new packages fit them.
    """
    from envbuild import render

    filled = (gaps.APT, f"base {like.base.image}")
    lock = replace(lock, base=like.base, apt=None, missing=tuple(gap for gap in lock.missing if gap.what not in filled))
    plans = render.apt_plans(lock, tools.recipes, tools.templates)
    kept = dict(_kept_steps(plans, like))
    held = like.base.bootstrap.packages if like.base.bootstrap else ()
    archives = _Archives(tools, like)
    archives.require_files([*held, *(package for step in kept.values() for package in step.packages)])

    def install(plan: AptPlan, present: tuple[DebianPackage, ...]) -> tuple[DebianPackage, ...]:
        return kept[plan.name].packages if plan.name in kept else archives.install(present, plan.asked)

    return replace(lock, apt=archives.lock_of(install_steps(plans, held, install)))


def _kept_steps(plans: Sequence[AptPlan], like: Lock) -> Iterator[tuple[str, AptStep]]:
    """Yield the apt steps of ``like`` that can be kept, each with its name. They come before the first step that differs.

    In both locks, these steps start with the same installed packages, and ask apt for the same packages.
    """
    ours = {plan.name: plan.asked for plan in plans}
    same: list[str] = []
    for step in like.apt.steps if like.apt else ():
        if ours.get(step.name) != step.asked:
            break
        same.append(step.name)
    for plan in plans:
        held = like.apt.step(plan.name) if like.apt else None
        if held is not None and plan.name in same and set(plan.before) <= set(same):
            yield plan.name, held


class _Archives:
    """The mirror and the snapshots that provide the packages of an earlier lock, and additional packages."""

    def __init__(self, tools: Tools, like: Lock) -> None:
        self._tools = tools
        self._like = like
        self._suite = like.base.bootstrap.suite if like.base.bootstrap else ""
        self._components = like.environment.base.components
        self._asked: list[Archive] = []

    def require_files(self, packages: Sequence[DebianPackage]) -> None:
        """Raise :class:`BuildError` (``package-gone``) if some of ``packages`` are not available any more.

        If both the store and the mirror lack some packages, the smallest of these is fetched from the snapshots as a test. The
        snapshots have either all of them or none.
        """
        store = package_store.Store(self._tools.workspace)
        absent = [package for package in packages if not store.holds(package)]
        if absent:
            mirror = self._mirror()
            absent = [package for package in absent if mirror is None or not mirror.lists(package)]
        if absent:
            store.get(
                min(absent, key=lambda package: package.size),
                package_store.servers_of(self._like, package_store.host_mirrors(self._like)),
            )

    def install(self, present: Sequence[DebianPackage], asked: Sequence[str]) -> tuple[DebianPackage, ...]:
        """Return the packages that apt would install for the package names ``asked`` if ``present`` is already installed."""
        mirror = self._mirror()
        if mirror is not None and all(map(mirror.lists, present)):
            return self._noted(mirror).install(present, asked)
        told = f"asking the snapshot archive of {self._like.environment.name} for {', '.join(asked)}"
        self._tools.on_progress(Progress(stage="lock", message=told))
        snapshots = self._like.apt.snapshots if self._like.apt else ()
        archive = bootstrap.snapshot_archive(self._tools.workspace, self._suite, snapshots, self._components)
        return self._noted(archive).install(present, asked)

    def lock_of(self, steps: tuple[AptStep, ...]) -> AptLock:
        """Return ``steps`` with the snapshots that have their packages: the earlier lock's snapshots, and new ones."""
        snapshot = snapshot_of(self._tools, self._like)
        earlier = self._like.apt or AptLock(snapshots=(), steps=())
        more = [url for archive in self._asked for url in archive.snapshots(snapshot)]
        unchecked = [word for archive in self._asked for word in archive.unchecked]
        return AptLock(
            snapshots=tuple(dict.fromkeys((*earlier.snapshots, *more))),
            steps=steps,
            unchecked=tuple(dict.fromkeys((*earlier.unchecked, *unchecked))),
        )

    def _mirror(self) -> Archive | None:
        try:
            return bootstrap.archive(self._tools.workspace, self._suite, self._components)
        except BuildError as error:
            if error.code != "base-unreachable":
                raise
            return None

    def _noted(self, archive: Archive) -> Archive:
        if archive not in self._asked:
            self._asked.append(archive)
        return archive
