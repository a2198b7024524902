"""Read recipes and Dockerfile templates: how each framework is installed and tested."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from envbuild import files, yaml_reader
from envbuild.errors import InvalidInputError, Problem
from envbuild.model.environment import Framework
from envbuild.workspace import Workspace

SCHEMA = 1
NO = "no"  # an option with this value in a row switches off the feature that has the name of the option
_FILE = "recipe.yaml"
_BUILD = "build.j2"
_ADAPTER = "smoke.py"
_NO_RECIPE = "_"  # the first character of folders that are not recipes, such as the skeleton
_TEMPLATES = "*.j2"

_NAME = r"[a-z][a-z0-9_]*"
_PROJECT = r"[a-z0-9][a-z0-9-]*"
_PROJECT_PATTERN = rf"{_PROJECT}\*?"
_APT = r"[a-z0-9]([a-z0-9+.-]|\{python\})+"
_MODULE = r"[A-Za-z_][A-Za-z0-9_.]*"
_VARIABLE = r"[A-Z][A-Z0-9_]*"
_REQUIREMENT = r"[A-Za-z0-9][A-Za-z0-9._-]*(\[[A-Za-z0-9._,-]+\])?([<>=!~][A-Za-z0-9.*+!<>=~, ]*)?"


@dataclass(frozen=True, kw_only=True, slots=True)
class Feature:
    """A feature of some releases that needs additional packages in the image, for example compiling at run time.

    ``when`` are requirements (``name>=2``). The feature is part of every environment with a release that meets one of these
    requirements, unless the matrix row says ``options: {NAME: "no"}``. ``requirements`` and ``apt`` (Debian packages) are
    treated like the requirements and Debian packages of the recipe.
    """

    name: str
    when: tuple[str, ...]
    requirements: tuple[str, ...]
    apt: tuple[str, ...]

    def applies_to(self, framework: Framework) -> bool:
        """Whether an image of ``framework`` has the feature."""
        from packaging.requirements import Requirement
        from packaging.utils import canonicalize_name

        if framework.options.get(self.name) == NO:
            return False
        pinned = {
            canonicalize_name(each.name): clause.version
            for each in map(Requirement, framework.requirements)
            for clause in each.specifier
            if clause.operator == "=="
        }
        return any(
            wanted.specifier.contains(pinned[name], prereleases=True)
            for wanted in map(Requirement, self.when)
            if (name := canonicalize_name(wanted.name)) in pinned
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """How one framework is installed.

    ``requirements`` are locked together with the framework. ``apt_runtime`` are Debian packages of the image. The Debian
    packages in ``apt_build`` are installed only to build sdists. ``{python}`` in the name of a Debian package stands for the
    version of the image's Python, if this Python comes from the distribution. ``large`` are patterns for canonical project
    names. Each matching project gets its own layer, in the order of the patterns. ``module`` must be importable.

    The rarer fields: ``adapters`` are the recipes whose smoke adapters this recipe's adapter imports. ``ignore`` are projects
    that are not locked although a package requires them. ``compiled`` are patterns for the names of projects whose sdists need
    other packages to be installed first. The recipe's ``build.j2`` compiles these sdists last. ``builds`` says whether the
    recipe has a ``build.j2``. ``features`` are additional packages for some releases.
    """

    name: str
    title: str
    requirements: tuple[str, ...]
    apt_runtime: tuple[str, ...]
    apt_build: tuple[str, ...]
    env: dict[str, str]
    large: tuple[str, ...]
    module: str
    adapters: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    compiled: tuple[str, ...] = ()
    builds: bool = False
    features: tuple[Feature, ...] = ()

    def requirements_of(self, framework: Framework) -> tuple[str, ...]:
        """The requirements that are locked together with ``framework``. The requirements of its features are included."""
        own = (text for each in self.features if each.applies_to(framework) for text in each.requirements)
        return tuple(dict.fromkeys([*self.requirements, *own]))

    def apt_of(self, framework: Framework) -> tuple[str, ...]:
        """The Debian packages in an image of ``framework``, including the packages of its features."""
        own = (name for each in self.features if each.applies_to(framework) for name in each.apt)
        return tuple(dict.fromkeys([*self.apt_runtime, *own]))


def load(workspace: Workspace) -> dict[str, Recipe]:
    """Return every recipe of the workspace, by name. Raises :class:`InvalidInputError` with the problems of all recipes."""
    problems: list[Problem] = []
    found = _read_all(workspace, workspace.recipes.glob(f"[!{_NO_RECIPE}]*"), problems)
    for recipe in found.values():
        _check_adapters(recipe, found, workspace.recipes.relative_to(workspace.root), problems)
    yaml_reader.raise_for(problems, "The recipes", is_plural=True)
    return found


def has(workspace: Workspace, name: str) -> bool:
    """Whether the workspace has a recipe of this name."""
    return (workspace.recipes / name / _FILE).is_file()


def load_some(workspace: Workspace, names: Iterable[str]) -> dict[str, Recipe]:
    """Read the existing recipes of ``names``, without checking the adapters that they import."""
    problems: list[Problem] = []
    found = _read_all(workspace, (workspace.recipes / name for name in names), problems)
    yaml_reader.raise_for(problems, "The recipes", is_plural=True)
    return found


def _read_all(workspace: Workspace, folders: Iterable[Path], problems: list[Problem]) -> dict[str, Recipe]:
    read = (_read(folder, workspace.root, problems) for folder in sorted(folders) if folder.is_dir())
    return {recipe.name: recipe for recipe in read if recipe is not None}


def _check_adapters(recipe: Recipe, known: Mapping[str, Recipe], folder: Path, problems: list[Problem]) -> None:
    for name in recipe.adapters:
        if name not in known or name == recipe.name:
            why = f"{name!r} is not another recipe"
            problems.append(Problem(where=str(folder / recipe.name / _FILE), line=0, message=f"adapters: {why}"))


def templates(workspace: Workspace) -> dict[str, str]:
    """Return the text of every Dockerfile template. The keys are ``partials/<file>`` and ``recipes/<recipe>/<file>``.

    The result also contains the scripts of services, with the keys ``services/<file>``. They are copied into images unchanged.
    """
    of_recipes = workspace.recipes.glob(f"[!{_NO_RECIPE}]*/{_TEMPLATES}")
    paths = [*workspace.partials.glob(_TEMPLATES), *of_recipes, *workspace.services.glob("*.sh")]
    return {str(path.relative_to(workspace.images)): _text(path) for path in sorted(paths)}


def _text(path: Path) -> str:
    try:
        return files.read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"Cannot read the template {path}: {error}.", hint="Restore the file.") from error


def _read(folder: Path, root: Path, problems: list[Problem]) -> Recipe | None:
    path = folder / _FILE
    where = str(path.relative_to(root))
    try:
        content = files.read_bytes(path)
    except OSError as error:
        problems.append(Problem(where=where, line=0, message=f"cannot be read: {error.strerror}; every recipe folder needs it"))
        return None
    if not (folder / _ADAPTER).is_file():
        missing = "is missing: without it the smoke test cannot train; copy this file from the folder _skeleton"
        problems.append(Problem(where=str((folder / _ADAPTER).relative_to(root)), line=0, message=missing))
    table = yaml_reader.load(content, where, problems)
    return None if table is None else _recipe(table, folder.name, builds=(folder / _BUILD).is_file())


def _recipe(table: yaml_reader.Table, folder: str, *, builds: bool) -> Recipe:
    table.schema(SCHEMA)
    name = table.own_name("recipe", pattern=_NAME, of=folder, place="folder")
    apt = table.table("apt")
    env = table.table("env")
    recipe = Recipe(
        name=name,
        title=table.text("title"),
        requirements=table.texts("requirements", required=True, pattern=_REQUIREMENT),
        apt_runtime=apt.texts("runtime", pattern=_APT) if apt else (),
        apt_build=apt.texts("build", pattern=_APT) if apt else (),
        env=_environment(env) if env else {},
        large=table.texts("large", pattern=_PROJECT_PATTERN),
        module=table.text("module", pattern=_MODULE),
        adapters=table.texts("adapters", pattern=_NAME),
        ignore=table.texts("ignore", pattern=_PROJECT),
        compiled=table.texts("compiled", pattern=_PROJECT_PATTERN),
        builds=builds,
        features=tuple(_feature(each, own) for each, own in table.named_tables("features")),
    )
    if recipe.compiled and not builds:
        table.problem(f"the recipe has no {_BUILD}, which would compile these packages", "compiled")
    if apt:
        apt.finish()
    table.finish()
    return recipe


def _feature(name: str, table: yaml_reader.Table) -> Feature:
    apt = table.texts("apt", pattern=_APT)
    when = table.texts("when", required=True, pattern=_REQUIREMENT, one=True)
    feature = Feature(name=name, when=when, requirements=table.texts("requirements", pattern=_REQUIREMENT), apt=apt)
    table.finish()
    return feature


def _environment(table: yaml_reader.Table) -> dict[str, str]:
    for key in table.keys():  # noqa: SIM118 - not a dict
        if not re.fullmatch(_VARIABLE, key):
            table.problem("names of environment variables are upper-case letters, digits and underscores", key)
    return {key: table.text(key) for key in table.keys()}  # noqa: SIM118 - not a dict
