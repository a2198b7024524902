"""Write the files of a build context from a lock and its recipes. Pure: the same arguments give the same bytes.

Rendering reads no clock, network, environment variable or working directory, and writes no version of a tool.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from envbuild.errors import InvalidInputError, UsageError
from envbuild.model.lock import AptPlan, Bootstrap, Lock
from envbuild.recipes import Recipe
from envbuild.render import prefixes, services
from envbuild.render.apt_steps import AptSteps
from envbuild.render.requirements import PrefixFiles, canonical, check_names, split, unpinned

DIALECTS = ("baseline",)
_UNSUPPORTED = {
    "classic": "the classic builder cannot mount secrets, which would put proxies and index settings into the image",
    "link": "COPY --link needs a newer Dockerfile frontend than Docker 20.10 has, and the baseline builds there too",
}


def render(
    lock: Lock, recipes: Mapping[str, Recipe], templates: Mapping[str, str], *, dialect: str = "baseline"
) -> dict[str, str]:
    """Return the rendering of ``lock``: the Dockerfile, the requirements files and other files.

    The result maps the relative path of each file to its text.

    Raises :class:`UsageError` for an unknown dialect. Raises :class:`InvalidInputError` if the lock contains a value that
    cannot be written into a Dockerfile, or something that no template can install.
    """
    if dialect not in DIALECTS:
        why = f": {_UNSUPPORTED[dialect]}" if dialect in _UNSUPPORTED else ""
        raise UsageError(
            f"envbuild does not write the Dockerfile dialect {dialect!r}{why}.",
            code="unknown-dialect",
            hint=f"Use {' or '.join(DIALECTS)}, which Docker Engine 20.10 and newer build.",
        )
    files = _files(lock, recipes)
    rendering = {file.name: file.text() for each in files for file in each.all()}
    rendering |= {file.name: file.text() for file in unpinned(lock.prefixes, lock.environment)}
    rendering["Dockerfile"] = _dockerfile(lock, recipes, templates, files, AptSteps(lock, planning=False))
    rendering |= services.scripts(lock, templates)
    if len(lock.prefixes) > 1:
        rendering[prefixes.FILE] = prefixes.listed(lock, recipes)
    return dict(sorted(rendering.items()))


def skeleton(lock: Lock, recipes: Mapping[str, Recipe], templates: Mapping[str, str]) -> str:
    """The Dockerfile of ``lock`` without the steps that install wheels. Of a composed image, the engine builds only this part,
    and envbuild adds the wheels.

    The stage ``packages`` of this Dockerfile has all layers below the wheels. Raises the errors of :func:`render`, and
    :class:`BuildError` (``not-composable``) if another step, such as one that compiles a framework, needs the wheels.
    """
    files = _files(lock, recipes)
    return _dockerfile(lock, recipes, templates, files, AptSteps(lock, planning=False), skeleton=True)


def install_order(lock: Lock, recipes: Mapping[str, Recipe]) -> dict[str, list[str]]:
    """Return, for each prefix by name, the canonical names of its packages in the order in which the Dockerfile installs them.

    Later steps replace files of earlier steps. If packages of one step have the same file, the last package by name wins.
    """
    order: dict[str, list[str]] = {}
    for files in _files(lock, recipes):
        single = (files.sdists, files.compiled, *files.added, files.added_sdists)
        steps = [*files.large, *files.small, *(step for step in single if step)]
        order[files.prefix.name] = [name for step in steps for name in sorted(canonical(a.name) for a in step.artifacts)]
    return order


def apt_plans(lock: Lock, recipes: Mapping[str, Recipe], templates: Mapping[str, str]) -> tuple[AptPlan, ...]:
    """The steps that install Debian packages in the Dockerfile of ``lock``. The lock need not pin the packages yet."""
    steps = AptSteps(lock, planning=True)
    _dockerfile(lock, recipes, templates, _files(lock, recipes), steps)
    return steps.plans()


def apt_names(lock: Lock, recipes: Mapping[str, Recipe], templates: Mapping[str, str]) -> tuple[str, ...]:
    """The Debian packages that apt is told to install in the image, even if the lock does not pin them.

    Packages that are installed only in other stages of the Dockerfile do not count.
    """
    pinnable = Bootstrap(suite="", architecture="", variant="", packages=())  # steps are planned only for bootstrapped bases
    planned = replace(lock, base=replace(lock.base, bootstrap=pinnable), apt=None)
    asked = (text for plan in apt_plans(planned, recipes, templates) if not plan.build_only for text in plan.asked)
    return tuple(dict.fromkeys(text.partition("=")[0] for text in asked))


def _dockerfile(
    lock: Lock,
    recipes: Mapping[str, Recipe],
    templates: Mapping[str, str],
    files: Sequence[PrefixFiles],
    steps: AptSteps,
    *,
    skeleton: bool = False,
) -> str:
    from envbuild.render.dockerfile import dockerfile

    return dockerfile(lock, recipes, templates, files, steps, skeleton=skeleton)


def _files(lock: Lock, recipes: Mapping[str, Recipe]) -> list[PrefixFiles]:
    from envbuild.render.dockerfile import STAGES

    _check(lock, recipes)
    used = [recipes[framework.recipe] for framework in lock.environment.frameworks]
    patterns = list(dict.fromkeys(pattern for recipe in used for pattern in recipe.large))
    compiled = list(dict.fromkeys(pattern for recipe in used for pattern in recipe.compiled))
    files = [split(prefix, patterns, compiled, alone=len(lock.prefixes) == 1) for prefix in lock.prefixes]
    check_names(files, STAGES)
    return files


def _check(lock: Lock, recipes: Mapping[str, Recipe]) -> None:
    environment = lock.environment
    for framework in environment.frameworks:
        if framework.recipe not in recipes:
            raise InvalidInputError(
                f"There is no recipe {framework.recipe!r}, which {framework.name} needs.",
                code="unknown-recipe",
                hint=f"Add images/recipes/{framework.recipe}/, or correct the matrix. The recipes are: "
                f"{', '.join(sorted(recipes))}.",
            )
        if "repository" in framework.options and not recipes[framework.recipe].builds:
            raise InvalidInputError(
                f"{framework.name} {framework.version} is compiled from {framework.options['repository']}, but the recipe "
                f"{framework.recipe!r} does not say how to compile it.",
                code="no-build",
                hint=f"Write images/recipes/{framework.recipe}/build.j2, or choose another version.",
            )
    if not lock.prefixes:
        raise InvalidInputError(
            f"The lock of {environment.name} installs nothing.",
            hint=f"Make the lock again: envbuild lock {environment.name} --relock",
        )
    if [prefix.name for prefix in lock.prefixes] != [plan.name for plan in environment.plans()]:
        raise InvalidInputError(
            f"The lock of {environment.name} has the prefixes {', '.join(prefix.name for prefix in lock.prefixes)}, "
            f"but its environment has the prefixes {', '.join(plan.name for plan in environment.plans())}.",
            code="invalid-lock",
            hint=f"Make the lock again: envbuild lock {environment.name} --relock",
        )
    known = {framework.name for framework in environment.frameworks}
    if strange := sorted({name for prefix in lock.prefixes for name in prefix.frameworks} - known):
        raise InvalidInputError(
            f"The lock of {environment.name} installs {', '.join(strange)}, which the environment does not have.",
            code="invalid-lock",
            hint=f"Make the lock again: envbuild lock {environment.name} --relock",
        )
    if environment.base.provider == "conda" and not environment.base.files:
        raise InvalidInputError(
            f"{environment.name} gets CUDA from conda packages, but no row of the matrix pins these packages.",
            code="unsupported-provider",
            hint="Choose another base with --base apt, wheels or IMAGE.",
        )
