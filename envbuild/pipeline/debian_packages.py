"""Pins the Debian packages of a lock. These are all .deb files that a build of the lock installs.

All packages that are pinned anew have the versions that a mirror offers on the same day.
"""

from __future__ import annotations

from dataclasses import replace

from envbuild.errors import BuildError, EnvbuildError
from envbuild.lock import gaps
from envbuild.model.lock import AptLock, Lock
from envbuild.model.progress import Progress
from envbuild.pipeline.debian_steps import install_steps, snapshot_of
from envbuild.pipeline.tools import Tools


def is_outdated(tools: Tools, lock: Lock) -> bool:
    """Whether the lock lacks pins of Debian packages that its build installs and that could be pinned."""
    from envbuild import render

    if lock.base.bootstrap is None:
        return False
    if lock.apt is None:
        return True
    wanted = [(plan.name, plan.asked, plan.build_only) for plan in render.apt_plans(lock, tools.recipes, tools.templates)]
    return wanted != [(step.name, step.asked, step.build_only) for step in lock.apt.steps]


def completed(tools: Tools, lock: Lock) -> Lock:
    """Return ``lock`` with pins for all Debian packages of its build. Pins that ``lock`` already has stay where possible."""
    if lock.base.bootstrap is None:
        return _without_packages(lock)
    return pinned(tools, lock, like=lock) if is_outdated(tools, lock) else lock


def pinned(tools: Tools, lock: Lock, like: Lock | None = None) -> Lock:
    """Return ``lock`` with pins for the base and all packages that apt installs on it.

    If ``like`` is a lock on the same base, its packages are used again if they are still available
    (:mod:`envbuild.pipeline.debian_reuse`). Otherwise all packages are pinned anew from today's mirror, because packages of
    different days may conflict. If no mirror answers, the lock lists the packages as missing. Raises :class:`BuildError`
    (``packages-unavailable``, ``unknown-package``) if apt would refuse to install the packages.
    """
    from envbuild.pipeline import debian_reuse

    if like is None or not debian_reuse.is_upon_the_same_base(lock, like):
        return _todays(tools, lock)
    try:
        return debian_reuse.pinned_like(tools, lock, like)
    except EnvbuildError as error:
        made = _todays(tools, lock)  # if this fails, too, its error is raised
        instead = "today's packages are pinned instead" if made.apt else "and no mirror provides today's packages"
        told = f"the system packages of {like.environment.name} cannot be kept; {instead}: {error.message}"
        tools.on_progress(Progress(stage="lock", message=told, warning=True))
        return made


def _todays(tools: Tools, lock: Lock) -> Lock:
    from envbuild.engine import bootstrap

    if lock.base.bootstrap is None:
        return _without_packages(lock)
    missing = tuple(gap for gap in lock.missing if gap.what != gaps.APT)
    suite = lock.base.bootstrap.suite
    tools.on_progress(Progress(stage="lock", message=f"pinning the packages of {suite}"))
    try:
        base = replace(lock.base, bootstrap=bootstrap.plan(tools.workspace, suite, lock.environment.base.components))
    except BuildError as error:
        if error.code != "base-unreachable":
            raise
        tools.on_progress(Progress(stage="lock", message=error.message, log=True))
        return replace(lock, missing=(*missing, *gaps.apt_gap(lock.environment, lock.base)), apt=None)
    return replace(lock, base=base, missing=missing, apt=_steps(tools, replace(lock, base=base, apt=None)))


def _without_packages(lock: Lock) -> Lock:
    """Return ``lock`` with an item in ``missing`` which says that the packages of apt are not pinned.

    The base of ``lock`` is a pulled image.
    """
    found = gaps.apt_gap(lock.environment, lock.base)
    if lock.apt is None and set(found) <= set(lock.missing):
        return lock
    missing = tuple(gap for gap in lock.missing if gap.what not in {gaps.APT, gaps.APT_OF_IMAGE})
    return replace(lock, missing=(*missing, *found), apt=None)


def _steps(tools: Tools, lock: Lock) -> AptLock:
    from envbuild import render
    from envbuild.engine import bootstrap

    held = lock.base.bootstrap.packages if lock.base.bootstrap else ()
    suite = lock.base.bootstrap.suite if lock.base.bootstrap else ""
    archive = bootstrap.archive(tools.workspace, suite, lock.environment.base.components)
    plans = render.apt_plans(lock, tools.recipes, tools.templates)
    steps = install_steps(plans, held, lambda plan, present: archive.install(present, plan.asked))
    if archive.unchecked:
        told = (
            f"the apt settings of this machine switch off these checks: {', '.join(archive.unchecked)}; the lock records this"
        )
        tools.on_progress(Progress(stage="lock", message=told, warning=True))
    return AptLock(snapshots=archive.snapshots(snapshot_of(tools, lock)), steps=steps, unchecked=archive.unchecked)
