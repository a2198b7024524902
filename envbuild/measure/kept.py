"""Keep measurements as small data files, one for each project: ``matrix/measured/<project>.json``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from envbuild import files
from envbuild.errors import InvalidInputError

SCHEMA = 1


def path_of(folder: Path, project: str) -> Path:
    """The data file of a project below ``folder``."""
    return folder / f"{canonicalize_name(project)}.json"


def read(folder: Path) -> list[dict[str, Any]]:
    """All kept measurements, by project. Raises :class:`InvalidInputError` (``measured-file``)."""
    return [each for path in sorted(folder.glob("*.json")) for each in _read(path)]


def keep(folder: Path, summaries: Sequence[Mapping[str, Any]]) -> list[Path]:
    """Add measurements of wheels to the data files; one of the same file name replaces the former one.

    Raises :class:`InvalidInputError` for a file that is no wheel: nobody could get it to measure it again.
    """
    changed: dict[Path, dict[str, dict[str, Any]]] = {}
    for each in summaries:
        if not each["project"]:
            raise InvalidInputError(
                f"{each['filename']} is no wheel, so it has no project to be recorded under.",
                code="measured-file",
                hint="Leave --record out.",
            )
        path = path_of(folder, each["project"])
        known = changed.setdefault(path, {old["filename"]: old for old in (_read(path) if path.exists() else ())})
        known[each["filename"]] = dict(each)
    for path, known in changed.items():
        files.write_atomic(path, _text(sorted(known.values(), key=_order)))
    return sorted(changed)


def _read(path: Path) -> list[dict[str, Any]]:
    try:
        document = json.loads(files.read_text(path))
        if document["schema"] != SCHEMA:
            raise ValueError(f"its schema is {document['schema']}, not {SCHEMA}")
        found = [dict(each) for each in document["files"]]
        for each in found:
            _order(each)
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidInputError(
            f"{path} is no file of measurements: {str(error)[:200]}.",
            code="measured-file",
            hint="Restore it, or remove it and measure its wheels again.",
        ) from error
    return found


def _text(summaries: Sequence[Mapping[str, Any]]) -> str:
    """One line for each list of GPUs and for each plain list, so that differences are easy to read."""
    blocks = []
    for each in summaries:
        lines = [f'   "{key}": {_value(value)}' for key, value in each.items()]
        blocks.append("  {\n" + ",\n".join(lines) + "\n  }")
    return f'{{"schema": {SCHEMA}, "files": [\n' + ",\n".join(blocks) + "\n]}\n"


def _value(value: Any) -> str:
    if isinstance(value, Mapping) and "lists" in value:
        lists = ",\n".join("     " + json.dumps(each) for each in value["lists"])
        rest = json.dumps({key: item for key, item in value.items() if key != "lists"})
        return f'{rest[:-1]}, "lists": [\n{lists}\n   ]}}'
    return json.dumps(value, ensure_ascii=False)


def _order(each: Mapping[str, Any]) -> tuple[Version, str]:
    try:
        return Version(each["version"]), each["filename"]
    except InvalidVersion:
        return Version("0"), each["filename"]
