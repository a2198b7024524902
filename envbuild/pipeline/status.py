"""Finds the lock, rendering, image and reports of one environment that this machine has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from envbuild.errors import EnvbuildError
from envbuild.pipeline import proofs, rendering, stage_cache, user_recipe
from envbuild.pipeline.locking import check_lock
from envbuild.pipeline.stored_locks import Locked, read_locked
from envbuild.pipeline.tools import Tools


def standing(tools: Tools, name: str) -> dict[str, Any]:
    """Return the state of the lock, rendering, image and reports of ``name``. Only files are read; no engine is asked."""
    from envbuild import build, codec

    locked = read_locked(tools, name)
    record = build.read_record(tools.workspace, name)
    reports = {kind: str(path) for kind, path in stored_reports(tools, name).items()}
    image = {"id": record.image, "tags": list(record.tags), "lock": record.lock} if record else None
    if locked is None:
        nothing = {"state": "none", "path": None}
        return {"lock": {**nothing, "missing": [], "unproved": []}, "rendering": nothing, "image": image, "reports": reports}
    lock = {
        "state": _lock_state(tools, locked),
        "path": str(locked.path),
        "sha256": locked.digest,
        "missing": codec.encode(locked.lock.missing),
        "unproved": codec.encode(proofs.held(tools, name).unproved),
    }
    folder = tools.workspace.rendering(name)
    found = rendering.differences(folder, rendering.render_text(tools, locked.lock))
    state = "current" if not found else ("none" if all(each.kind == "missing" for each in found) else "differs")
    return {"lock": lock, "rendering": {"state": state, "path": str(folder)}, "image": image, "reports": reports}


def stored_reports(tools: Tools, name: str) -> dict[str, Path]:
    """Return the files of the last smoke report of ``name`` on this machine. The keys are formats, such as ``html``."""
    answer = stage_cache.last(tools.workspace, name, "smoke") or {}
    paths = answer.get("paths")
    told = paths if isinstance(paths, dict) else {}
    return {kind: Path(path) for kind, path in told.items() if isinstance(path, str) and Path(path).is_file()}


def _lock_state(tools: Tools, locked: Locked) -> str:
    try:
        check_lock(tools, locked)
        user_recipe.require_taken_over(tools, locked.lock)
    except EnvbuildError:
        return "stale"
    return "incomplete" if locked.lock.missing else "complete"
