"""``render``: writes the renderings of several environments. A rendering whose inputs have not changed is skipped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from envbuild import files
from envbuild.pipeline.constraints import Constraints
from envbuild.pipeline.rendering import Rendering, render_environment
from envbuild.pipeline.tools import Tools
from envbuild.pipeline.unchanged_renderings import RenderingWatch

if TYPE_CHECKING:
    from envbuild.pipeline.stored_locks import Locked


def render(tools: Tools, texts: Sequence[str], constraints: Constraints) -> Iterator[Rendering]:
    """Write the renderings for the requests ``texts`` or, without ``texts``, for every environment that has a folder.

    All ``texts`` are resolved before anything is written. Raises the errors of resolving, checking and rendering.
    """
    watch = RenderingWatch(tools)
    known = {text: None if constraints.any() else watch.recall(text) for text in texts or _names(tools)}
    names = {text: _name(tools, text, constraints) if texts and found is None else text for text, found in known.items()}
    for text, found in known.items():
        yield found or _render(tools, names[text], watch, () if constraints.any() else (text,))


def _names(tools: Tools) -> list[str]:
    from envbuild.pipeline import committed

    return committed.names(tools)


def _name(tools: Tools, text: str, constraints: Constraints) -> str:
    from envbuild.pipeline import resolving

    return resolving.resolve_buildable(tools, [text], constraints).environment.name


def _render(tools: Tools, name: str, watch: RenderingWatch, texts: Sequence[str]) -> Rendering:
    from envbuild.pipeline import locking

    done = render_locked(tools, locking.require_lock(tools, name))
    watch.note(done, *texts)
    return done


def render_locked(tools: Tools, locked: Locked) -> Rendering:
    """Write the rendering of a lock, and record the proof ``rendered``."""
    from envbuild.pipeline import proofs

    done = render_environment(tools, locked.lock)
    proofs.prove_rendering(tools, locked.lock, locked.digest, done.texts())
    return done


def copied(tools: Tools, done: Rendering, folder: Path) -> Rendering:
    """Write the rendered files and the lock into the user's ``folder``. All other files in this folder stay unchanged."""
    wanted = {name: text.encode() for name, text in done.texts().items()}
    wanted["lock.json"] = files.read_bytes(tools.workspace.lock_file(done.name))
    changed = [name for name in wanted if not (folder / name).is_file() or files.read_bytes(folder / name) != wanted[name]]
    for name in changed:
        files.write_atomic(folder / name, wanted[name])
    return replace(done, folder=folder, kept=not changed)
