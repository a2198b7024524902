"""How the packages of each prefix are installed: into which folder, by uv or by pip, and with which pinned tools. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Literal

from envbuild.model import Artifact, Environment, Lock, Prefix, PrefixPlan

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
    """``prefixes``, each with the pip for its Python if it has none yet."""
    return tuple(replace(prefix, pip=prefix.pip or pips.get(prefix.python.version)) for prefix in prefixes)
