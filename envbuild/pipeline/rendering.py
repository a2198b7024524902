"""From a lock to its rendering: the files on disk, written from the lock or compared with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from envbuild import files
from envbuild.model import Lock
from envbuild.pipeline import user_recipe
from envbuild.pipeline.tools import Tools

LOCK = "lock.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """One file that is not what its lock renders to; an ``orphan`` is one that nothing renders to."""

    kind: Literal["missing", "orphan", "differs", "unreadable"]
    path: Path
    note: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Rendered:
    """A rendering on disk. ``kept`` tells one found there, byte for byte, from one written now."""

    folder: Path
    files: Mapping[str, str]
    kept: bool


def differences(folder: Path, rendering: Mapping[str, str]) -> list[Difference]:
    """What in ``folder`` is not exactly ``rendering`` plus the lock."""
    found = []
    for name, text in sorted(rendering.items()):
        path = folder / name
        if not path.is_file():
            found.append(Difference(kind="missing", path=path, note="the lock renders to it"))
        elif files.read_bytes(path) != text.encode():
            found.append(Difference(kind="differs", path=path, note="not what the lock renders to"))
    for path in sorted(folder.rglob("*")):
        if path.is_file() and str(path.relative_to(folder)) not in {LOCK, *rendering}:
            found.append(Difference(kind="orphan", path=path, note="nothing renders to it"))
    return found


def read(folder: Path) -> dict[str, bytes]:
    """The rendered files in ``folder``: everything but the lock. Empty where the folder is not there."""
    found = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    return {name: files.read_bytes(path) for name, path in found.items() if name != LOCK}


def write(folder: Path, rendering: Mapping[str, str]) -> bool:
    """Make ``folder`` hold exactly ``rendering`` beside the lock; false where it already did."""
    found = differences(folder, rendering)
    for each in found:
        if each.kind == "orphan":
            each.path.unlink(missing_ok=True)
        else:
            files.write_atomic(each.path, rendering[str(each.path.relative_to(folder))])
    return bool(found)


def render_text(tools: Tools, lock: Lock) -> dict[str, str]:
    """What ``lock`` renders to, as text; pure but for reading recipes and templates."""
    from envbuild import render

    return render.render(lock, tools.recipes, tools.templates)


def render_environment(tools: Tools, lock: Lock) -> Rendered:
    """The rendering on disk, beside the lock."""
    text = render_text(tools, lock)
    folder = tools.workspace.environment(lock.environment.name)
    shipped = tools.workspace.rendering(lock.environment.name)
    user_recipe.keep_private(tools)
    if shipped != folder and not differences(shipped, text):
        return Rendered(folder=shipped, files=text, kept=True)
    running = tools.workspace.running(lock.environment.name, "render")
    with files.locked(running, lambda message: tools.say("render", message), limit_s=files.SHORT_WAIT_S):
        changed = write(folder, text)
    return Rendered(folder=folder, files=text, kept=not changed)
