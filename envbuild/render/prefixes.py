"""The list of an image's prefixes, as plain text for the guest and for envbuild-use.

Each prefix has a line ``PATH  WORDS``. The indented lines below that line are the variables that the frameworks of the prefix
need. Other prefixes must not see these variables.
"""

from __future__ import annotations

from collections.abc import Mapping

from envbuild.errors import InvalidInputError
from envbuild.model.environment import Environment, PrefixPlan
from envbuild.model.lock import Lock, Prefix
from envbuild.recipes import Recipe

FILE = "prefixes"
_LIBRARY_PATH = "LD_LIBRARY_PATH"
_HEADER = "Rendered from lock.json by envbuild, do not edit. The Dockerfile beside it says how to make it again."


def listed(lock: Lock, recipes: Mapping[str, Recipe]) -> str:
    """Return the text of the list, in the order of the environment. Containers of the image start with the first prefix."""
    environment = lock.environment
    width = max(len(prefix.path) for prefix in lock.prefixes)
    lines = [f"# {_HEADER}"]
    for plan, prefix in zip(environment.plans(), lock.prefixes, strict=True):
        held = environment.part(plan).frameworks
        words = ", ".join(f"{recipes[framework.recipe].title} {framework.version}" for framework in held)
        lines.append(f"{prefix.path:<{width}}  Python {prefix.python.version:<4}  {words}")
        values = variables(environment, plan, recipes, prefix)
        lines += [f"  {name}={_one_line(name, value)}" for name, value in sorted(values.items())]
    return "\n".join(lines) + "\n"


def variables(environment: Environment, plan: PrefixPlan, recipes: Mapping[str, Recipe], prefix: Prefix) -> dict[str, str]:
    """The variables that the recipes of the frameworks in ``plan`` set. If two recipes set the same variable, the last one
    counts. The folders of CUDA's wheels come first in the library path."""
    merged: dict[str, str] = {}
    for framework in environment.part(plan).frameworks:
        merged.update(recipes[framework.recipe].env)
    wheels = environment.part(plan).cuda_wheels()
    folders = list(dict.fromkeys(f"{site_packages(prefix)}/{wheel.folder}" for wheel in wheels if wheel.folder))
    if folders:
        merged[_LIBRARY_PATH] = ":".join([*folders, *filter(None, [merged.get(_LIBRARY_PATH)])])
    return merged


def site_packages(prefix: Prefix) -> str:
    """The folder of the packages of a prefix."""
    return f"{prefix.path}/lib/python{prefix.python.version}/site-packages"


def _one_line(name: str, value: str) -> str:
    if value.splitlines() not in ([value], []):
        raise InvalidInputError(
            f"The value of the variable {name} has more than one line.", hint="Correct the recipe that sets it."
        )
    return value
