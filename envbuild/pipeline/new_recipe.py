"""``init``: writes a user's new recipe after checking that it resolves and that its packages can be locked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from envbuild import files
from envbuild.errors import BuildError, Conflict, ConflictError, InvalidInputError, Problem, UsageError
from envbuild.model.environment import Environment
from envbuild.model.lock import Missing
from envbuild.model.resolution import Resolution
from envbuild.pipeline import locking, resolving, user_recipe
from envbuild.pipeline.constraints import Constraints
from envbuild.pipeline.tools import Tools

if TYPE_CHECKING:
    from envbuild.custom.writing import Wishes

# Key of envbuild.yaml → the option of `init` that sets this key.
_OPTIONS = {
    "name": "--name",
    "frameworks": "--framework",
    "python": "--python",
    "pip": "--pip",
    "apt": "--apt",
    "services": "--service",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Started:
    """A new recipe and its environment. ``unchecked`` says why the packages of the recipe could not be checked, or is empty."""

    path: Path
    environment: Environment
    unchecked: str


def start(tools: Tools, folder: Path, wishes: Wishes, *, force: bool) -> Started:
    """Write a new recipe into ``folder``. If ``wishes`` has no name or no frameworks, they are chosen here.

    Raises :class:`UsageError` (``exists``) if there is a recipe and ``force`` is false. Also raises the errors of reading,
    resolving and locking. In all these cases, nothing is written.
    """
    from envbuild.custom import paths, reading, writing
    from envbuild.custom.services import load_services

    path = folder / paths.FILE
    if path.exists() and not force:
        raise UsageError(f"{path} already exists.", code="exists", hint="Edit it, or overwrite it with --force.")
    services = load_services(tools.workspace)
    name = wishes.name or user_recipe.free_name(tools, folder)
    wishes = replace(wishes, name=name, frameworks=wishes.frameworks or (first_choice(tools),))
    text = writing.text(wishes, tuple(services))
    try:
        recipe = reading.read(text, path, services)
    except InvalidInputError as error:
        raise _bad_options(error.problems) from error
    user_recipe.require_free_name(tools, recipe)
    resolution = resolving.resolve_request(tools, recipe.request, Constraints(**recipe.insists))
    resolving.require_recipes(tools, resolution.environment)
    unchecked = _require_lockable(tools, user_recipe.named(resolution, recipe))
    files.write_atomic(path, text)
    return Started(path=path, environment=resolution.environment, unchecked=unchecked)


def _bad_options(problems: Sequence[Problem]) -> UsageError:
    """Return an error that names the wrong options of `init`.

    The ``problems`` name lines of the recipe. These lines would not help the user, because the recipe was not written.
    """
    told = []
    for each in problems:
        key, _, message = each.message.partition(": ")
        told.append(Problem(where=_OPTIONS.get(key.partition("[")[0], key), line=0, message=message))
    return UsageError(
        f"{told[0]}.",
        problems=told if len(told) > 1 else (),
        hint="Correct the option and run the command again. Nothing was written.",
    )


def _require_lockable(tools: Tools, resolution: Resolution) -> str:
    """Choose the packages in the same way as `lock`, but keep no lock.

    Return the reason if the packages of a framework could not be chosen, else an empty text.

    Raises the errors of locking if the packages conflict. The base is not pinned, because its pin does not depend on the
    packages.
    """
    from envbuild.lock import gaps, making

    environment = resolution.environment
    later = Missing(what=f"base {environment.base.image}", why="it will be pinned when the environment is locked")
    inputs = replace(locking.lock_inputs(tools, environment), pin_base=lambda _: later)
    try:
        lock = making.make(environment, inputs)
    except BuildError as error:
        if error.code != "index-unreachable":
            raise
        _require_possible(environment)
        return error.message
    return next((gap.why for gap in lock.missing if gap in map(gaps.gap_of, environment.frameworks)), "")


def _require_possible(environment: Environment) -> None:
    """Raise :class:`ConflictError` if a package of the recipe does not fit a framework.

    Only the matrix is used, because no package index can be reached.
    """
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    from envbuild.matrix.package_pins import contradiction

    if environment.custom is None:
        return
    for text in environment.custom.requirements():
        wanted = Requirement(text)
        name = str(canonicalize_name(wanted.name))
        for framework in environment.part(environment.plans()[0]).frameworks:
            bounds = [each for each in map(Requirement, (*framework.requirements, *framework.constraints)) if each.specifier]
            bounds = [each for each in bounds if canonicalize_name(each.name) == name]
            pins = [(name, "", str(each.specifier)) for each in (*bounds, wanted)]
            if contradiction(pins, environment.python.version):
                allowed = ", ".join(str(each.specifier) for each in bounds)
                raise ConflictError(
                    f"{text} cannot be installed together with {framework.name} {framework.version}.",
                    code="added-package",
                    hint=f"Possible versions: {name}{allowed}. Ask for a wider range, or choose another version of "
                    f"{framework.name}.",
                    conflicts=[
                        Conflict(
                            row=f"{framework.name} {framework.version}",
                            reason=f"allows {name}{allowed}",
                            source=f"pkg:pypi/{name}",
                        )
                    ],
                )


def first_choice(tools: Tools) -> str:
    """Return a default request: the newest release of the framework that has the most releases.

    Frameworks that have a recipe are preferred. The request asks for GPU builds if this machine has a GPU, else for CPU
    builds. It asks for neither kind if the release has no build of that kind.
    """
    from envbuild.host import nvidia

    framework = max(tools.matrix.frameworks, key=lambda table: (table.recipe in tools.recipes, len(table.releases)))
    release = framework.releases[0]
    wanted = "gpu" if nvidia.gpus() else "cpu"
    offered = any((not variant.cuda) == (wanted == "cpu") for variant in release.variants)
    return f"{framework.short}-{'.'.join(release.version.split('.')[:2])}{f'-{wanted}' if offered else ''}"
