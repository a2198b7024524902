"""A new recipe of the user's, checked before it is written: it resolves as it stands."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from envbuild import files
from envbuild.errors import UsageError
from envbuild.model import Environment
from envbuild.pipeline import own, stages
from envbuild.pipeline.tools import Tools

if TYPE_CHECKING:
    from envbuild.custom import Wishes


@dataclass(frozen=True, kw_only=True, slots=True)
class Started:
    """A recipe that was written, and what it resolves to as it is."""

    path: Path
    environment: Environment


def start(tools: Tools, folder: Path, wishes: Wishes, *, force: bool) -> Started:
    """Write a recipe into ``folder``; an empty name or no frameworks in ``wishes`` are chosen.

    Raises :class:`UsageError` (``exists``) where one is there and not to be overwritten, and what reading it or resolving what
    it asks for raises; nothing is written then.
    """
    from envbuild import custom

    path = folder / custom.FILE
    if path.exists() and not force:
        raise UsageError(f"{path} is there already.", code="exists", hint="Edit it, or overwrite it with --force.")
    services = custom.load_services(tools.workspace)
    wishes = replace(wishes, name=wishes.name or _name(tools, folder), frameworks=wishes.frameworks or (first_choice(tools),))
    text = custom.text(wishes, tuple(services))
    recipe = custom.read(text, path, services)
    own.require_free_name(tools, recipe)
    resolution = stages.resolve_request(tools, recipe.request, stages.Constraints(**recipe.insists))
    stages.require_recipes(tools, resolution.environment)
    files.write_atomic(path, text)
    return Started(path=path, environment=resolution.environment)


def first_choice(tools: Tools) -> str:
    """A request to begin with: the newest of the framework with most releases, for GPUs where this machine has some."""
    from envbuild import host

    framework = max(tools.matrix.frameworks, key=lambda table: (table.recipe in tools.recipes, len(table.releases)))
    release = framework.releases[0]
    wanted = "gpu" if host.gpus() else "cpu"
    offered = any((not variant.cuda) == (wanted == "cpu") for variant in release.variants)
    return f"{framework.short}-{'.'.join(release.version.split('.')[:2])}{f'-{wanted}' if offered else ''}"


def _name(tools: Tools, folder: Path) -> str:
    from envbuild import custom

    name = custom.name_for(folder)
    return name if own.is_free(tools, name) else f"my-{name}"
