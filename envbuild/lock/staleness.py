"""Compare the environment in a lock with today's matrix. The functions are pure (no network, files or clock)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from envbuild import codec
from envbuild.lock.comparison import differing
from envbuild.model.environment import Environment, Framework
from envbuild.model.lock import Lock

_LIBRARIES = re.compile(r"\b(cudnn|nccl)\b")  # for these libraries, the matrix only prefers versions; the preference may change


def outdated(lock: Lock, today: Environment) -> Iterator[str]:
    """Yield a line for each difference between the lock and ``today``, the environment that the matrix gives now."""
    held = lock.environment
    same = (held.cudnn, held.nccl, held.base.image) == (today.cudnn, today.nccl, today.base.image)
    settled = _settled(held, same)
    if today.base.build_packages and not held.base.build_packages:
        yield "it was made before the matrix contained the packages that compile it"
    for framework, required in _newly_required(lock, today):
        yield f"{framework} requires {required}, which the lock does not pin"
    for path, ours, theirs in differing(settled, _in_form_of(settled, _settled(today, same))):
        yield f"{path} is {_said(ours)} in the lock, but {_said(theirs)} in the matrix"


def stricter(held: Environment, today: Environment) -> tuple[Framework, ...]:
    """Return those frameworks of ``today`` whose requirements are the same as in the lock. Today's constraints of these
    frameworks also apply to the lock."""
    ours = {(each.name, each.requirements) for each in held.frameworks}
    return tuple(each for each in today.frameworks if (each.name, each.requirements) in ours)


def _newly_required(lock: Lock, today: Environment) -> Iterator[tuple[str, str]]:
    """Yield (framework, package) for each package that a framework requires only today, and that the lock does not pin."""
    pinned = {str(canonicalize_name(each.name)) for prefix in lock.prefixes for each in prefix.artifacts}
    known = pinned.union(*({_project(each) for each in framework.requirements} for framework in lock.environment.frameworks))
    for framework in today.frameworks:
        for project in map(_project, framework.requirements):
            if project not in known:
                yield framework.name, project


def _project(requirement: str) -> str:
    return str(canonicalize_name(Requirement(requirement).name))


def _settled(environment: Environment, same: bool) -> Any:
    """Return, as JSON, the parts of an environment that must not change under the same name.

    Other parts may change and are left out: requirements (:func:`_newly_required` finds new ones), bounds and pins of packages
    (the packages themselves are checked), base frameworks, and alternatives. If ``same`` is false, cuDNN, NCCL or the image has
    changed: the matrix may now prefer other libraries or another tag. Then the wheels that contain these libraries are left
    out, too. For the providers ``apt`` and ``tag``, the image, the packages and the repositories are also left out.
    """
    base = replace(environment.base, is_default=True, other_providers=())
    if not same:
        base = replace(base, wheels=tuple(wheel for wheel in base.wheels if not _LIBRARIES.search(wheel.requirement)))
    if not same and base.provider in ("apt", "tag"):
        base = replace(base, image="", packages=(), repositories=())
    free: dict[str, Any] = {"requirements": (), "constraints": (), "released": "", "files": ()}
    frameworks = tuple(replace(each, **free) for each in environment.frameworks)
    return codec.encode(replace(environment, frameworks=frameworks, base=base, cudnn=None, nccl=None, exclude_newer=""))


def _in_form_of(form: Any, value: Any) -> Any:
    """Return ``value`` without the keys that ``form`` lacks. ``form`` may come from a lock that is older than these keys.

    The options of a row are always kept as they are, because their keys are data.
    """
    if isinstance(form, dict) and isinstance(value, dict):
        return {key: item if key == "options" else _in_form_of(form[key], item) for key, item in value.items() if key in form}
    if isinstance(form, list) and isinstance(value, list) and len(form) == len(value):
        return [_in_form_of(one, two) for one, two in zip(form, value, strict=True)]
    return value


def _said(value: Any) -> str:
    return str(value) if isinstance(value, str | int | float) else "absent" if value is None else "another"
