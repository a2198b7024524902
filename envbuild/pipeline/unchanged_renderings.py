"""Finds from the stamps (sizes and times) of files which renderings are up to date, without rendering them again.

docs/decisions/0019-renderings-nothing-changed.md has the reasons.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path

from envbuild import disk_cache
from envbuild.pipeline import stage_cache
from envbuild.pipeline.rendering import Rendering
from envbuild.pipeline.tools import Tools
from envbuild.workspace import can_be_name

_PROGRAM = Path(__file__).parent.parent
_LIBRARIES = ("jinja2", "packaging", "resolvelib")  # other versions of these libraries could render differently
_OF_IMAGES = ("recipes", "partials", "overlay", "services", "stacks")


class RenderingWatch:
    """Finds renderings that are up to date, from the stamps of files. The rendering of a user's recipe is always made again."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._began = time.time_ns()
        self._stamps: dict[tuple[str, ...], tuple[str, int]] = {}

    def recall(self, text: str) -> Rendering | None:
        """Return the rendering that :meth:`note` recorded for the request ``text``.

        Return None if there is no record, or if the stamp of a file that the rendering depends on has changed.
        """
        if self._tools.workspace.user_recipe is not None or not can_be_name(text):
            return None
        known = stage_cache.last(self._tools.workspace, text, "render")
        if known is None:
            return None
        try:
            name = known["name"]
            inputs, _ = self._inputs((name, text), known["sources"])
            if known["inputs"] != inputs or known["outputs"] != self._outputs(name):
                return None
            written, is_whole = tuple(known["files"]), known["whole"] is True
            return Rendering(name=name, folder=Path(known["folder"]), files=written, kept=True, is_lock_whole=is_whole)
        except (LookupError, TypeError):
            return None

    def note(self, done: Rendering, *requests: str) -> None:
        """Record the rendering for its name and for ``requests``.

        Nothing is recorded if a file changed while the rendering was made, or a moment before.
        """
        if self._tools.workspace.user_recipe is None:
            for text in dict.fromkeys((done.name, *requests)):
                if can_be_name(text):
                    self._note(done, text)

    def _note(self, done: Rendering, text: str) -> None:
        inputs, newest = self._inputs((done.name, text), self._sources)
        if newest > self._began - disk_cache.SETTLED_NS:
            return
        result = {
            "name": done.name,
            "sources": self._sources,
            "inputs": inputs,
            "outputs": self._outputs(done.name),
            "folder": str(done.folder),
            "files": list(done.files),
            "whole": done.is_lock_whole,
        }
        stage_cache.keep(self._tools.workspace, text, "render", {}, result)

    @cached_property
    def _sources(self) -> list[str]:
        from envbuild.matrix.reading.loader import read_sources

        workspace = self._tools.workspace
        policy = [str(workspace.policy)] if workspace.policy else []
        return [*(str(workspace.root / each) for each in read_sources(workspace.matrix, workspace.overlays)), *policy]

    def _inputs(self, names: Iterable[str], sources: Sequence[str]) -> tuple[str, int]:
        """Return the stamp of a rendering's inputs, and the time of the newest change.

        The inputs include the locks of all ``names``, because a name with a lock means the environment in this lock.
        """
        key = tuple(sources)
        if key not in self._stamps:
            origins = [spec.origin for spec in map(find_spec, _LIBRARIES) if spec is not None and spec.origin]
            images = [self._tools.workspace.images / each for each in _OF_IMAGES]
            self._stamps[key] = disk_cache.stamp([_PROGRAM, *images, *map(Path, (*origins, *sources))])
        shared, newest = self._stamps[key]
        lock, changed = disk_cache.stamp({self._tools.workspace.lock_file(name) for name in names})
        overlays = " ".join(map(str, (*self._tools.workspace.overlays, self._tools.workspace.policy or "")))
        return f"{shared} {lock} {overlays}", max(newest, changed)

    def _outputs(self, name: str) -> str:
        """Return the stamp of a rendering's outputs, which are its folder and its evidence files."""
        workspace = self._tools.workspace
        evidence = (workspace.committed_evidence(name), workspace.evidence_file(name))
        return disk_cache.stamp([workspace.rendering(name), *evidence])[0]
