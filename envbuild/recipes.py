"""Recipes and Dockerfile templates, read strictly: how each framework is installed, as data and templates that people write."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from envbuild import strictyaml
from envbuild.errors import InvalidInputError, Problem
from envbuild.workspace import Workspace

SCHEMA = 1
_FILE = "recipe.yaml"
_TEMPLATES = "*.j2"

_NAME = r"[a-z][a-z0-9_]*"
_PROJECT_PATTERN = r"[a-z0-9][a-z0-9-]*\*?"
_APT = r"[a-z0-9][a-z0-9+.-]+"
_MODULE = r"[A-Za-z_][A-Za-z0-9_.]*"
_VARIABLE = r"[A-Z][A-Z0-9_]*"
_REQUIREMENT = r"[A-Za-z0-9][A-Za-z0-9._-]*(\[[A-Za-z0-9._,-]+\])?([<>=!~][A-Za-z0-9.*+!<>=~, ]*)?"


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """How one framework is installed.

    ``requirements`` are locked beside the framework. ``apt_runtime`` is in the image, ``apt_build`` only where
    sdists are built.
    ``large`` are patterns over canonical project names: what one of them matches gets a layer of its own, in their order.
    ``module`` is what ``import`` must succeed.
    """

    name: str
    title: str
    requirements: tuple[str, ...]
    apt_runtime: tuple[str, ...]
    apt_build: tuple[str, ...]
    env: dict[str, str]
    large: tuple[str, ...]
    module: str


def load(workspace: Workspace) -> dict[str, Recipe]:
    """Every recipe of the workspace by name; :class:`InvalidInputError` lists the problems of all of them at once."""
    problems: list[Problem] = []
    found: dict[str, Recipe] = {}
    for folder in sorted(path for path in workspace.recipes.glob("*") if path.is_dir()):
        recipe = _read(folder, workspace.root, problems)
        if recipe is not None:
            found[recipe.name] = recipe
    strictyaml.raise_for(problems, "The recipes")
    return found


def templates(workspace: Workspace) -> dict[str, str]:
    """The text of every Dockerfile template, named ``partials/<file>`` and ``recipes/<recipe>/<file>``."""
    paths = [*workspace.partials.glob(_TEMPLATES), *workspace.recipes.glob(f"*/{_TEMPLATES}")]
    return {str(path.relative_to(workspace.images)): _text(path) for path in sorted(paths)}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"Cannot read the template {path}: {error}.", hint="Restore the file.") from error


def _read(folder: Path, root: Path, problems: list[Problem]) -> Recipe | None:
    path = folder / _FILE
    where = str(path.relative_to(root))
    try:
        content = path.read_bytes()
    except OSError as error:
        problems.append(Problem(where=where, line=0, message=f"cannot be read: {error.strerror}; every recipe folder needs it"))
        return None
    if not (folder / "install.j2").is_file():
        problems.append(Problem(where=str((folder / "install.j2").relative_to(root)), line=0, message="is missing"))
    table = strictyaml.load(content, where, problems)
    return None if table is None else _recipe(table, folder.name)


def _recipe(table: strictyaml.Table, folder: str) -> Recipe:
    if table.integer("schema") != SCHEMA:
        table.problem(f"schema must be {SCHEMA}, the one this envbuild reads", "schema")
    name = table.text("recipe", pattern=_NAME)
    if name and name != folder:
        table.problem(f"{name!r} must be the folder's name, {folder!r}", "recipe")
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
    )
    if apt:
        apt.finish()
    table.finish()
    return recipe


def _environment(table: strictyaml.Table) -> dict[str, str]:
    for key in table.keys():  # noqa: SIM118 - not a dict
        if not re.fullmatch(_VARIABLE, key):
            table.problem("names of environment variables are upper-case letters, digits and underscores", key)
    return {key: table.text(key) for key in table.keys()}  # noqa: SIM118 - not a dict
