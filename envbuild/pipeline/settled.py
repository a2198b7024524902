"""Remembers the environments that needed no work, so that the next run need not look at their locks and inputs again."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from envbuild import codec, disk_cache
from envbuild.host import nvidia
from envbuild.pipeline import stage_cache
from envbuild.pipeline.tools import Tools
from envbuild.pipeline.unchanged_renderings import RenderingWatch

_STAGE = "settled"


class Settled:
    """The stored answers of a command for environments that needed no work. An answer is valid while nothing has changed.

    An answer is valid for the same command, engine, driver, GPUs and images. The inputs of the rendering, the lock, the build
    record, and the stored verdicts with their reports must also be unchanged. The sizes and times of these files show whether
    they have changed. If the rendering was made again, the answer is not valid, because the image may be older than the
    rendering.
    """

    def __init__(self, tools: Tools, watch: RenderingWatch, command: Sequence[str], read: Sequence[Path] = ()) -> None:
        """``tools`` come from :func:`envbuild.pipeline.unchanged.view`. ``read`` are further folders that the command reads."""
        self._tools = tools
        self._watch = watch
        self._began = time.time_ns()
        asked = [
            *command,
            disk_cache.stamp(read)[0],
            tools.engine.endpoint,
            json.dumps(codec.encode([nvidia.driver(), nvidia.gpus()])),
        ]
        self._asked = hashlib.sha256("\0".join(asked).encode()).hexdigest()

    def recall(self, name: str, request: str) -> tuple[Mapping[str, Any], int] | None:
        """Return the stored JSON document and exit code for ``name``; None if there is no valid answer."""
        known = stage_cache.last(self._tools.workspace, name, _STAGE)
        try:
            if known is None or known["request"] != request or known["asked"] != self._asked:
                return None
            document, images = known["document"], [known["document"]["image"], *known["document"]["tags"]]
            held = [self._tools.engine.image(each) for each in images]
            if any(each is None or each.id != document["image"] for each in held) or self._watch.recall(name) is None:
                return None
            return (document, int(known["exit_code"])) if known["stamp"] == self._stamp(name, document)[0] else None
        except (LookupError, TypeError, ValueError):
            return None

    def keep(self, name: str, request: str, document: Mapping[str, Any], exit_code: int) -> None:
        """Store the answer for the next run. The smoke report is left out, because the answer names the report's file.

        Nothing is stored if a file was changed a moment ago, because a further change might leave the file's time as it is.
        """
        if "image" not in document or self._watch.recall(name) is None:
            return
        told = {part: value for part, value in document.items() if part != "report"}
        stamp, newest = self._stamp(name, told)
        if newest <= self._began - disk_cache.SETTLED_NS:
            answer = {"request": request, "asked": self._asked, "stamp": stamp, "document": told, "exit_code": exit_code}
            stage_cache.keep(self._tools.workspace, name, _STAGE, {}, answer)

    def _stamp(self, name: str, document: Mapping[str, Any]) -> tuple[str, int]:
        workspace = self._tools.workspace
        answers = [workspace.stored_answer(name, stage) for stage in ("verify", "linkcheck", "smoke")]
        reports = [Path(path) for path in document.get("reports", {}).values()]
        stamp, newest = disk_cache.stamp([workspace.build_record(name), workspace.lock_file(name), *answers, *reports])
        rendered = stage_cache.last(workspace, name, "render") or {}
        return f"{stamp} {rendered.get('inputs')}", newest
