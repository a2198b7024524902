"""Helps to resolve a user's recipe, and checks whether its lock is still valid."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from envbuild import files
from envbuild.errors import EnvbuildError, InvalidInputError, Problem, UsageError
from envbuild.model.custom import Custom
from envbuild.model.environment import Environment
from envbuild.model.resolution import Resolution

if TYPE_CHECKING:
    from envbuild.custom.reading import UserRecipe
    from envbuild.model.lock import Lock
    from envbuild.pipeline.tools import Tools

# Fields of Custom that decide which files are pinned → their keys in envbuild.yaml. If only other keys have changed, a new
# lock needs no package index.
_PINNED = {"request": "frameworks", "pip": "pip", "newer": "newer"}


def named(resolution: Resolution, recipe: UserRecipe) -> Resolution:
    """Return ``resolution`` with the name of the recipe, and with everything that the recipe adds."""
    environment = replace(resolution.environment, name=recipe.name, custom=recipe.custom)
    return resolution._replace(request=str(recipe.path), environment=environment)


def packages_of_frameworks(tools: Tools) -> dict[str, str]:
    """Map the canonical name of each project on the index to the framework that it installs.

    If a project installs several frameworks of the matrix, the first one counts.
    """
    from packaging.utils import canonicalize_name

    found: dict[str, str] = {}
    for table in tools.matrix.frameworks:
        for variant in (variant for release in table.releases for variant in release.variants):
            found.setdefault(str(canonicalize_name(variant.package)), table.name)
    return found


def with_advice(tools: Tools, resolution: Resolution) -> Resolution:
    """Return ``resolution`` with a warning for each project under ``pip:`` that the matrix has as a framework."""
    from envbuild.custom.requirements import project_of

    environment = resolution.environment
    if environment.custom is None or not environment.custom.pip:
        return resolution
    known, taken = packages_of_frameworks(tools), {each.name for each in environment.frameworks}
    names = {project: known.get(project_of(project), "") for project in map(_project, environment.custom.pip)}
    advice = (
        f"`pip: [{project}]` installs only the package; the framework `{name}` also has the libraries that the package "
        f"needs. Name {name} under `frameworks:` instead."
        for project, name in names.items()
        if name and name not in taken
    )
    return resolution._replace(warnings=(*resolution.warnings, *advice))


def _project(text: str) -> str:
    from packaging.requirements import Requirement

    return Requirement(text).name


def as_locked(recipe: UserRecipe, lock: Lock) -> Environment | None:
    """Return the environment of the lock, with the recipe's name and additions; None if the lock is for another request."""
    held = lock.environment.custom
    if held is None or held.request != recipe.custom.request:
        return None
    return replace(lock.environment, name=recipe.name, custom=recipe.custom)


def pinned_differences(recipe: UserRecipe, lock: Lock) -> list[Problem]:
    """Return those differences between the recipe and its lock that make pins invalid."""
    return [Problem(where=str(recipe.path), line=0, message=message) for message in _differences(recipe.custom, lock)]


def _differences(custom: Custom, lock: Lock) -> Iterator[str]:
    held = lock.environment.custom
    if held is None:
        yield "the lock next to it was not made for an envbuild.yaml"
        return
    for field, key in _PINNED.items():
        now, then = getattr(custom, field), getattr(held, field)
        yield from (f"{key}: {text} is requested, but the lock was made without it" for text in now if text not in then)
        yield from (f"{key}: {text} is no longer requested, but the lock was made with it" for text in then if text not in now)
    now, then = custom.requirements(), held.requirements()
    if set(now) - set(custom.pip) != set(then) - set(held.pip):
        yield "services: they need packages that are not in the lock"


def require_taken_over(tools: Tools, lock: Lock) -> None:
    """Raise :class:`InvalidInputError` (``stale-lock``) if the recipe has changed since its lock was made."""
    recipe = tools.user_recipe
    if recipe is not None and as_locked(recipe, lock) != lock.environment:
        raise InvalidInputError(
            f"{recipe.path} has changed since it was locked, but all packages stay the same.",
            code="stale-lock",
            hint=f"To use the new file, run `envbuild make {tools.cli_name('')}`, or only `envbuild lock "
            f"{tools.cli_name('')}`; neither needs a package index for that.",
        )


def require_alone(recipe: UserRecipe, *, insisted: bool) -> None:
    """Raise :class:`UsageError` if options force values for a user's recipe, because no file would record these values."""
    if insisted:
        raise UsageError(
            "Options cannot be combined with envbuild.yaml; put them in it.",
            hint=f"Write them into {recipe.path}, under the keys driver, gpu, python, python_from, os and base.",
        )


def require_free_name(tools: Tools, recipe: UserRecipe) -> None:
    """Raise :class:`InvalidInputError` if the recipe's name is a request, because its images would get the request's tags."""
    if not is_free(tools, recipe.name):
        raise InvalidInputError(
            f"The environment of {recipe.path} would be called {recipe.name}, which already means something else to envbuild.",
            code="taken-name",
            hint=f"Give it another name, for example `name: my-{recipe.name}`.",
        )


def is_free(tools: Tools, name: str) -> bool:
    """Whether ``name`` cannot be read as a request."""
    from envbuild.resolve.request.parser import parse

    try:
        parse([name], matrix=tools.matrix)
    except EnvbuildError:
        return not tools.workspace.stack_file(name).exists()
    return False


def free_name(tools: Tools, folder: Path) -> str:
    """Return a name for a recipe in ``folder`` that cannot be read as a request."""
    from envbuild.custom.writing import name_for

    name = name_for(folder)
    return name if is_free(tools, name) else f"my-{name}"


def keep_private(tools: Tools) -> None:
    """Make git ignore the folder next to the recipe whose files belong only to this machine."""
    workspace = tools.workspace
    if workspace.user_recipe is not None and not (note := workspace.output / ".gitignore").exists():
        files.write_atomic(
            note,
            "# Written by envbuild for this machine; safe to delete. Keep the lock beside the envbuild.yaml.\n*\n",
        )
