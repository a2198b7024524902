"""Decide how the packages of each prefix are installed: the folder, uv or pip, and the pinned tools. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Literal

from envbuild.model.environment import Environment, PrefixPlan
from envbuild.model.lock import Artifact, Lock, Prefix

# uv supports Python 3.6 and newer ("does not support -I" below that). Older interpreters need the last pip that supports them,
# and a virtualenv before 20.0, which contains its own pip and setuptools.
INSTALLERS = ("pip", "virtualenv<20")
BUILDERS = ("pip", "setuptools", "wheel")
_OLDEST_FOR_UV = (3, 6)


def path_of(environment: Environment, plan: PrefixPlan) -> str:
    """Return the folder of a prefix."""
    return f"/opt/envs/{plan.name}" if environment.prefixes else f"/opt/{plan.name}"


def backend_of(python: str) -> Literal["uv", "pip"]:
    """Return the installer for this interpreter."""
    major, minor = python.split(".")[:2]
    return "uv" if (int(major), int(minor)) >= _OLDEST_FOR_UV else "pip"


def tool_names(prefixes: Iterable[Prefix]) -> tuple[str, ...]:
    """Return the names of the programs that a build needs in ``Lock.tools``. pip is not among them, because each prefix pins
    its own."""
    return tuple(sorted({prefix.backend for prefix in prefixes} - {"pip"}))


def missing_tools(lock: Lock) -> tuple[str, ...]:
    """Return the programs that a build of ``lock`` needs but the lock does not pin (locks from before 2026-11-22)."""
    held = {artifact.name for artifact in lock.tools}
    return tuple(name for name in tool_names(lock.prefixes) if name not in held)


def tools_of(prefixes: Iterable[Prefix], offered: Iterable[Artifact], held: Iterable[Artifact] = ()) -> tuple[Artifact, ...]:
    """Return the programs that installing ``prefixes`` needs: those in ``held``, and for the rest the ``offered`` ones."""
    found = {artifact.name: artifact for artifact in (*offered, *held)}
    return tuple(found[name] for name in tool_names(prefixes) if name in found)


def with_pip(prefixes: Iterable[Prefix], pips: Mapping[str, Artifact]) -> tuple[Prefix, ...]:
    """Return ``prefixes``, each with a pinned pip for its Python, if one is known."""
    return tuple(replace(prefix, pip=prefix.pip or pips.get(prefix.python.version)) for prefix in prefixes)
