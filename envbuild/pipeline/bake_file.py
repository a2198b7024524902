"""``bake``: writes a ``docker-bake.json``, with which ``docker buildx bake`` builds images from their Dockerfiles."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envbuild.errors import InvalidInputError, Problem, UsageError
from envbuild.pipeline.tools import Tools

if TYPE_CHECKING:
    from envbuild.pipeline.batch import Job
    from envbuild.pipeline.plan import Buildable, Skipped

_PLATFORM = "linux/amd64"
CONTEXTS = "contexts"
_ODD = re.compile(r"[^A-Za-z0-9_-]")  # not allowed in names of targets: docs.docker.com/build/bake/reference


@dataclass(frozen=True, kw_only=True, slots=True)
class BakeSettings:
    """How images are named and built.

    ``repository`` is ``HOST/REPOSITORY``. ``secret`` is the path of a file, which a build gets as the build secret named
    ``envbuild``. Without ``moves_tags``, an image gets only the tag that never moves. ``contexts`` is the path of the folder
    with the build contexts. The bake file contains this path unchanged.
    """

    repository: str
    moves_tags: bool = False
    secret: str = ""
    contexts: str = CONTEXTS


@dataclass(frozen=True, kw_only=True, slots=True)
class Baked:
    """A bake file, and the environments that it builds.

    ``text`` is the text of the file. ``targets`` maps the name of each target to the name of its environment. ``skipped`` are
    the environments that were left out.
    """

    text: str
    targets: dict[str, str]
    skipped: tuple[Skipped, ...]


def bake(tools: Tools, jobs: Sequence[Job], settings: BakeSettings) -> Baked:
    """Return a bake file that builds the images of ``jobs``.

    Raises :class:`InvalidInputError` (``no-targets``) if no image can be built.
    """
    from envbuild.pipeline import plan

    found, skipped = plan.candidates(tools, jobs)
    if not found:
        raise InvalidInputError(
            "None of the environments can be built.",
            code="no-targets",
            problems=[Problem(where=each.name, line=0, message=each.message) for each in skipped],
            hint="`envbuild lock NAME` locks an environment.",
        )
    targets: dict[str, dict[str, Any]] = {}
    groups: dict[str, list[str]] = {}
    names: dict[str, str] = {}
    for each in found:
        lock = each.locked.lock
        target = _unique(_plain(lock.environment.name), names)
        names[target] = lock.environment.name
        targets[target] = _target(each, settings)
        for framework in lock.environment.frameworks:
            groups.setdefault(_plain(framework.name), []).append(target)
    # For bake, a group and a target with the same name are ambiguous. Such a group gets the prefix "all-".
    grouped = {name if name not in targets else f"all-{name}": members for name, members in sorted(groups.items())}
    document = {
        "group": {"default": {"targets": sorted(targets)}, **{name: {"targets": members} for name, members in grouped.items()}},
        "target": targets,
    }
    return Baked(text=json.dumps(document, indent=2) + "\n", targets=names, skipped=tuple(skipped))


def write_contexts(tools: Tools, jobs: Sequence[Job], baked: Baked, folder: Path) -> tuple[str, ...]:
    """Write the build context of each target of ``baked`` into its own subfolder of ``folder``. Return notes for the user."""
    from envbuild.pipeline import context_folder, locking

    requests = {job.name: job.request for job in jobs}
    for name in baked.targets.values():
        context_folder.require_free(folder / _folder(name))
    notes: list[str] = []
    for name in baked.targets.values():
        own = tools.at([requests[name]])
        told = context_folder.write_context(own, locking.require_lock(own, name), folder / _folder(name))
        notes += [f"{name}: {note}" for note in told]
    return tuple(notes)


def _target(candidate: Buildable, settings: BakeSettings) -> dict[str, Any]:
    from envbuild import build, build_preparation

    lock = candidate.locked.lock
    tags = build.tags_of(lock, candidate.inputs, repository=settings.repository)
    if len(tags) < 3:
        raise InvalidInputError(f"{lock.environment.name} cannot be the name of an image: it is too long.")
    made_at = str(int(build_preparation.time_of(lock).timestamp()))
    found = {
        "context": f"{settings.contexts}/{_folder(lock.environment.name)}",
        "dockerfile": "Dockerfile",
        "platforms": [_PLATFORM],
        "args": {"SOURCE_DATE_EPOCH": made_at},
        "tags": list(tags) if settings.moves_tags else [tags[2]],
    }
    return {**found, "secret": [f"id=envbuild,src={settings.secret}"]} if settings.secret else found


def _folder(name: str) -> str:
    return name.replace("+", "_")


def _plain(name: str) -> str:
    return _ODD.sub("_", name)


def _unique(target: str, taken: dict[str, str]) -> str:
    number, found = 2, target
    while found in taken or found == "default":
        found, number = f"{target}_{number}", number + 1
    return found


def require_plain(secret: str, contexts: str) -> None:
    """Raise :class:`UsageError` for a path that a bake file cannot contain: bake expands ``${…}``, and a comma ends a field."""
    for path in (secret, contexts):
        if set(path) & set("$%,\"'\n"):
            raise UsageError(f"{path!r} cannot be written into a bake file.", hint="Leave out $, %, commas and quotes.")
