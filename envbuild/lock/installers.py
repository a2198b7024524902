"""Decide how the packages of each prefix are installed: into which folder, by uv or pip, and with which pinned tools. The
functions are pure (no network, files or clock)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Literal

from envbuild.model.environment import Environment, PrefixPlan
from envbuild.model.lock import Artifact, Lock, Prefix

# uv supports Python 3.6 and newer; with older versions of Python, uv fails with "does not support -I". For older versions, the
# lock pins the last pip that supports them, and a virtualenv before 20.0, which contains its own pip and setuptools.
INSTALLERS = ("pip", "virtualenv<20")
BUILDERS = ("pip", "setuptools", "wheel")
_OLDEST_FOR_UV = (3, 6)


def path_of(environment: Environment, plan: PrefixPlan) -> str:
    """Return the folder of a prefix."""
    return f"/opt/envs/{plan.name}" if environment.prefixes else f"/opt/{plan.name}"


def backend_of(python: str) -> Literal["uv", "pip"]:
    """Return the installer for this version of Python."""
    major, minor = python.split(".")[:2]
    return "uv" if (int(major), int(minor)) >= _OLDEST_FOR_UV else "pip"


def tool_names(prefixes: Iterable[Prefix]) -> tuple[str, ...]:
    """Return the names of the programs that a build needs in ``Lock.tools``. pip is not in this list, because each prefix pins
    its own pip."""
    return tuple(sorted({prefix.backend for prefix in prefixes} - {"pip"}))


def missing_tools(lock: Lock) -> tuple[str, ...]:
    """Return the programs that a build of ``lock`` needs but the lock does not pin. Locks from before 2026-11-22 may lack
    them."""
    held = {artifact.name for artifact in lock.tools}
    return tuple(name for name in tool_names(lock.prefixes) if name not in held)


def tools_of(prefixes: Iterable[Prefix], offered: Iterable[Artifact], held: Iterable[Artifact] = ()) -> tuple[Artifact, ...]:
    """Return the programs that are needed to install ``prefixes``. Programs in ``held`` are preferred to the ``offered``
    ones."""
    found = {artifact.name: artifact for artifact in (*offered, *held)}
    return tuple(found[name] for name in tool_names(prefixes) if name in found)


def with_pip(prefixes: Iterable[Prefix], pips: Mapping[str, Artifact]) -> tuple[Prefix, ...]:
    """Return ``prefixes``. Each one gets a pinned pip for its Python, if such a pip is known."""
    return tuple(replace(prefix, pip=prefix.pip or pips.get(prefix.python.version)) for prefix in prefixes)
