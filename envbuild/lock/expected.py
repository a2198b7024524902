"""What an environment alone settles of its lock, before any index is asked. Pure."""

from __future__ import annotations

import re
from typing import Literal

from envbuild.model import BaseLock, Environment, Framework, Missing, PrefixPlan

DEFAULT_INDEX = "default"
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
