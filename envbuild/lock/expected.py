"""What an environment alone settles of its lock, before any index is asked. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Literal

from envbuild.model import Artifact, BaseLock, Environment, Framework, Lock, Missing, Prefix, PrefixPlan, SourceArchive

DEFAULT_INDEX = "default"
APT = "the Debian packages that apt installs"
APT_OF_IMAGE = "the packages that apt installs from the archive of the base"
# uv installs into 3.6 and newer ("does not support -I" below that); older interpreters need the last pip that knew them, and
# a virtualenv that brings its own pip and setuptools, as 20.0 and later do not.
INSTALLERS = ("pip", "virtualenv<20")
BUILDERS = ("pip", "setuptools", "wheel")
_OLDEST_FOR_UV = (3, 6)


def path_of(environment: Environment, plan: PrefixPlan) -> str:
    """Where one of its sets of packages is installed."""
    return f"/opt/envs/{plan.name}" if environment.prefixes else f"/opt/{plan.name}"


def backend_of(python: str) -> Literal["uv", "pip"]:
    """What installs packages for this interpreter."""
    major, minor = python.split(".")[:2]
    return "uv" if (int(major), int(minor)) >= _OLDEST_FOR_UV else "pip"


def tool_names(prefixes: Iterable[Prefix]) -> tuple[str, ...]:
    """The programs that a build takes from ``Lock.tools``; pip is not among them, each prefix pins the one for its Python."""
    return tuple(sorted({prefix.backend for prefix in prefixes} - {"pip"}))


def missing_tools(lock: Lock) -> tuple[str, ...]:
    """The programs that a build of ``lock`` needs and that it does not pin: locks did not pin them before 2026-11-22."""
    held = {artifact.name for artifact in lock.tools}
    return tuple(name for name in tool_names(lock.prefixes) if name not in held)


def tools_of(prefixes: Iterable[Prefix], offered: Iterable[Artifact], held: Iterable[Artifact] = ()) -> tuple[Artifact, ...]:
    """What installing ``prefixes`` takes of the ``offered`` programs. One that is ``held`` already stays."""
    found = {artifact.name: artifact for artifact in (*offered, *held)}
    return tuple(found[name] for name in tool_names(prefixes) if name in found)


def with_pip(prefixes: Iterable[Prefix], pips: Mapping[str, Artifact]) -> tuple[Prefix, ...]:
    """``prefixes``, each with the pip for its Python where it has none yet."""
    return tuple(replace(prefix, pip=prefix.pip or pips.get(prefix.python.version)) for prefix in prefixes)


def sources_of(
    environment: Environment, offered: Iterable[SourceArchive], held: Iterable[SourceArchive] = ()
) -> tuple[SourceArchive, ...]:
    """The archives of the frameworks that are built from a repository, as far as their hashes are known."""
    found = {(each.repository, each.revision): each for each in (*offered, *held)}
    wanted = {
        (framework.options["repository"], framework.options.get("revision", ""))
        for framework in environment.frameworks
        if "repository" in framework.options
    }
    return tuple(found[key] for key in sorted(wanted) if key in found)


def gap_of(framework: Framework) -> Missing:
    """What stands in the place of a framework's files while nothing can be learnt of them."""
    return Missing(
        what=f"the files of {framework.package} {framework.version} and of what it requires",
        why=f"its package index {framework.index} could not be reached",
    )


def unpinned(environment: Environment) -> list[Missing]:
    """What the matrix itself leaves open: packages without a hash, and sources named by a tag, which can be moved."""
    sources = [
        Missing(
            what=f"the commit of {framework.options['repository']} that {revision} names",
            why="the matrix names a tag or a branch there, no commit",
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
            why=f"no public source gives it; apt checks it at build time against the signed index of {package.repository}",
        )
        for package in (*environment.base.packages, *environment.base.build_packages)
        if not package.sha256
    ]


def is_pinned(base: BaseLock) -> bool:
    """Whether the base is known by a digest or by its packages."""
    return base.digest is not None or base.bootstrap is not None


def build_image_gap(environment: Environment, base: BaseLock) -> tuple[Missing, ...]:
    """What stands in the place of the digest of the image that there is for compiling."""
    image = environment.base.build_image
    why = "its registry gave no digest when this was locked"
    return (Missing(what=f"image {image}, to compile in", why=why),) if image and base.build_digest is None else ()


def apt_gap(environment: Environment, base: BaseLock) -> tuple[Missing, ...]:
    """What stands in the place of the packages that apt installs; upon an image of the user's none is promised."""
    if environment.base.provider == "local":
        return ()
    if environment.system.family != "debian":
        why = "their base is an image whose packages are not known before the build, which takes those of its day"
        return (Missing(what=APT_OF_IMAGE, why=f"{why}; apt checks them against the archive's signed index"),)
    why = "no Debian mirror gave its package lists when this was locked"
    if base.bootstrap is None and not environment.system.bootstrap_suite:
        why = "its base is no suite of Debian's that a mirror has"
    return (Missing(what=APT, why=why),)
