"""Describe what a lock leaves unpinned, and why: the entries of the field ``Lock.missing``. The functions are pure (no network,
files or clock)."""

from __future__ import annotations

import re

from envbuild.model.environment import Environment, Framework
from envbuild.model.lock import BaseLock, Missing

APT = "the Debian packages that apt installs"
APT_OF_IMAGE = "the packages that apt installs from the archive of the base"


def gap_of(framework: Framework) -> Missing:
    """Return the entry for a framework whose files are unknown, because its index could not be reached."""
    return Missing(
        what=f"the files of {framework.package} {framework.version} and of its dependencies",
        why=f"its package index {framework.index} could not be reached",
    )


def unpinned(environment: Environment) -> list[Missing]:
    """Return the entries for facts that the matrix lacks: hashes of packages and Pythons, and commits of sources. A commit is
    missing if the matrix names only a tag or a branch."""
    sources = [
        Missing(
            what=f"the commit of {framework.options['repository']} that {revision} names",
            why="the matrix names a tag or a branch, not a commit",
        )
        for framework in environment.frameworks
        if (revision := framework.options.get("revision", "")) and not re.fullmatch(r"[0-9a-f]{40}", revision)
    ]
    pythons = [
        Missing(what=f"Python {python.version} from {python.provided_by}", why="no public source gives the sha256 of its files")
        for python in dict.fromkeys(plan.python for plan in environment.plans())
        if python.is_fetched and not python.files
    ]
    return [*sources, *pythons] + [
        Missing(
            what=f"sha256 of {package.name} {package.version}",
            why="no public document gives the hash; during the build, apt checks the package "
            f"against the signed index of {package.repository}",
        )
        for package in (*environment.base.packages, *environment.base.build_packages)
        if not package.sha256
    ]


def is_pinned(base: BaseLock) -> bool:
    """Whether the base is pinned by a digest or by its packages."""
    return base.digest is not None or base.bootstrap is not None


def build_image_gap(environment: Environment, base: BaseLock) -> tuple[Missing, ...]:
    """Return an entry if the digest of the image that is used for compiling is missing."""
    image = environment.base.build_image
    why = "its registry gave no digest when this was locked"
    return (Missing(what=f"image {image}, to compile in", why=why),) if image and base.build_digest is None else ()


def apt_gap(environment: Environment, base: BaseLock) -> tuple[Missing, ...]:
    """Return the entry for Debian packages that are not pinned. If the base is the user's own image, packages are never pinned,
    and there is no entry."""
    if environment.base.provider == "local":
        return ()
    if environment.system.family != "debian":
        why = "the base image's packages are not known before the build, so the build installs the versions of that day"
        return (Missing(what=APT_OF_IMAGE, why=f"{why}; apt checks them against the archive's signed index"),)
    why = "no Debian mirror provided package lists when this was locked"
    if base.bootstrap is None and not environment.system.bootstrap_suite:
        why = "no Debian mirror has the suite of its base"
    return (Missing(what=APT, why=why),)
