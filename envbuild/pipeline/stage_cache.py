"""A cache of the results of finished stages, which the next run replays. The cache can be deleted at any time."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from envbuild import codec, files
from envbuild.errors import InvalidInputError, Problem
from envbuild.workspace import Workspace


def recall(workspace: Workspace, name: str, stage: str, key: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the stored result of ``stage`` for ``name`` if it was stored with this ``key``, else None."""
    try:
        kept = read_json(_path(workspace, name, stage))
    except InvalidInputError:
        return None  # the file is damaged or from another version, so the stage runs again and rewrites it
    if not isinstance(kept, dict) or kept.get("key") != dict(key):
        return None
    result = kept.get("result")
    return result if isinstance(result, dict) else None


def last(workspace: Workspace, name: str, stage: str) -> dict[str, Any] | None:
    """Return the stored result of ``stage`` for ``name``, whatever its key is; None if no result is stored."""
    try:
        kept = read_json(_path(workspace, name, stage))
    except InvalidInputError:
        return None
    result = kept.get("result") if isinstance(kept, dict) else None
    return result if isinstance(result, dict) else None


def keep(workspace: Workspace, name: str, stage: str, key: Mapping[str, Any], result: Mapping[str, Any]) -> None:
    """Store the result of ``stage`` after the stage has finished, so that a killed run leaves no partial result."""
    text = json.dumps({"key": dict(key), "result": dict(result)}, indent=2) + "\n"
    files.write_atomic(_path(workspace, name, stage), text)


def forget(workspace: Workspace, name: str, stage: str) -> None:
    """Delete the stored result of ``stage``, so that the next run does this stage again."""
    _path(workspace, name, stage).unlink(missing_ok=True)


def read_json(path: Path) -> Any:
    """Return the JSON value in ``path``; None if there is no file. Raises :class:`InvalidInputError` with the invalid line."""
    try:
        return codec.loads(files.read_bytes(path))
    except FileNotFoundError:
        return None
    except (ValueError, OSError) as error:
        line = getattr(error, "lineno", 0)
        raise InvalidInputError(
            f"{path} is not valid JSON.",
            hint="envbuild wrote this file. Delete it and run the command again.",
            problems=[Problem(where=str(path), line=line, message=str(error))],
        ) from error


def _path(workspace: Workspace, name: str, stage: str) -> Path:
    return workspace.stored_answer(name, stage)
