"""Finds alternatives to an environment whose base is unreachable.

An alternative has the same frameworks, and this machine can build it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from envbuild.errors import Alternative, BuildError, EnvbuildError
from envbuild.model.environment import Environment

if TYPE_CHECKING:
    from envbuild.matrix.types import Matrix


@contextlib.contextmanager
def with_alternatives(load_matrix: Callable[[], Matrix], environment: Environment) -> Iterator[None]:
    """If the ``with`` block fails because the base of ``environment`` is unreachable, add alternatives to the error."""
    try:
        yield
    except BuildError as error:
        found = alternatives(load_matrix(), environment) if error.code == "base-unreachable" else []
        if not found:
            raise
        raise BuildError(
            error.message,
            code=error.code,
            hint=f"This machine can build {found[0].name}. {error.hint}",
            alternatives=found,
            details=error.details,
        ) from error


def alternatives(matrix: Matrix, environment: Environment) -> list[Alternative]:
    """Return alternatives to ``environment``: they have the same frameworks, and a base that is made from a Debian mirror.

    There is at most one alternative for the same kind of device. If ``environment`` is for GPUs, there is at most one more
    alternative, which is for CPUs.
    """
    if environment.prefixes or environment.custom is not None:
        return []  # the files of a stack and of a user's recipe choose the operating system
    shorts = {table.name: table.short for table in matrix.frameworks}
    request = "+".join(f"{shorts[each.name]}-{each.version}" for each in environment.frameworks)
    devices = {"": "", "-cpu": f"CPU instead of CUDA {environment.cuda}"} if environment.cuda else {"-cpu": ""}
    found: dict[str, Alternative] = {}
    for suffix, device in devices.items():
        for system in matrix.systems:
            other = _resolved(matrix, f"{request}{suffix}", system.name) if system.bootstrap_suite else None
            if other is None or other.name == environment.name or not _needs_a_mirror_alone(other):
                continue
            if (other.cuda is None) != (suffix == "-cpu"):
                continue  # ``other`` is for another kind of device: no build for the wanted kind runs on this system
            place = f"{system.name} instead of {environment.system.name}" if system.name != environment.system.name else ""
            found.setdefault(suffix, Alternative(name=other.name, changes=", ".join(filter(None, (place, device)))))
    return list(found.values())


def _resolved(matrix: Matrix, request: str, system: str) -> Environment | None:
    from envbuild.resolve.request.parser import parse
    from envbuild.resolve.resolution import resolve

    try:
        return resolve(matrix, parse([request], matrix=matrix, system=system, python_from="distribution")).environment
    except EnvbuildError:
        return None


def _needs_a_mirror_alone(environment: Environment) -> bool:
    """Whether a build of the image needs no other servers than a Debian mirror and the package index."""
    base = environment.base
    elsewhere = any(
        each.index != "default" or {"repository", "distribution"} & set(each.options) for each in environment.frameworks
    )
    return not (base.packages or base.files or base.build_image or base.provider == "tag" or elsewhere)
