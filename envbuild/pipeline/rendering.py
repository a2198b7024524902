"""Writes the rendered files of a lock, or compares the files on disk with the lock's rendering."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from envbuild import files
from envbuild.image_inputs import LOCK

if TYPE_CHECKING:
    from envbuild.model.lock import Lock
    from envbuild.pipeline.tools import Tools


@dataclass(frozen=True, kw_only=True, slots=True)
class FileDifference:
    """A file that differs from the rendering of its lock. A file of the kind ``orphan`` belongs to no rendering."""

    kind: Literal["missing", "orphan", "differs", "unreadable"]
    path: Path
    note: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Rendering:
    """The rendering of one environment. ``kept`` is true if it was already on disk, and false if it was written now.

    ``is_lock_whole`` is true if it is known that the lock is complete.
    """

    name: str
    folder: Path
    files: tuple[str, ...]
    kept: bool
    is_lock_whole: bool = False

    def texts(self) -> dict[str, str]:
        """Return the text of each rendered file, by name."""
        return {name: files.read_bytes(self.folder / name).decode() for name in self.files}


def differences(folder: Path, rendering: Mapping[str, str]) -> list[FileDifference]:
    """Return the files of ``folder`` that differ from ``rendering``. The folder may also contain the lock, which is ignored."""
    found = []
    for name, text in sorted(rendering.items()):
        path = folder / name
        if not path.is_file():
            found.append(
                FileDifference(kind="missing", path=path, note="the rendering of the lock has it, but it is not on disk")
            )
        elif files.read_bytes(path) != text.encode():
            found.append(FileDifference(kind="differs", path=path, note="it differs from the rendering of the lock"))
    for path in sorted(folder.rglob("*")):
        if path.is_file() and str(path.relative_to(folder)) not in {LOCK, *rendering}:
            found.append(FileDifference(kind="orphan", path=path, note="no lock belongs to it"))
    return found


def write(folder: Path, rendering: Mapping[str, str]) -> bool:
    """Make ``folder`` contain only the files of ``rendering`` and the lock. Return whether something changed."""
    found = differences(folder, rendering)
    for each in found:
        if each.kind == "orphan":
            each.path.unlink(missing_ok=True)
        else:
            files.write_atomic(each.path, rendering[str(each.path.relative_to(folder))])
    return bool(found)


def render_text(tools: Tools, lock: Lock) -> dict[str, str]:
    """Return the rendering of ``lock``: the text of each file, by name. Only recipes and templates are read."""
    from envbuild import render

    return render.render(lock, tools.recipes, tools.templates)


def render_environment(tools: Tools, lock: Lock) -> Rendering:
    """Return the rendering of ``lock``. Write its files next to the lock unless they are already there."""
    from envbuild.pipeline import user_recipe

    name, text = lock.environment.name, render_text(tools, lock)
    folder, shipped = tools.workspace.environment(name), tools.workspace.rendering(name)
    user_recipe.keep_private(tools)
    if shipped != folder and not differences(shipped, text):
        return Rendering(name=name, folder=shipped, files=tuple(sorted(text)), kept=True)
    running = tools.workspace.running(name, "render")
    with files.locked(running, lambda message: tools.say("render", message), limit_s=files.SHORT_WAIT_S):
        changed = write(folder, text)
    return Rendering(name=name, folder=folder, files=tuple(sorted(text)), kept=not changed)
