"""All environments at once: what is on disk against what the locks render to, and evidence against locks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from envbuild.errors import EnvbuildError
from envbuild.pipeline import evidence, own, proving, rendering, stages
from envbuild.pipeline.portfolio import listed
from envbuild.pipeline.rendering import Difference
from envbuild.pipeline.tools import Tools


def names(tools: Tools) -> list[str]:
    """The canonical name of every environment that has a folder, sorted."""
    return sorted({folder.name for folder in _folders(tools)})


def kept(tools: Tools) -> list[str]:
    """Those of :func:`names`, and those of the list of environments that have no folder yet."""
    return sorted({*names(tools), *listed(tools.workspace)})


def check_all(tools: Tools) -> list[Difference]:
    """Everything on disk that is not what its lock makes it; nothing is written."""
    found: list[Difference] = []
    for folder in _folders(tools):
        found += _check_folder(tools, folder)
    found += _check_evidence(tools)
    return found


def check_one(tools: Tools, name: str) -> list[Difference]:
    """The same for the environment called ``name`` alone; its lock is required."""
    locked = stages.require_lock(tools, name)
    if tools.own is not None:
        return rendering.differences(tools.workspace.rendering(name), stages.render_text(tools, locked.lock))
    return _check_folder(tools, locked.path.parent)


def _folders(tools: Tools) -> list[Path]:
    workspace = tools.workspace
    places = dict.fromkeys((workspace.images / "environments", workspace.environments))
    return sorted(folder for place in places if place.is_dir() for folder in place.iterdir() if folder.is_dir())


def _check_folder(tools: Tools, folder: Path) -> list[Difference]:
    path = folder / rendering.LOCK
    if not path.is_file():
        return [Difference(kind="orphan", path=folder, note="it has no lock")]
    try:
        lock = stages.read_lock(path)
        if lock.environment.name != folder.name:
            return [Difference(kind="differs", path=path, note=f"it is the lock of {lock.environment.name}")]
        return rendering.differences(folder, stages.render_text(tools, lock))
    except EnvbuildError as error:
        return [Difference(kind="unreadable", path=path, note=error.message)]


def _check_evidence(tools: Tools) -> list[Difference]:
    found = []
    for path in sorted(tools.workspace.committed_evidence("x").parent.glob("*.json")):
        try:
            subject = proving.subject_of(tools, path.stem)
            held = evidence.read(path, path.stem)
        except EnvbuildError as error:
            found.append(Difference(kind="unreadable", path=path, note=error.message))
            continue
        if subject is None:
            found.append(Difference(kind="orphan", path=path, note="there is no such environment"))
        elif held != evidence.current(held, subject):
            found.append(Difference(kind="differs", path=path, note="stale proofs: `envbuild evidence --all --prune`"))
    return found


def stored_reports(tools: Tools, name: str) -> dict[str, Path]:
    """The files of the last smoke report of ``name`` on this machine, by kind."""
    from envbuild.pipeline import stored

    answer = stored.last(tools.workspace, name, "smoke") or {}
    paths = answer.get("paths")
    told = paths if isinstance(paths, dict) else {}
    return {kind: Path(path) for kind, path in told.items() if isinstance(path, str) and Path(path).is_file()}


def standing(tools: Tools, name: str) -> dict[str, Any]:
    """What exists of ``name`` here, from files alone: no engine is asked."""
    from envbuild import build, codec

    locked = stages.read_locked(tools, name)
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
        "unproved": codec.encode(proving.held(tools, name).unproved),
    }
    folder = tools.workspace.rendering(name)
    found = rendering.differences(folder, stages.render_text(tools, locked.lock))
    state = "current" if not found else ("none" if all(each.kind == "missing" for each in found) else "differs")
    return {"lock": lock, "rendering": {"state": state, "path": str(folder)}, "image": image, "reports": reports}


def _lock_state(tools: Tools, locked: stages.Locked) -> str:
    try:
        stages.check_lock(tools, locked)
        own.require_taken_over(tools, locked.lock)
    except EnvbuildError:
        return "stale"
    return "incomplete" if locked.lock.missing else "complete"
