"""Store measurements in small data files, one for each project: ``matrix/measured/<project>.json``."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version

from envbuild import files
from envbuild.errors import InvalidInputError

SCHEMA = 1
_ADDED_LATER = frozenset(
    {"built_with", "instruction_sets", "libraries"}
)  # fields that older entries lack: there, they were not measured
_SHA256 = re.compile(r"[0-9a-f]{64}")


def path_of(folder: Path, project: str) -> Path:
    """The data file of a project below ``folder``."""
    return folder / f"{canonicalize_name(project)}.json"


def read(folder: Path) -> list[dict[str, Any]]:
    """Return all stored measurements, sorted by project. Raises :class:`InvalidInputError` (``measured-file``) for a damaged
    file."""
    return [each for path in sorted(folder.glob("*.json")) for each in _read(path)]


def keep(folder: Path, summaries: Sequence[Mapping[str, Any]], *, replace: bool = False) -> list[Path]:
    """Add measurements of wheels to the data files. Return the data files that changed.

    Raises :class:`InvalidInputError` for a file that is not a wheel, because other people could not get this file to repeat the
    measurement. Also raises this error if a different measurement is stored under the same file name, unless ``replace`` is
    true.
    """
    changed: dict[Path, dict[str, dict[str, Any]]] = {}
    for each in summaries:
        if not each["project"]:
            raise InvalidInputError(
                f"{each['filename']} is not a wheel, so there is no project under which to record it.",
                code="measured-file",
                hint="Leave --record out.",
            )
        path = path_of(folder, each["project"])
        known = changed.setdefault(path, {old["filename"]: old for old in (_read(path) if path.exists() else ())})
        old = known.get(each["filename"])
        differences = differing(old, each) if old is not None else []
        if differences and not replace:
            raise InvalidInputError(
                f"{path} already records another {', '.join(differences)} of {each['filename']}.",
                code="measured-file",
                hint="If the new measurement is right, repeat it with --record --replace.",
            )
        known[each["filename"]] = dict(each)
    written = []
    for path, known in sorted(changed.items()):
        text = _text(sorted(known.values(), key=_order))
        if not path.exists() or files.read_text(path) != text:
            files.write_atomic(path, text)
            written.append(path)
    return written


def differing(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """The fields in which two measurements of a file differ. A field that was not measured in ``old`` does not differ."""
    known = _known_to(old, new)
    return [key for key in dict.fromkeys([*old, *known]) if key not in old or key not in known or old[key] != known[key]]


def _known_to(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The measurement ``new`` without the fields that did not exist when ``old`` was measured."""
    known = {key: value for key, value in new.items() if key in old or key not in _ADDED_LATER}
    both = [key for key, value in known.items() if isinstance(value, Mapping) and isinstance(old.get(key), Mapping)]
    return known | {key: _known_to(old[key], known[key]) for key in both}


def _read(path: Path) -> list[dict[str, Any]]:
    try:
        document = json.loads(files.read_text(path))
        if document["schema"] != SCHEMA:
            raise ValueError(f"its schema is {document['schema']}, not {SCHEMA}")
        found = [dict(each) for each in document["files"]]
        for each in found:
            _check(each, path)
        if len({each["filename"] for each in found}) < len(found):
            raise ValueError("it lists a file twice")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidInputError(
            f"{path} is not a file of measurements: {str(error)[:200]}.",
            code="measured-file",
            hint="Restore it, or remove it and measure its wheels again.",
        ) from error
    return found


def _check(each: Mapping[str, Any], path: Path) -> None:
    """Check that an entry names a wheel of the data file's project, with a sha256. Raises ValueError, KeyError or TypeError if
    not."""
    project, version = parse_wheel_filename(each["filename"])[:2]
    if (project, version) != (canonicalize_name(each["project"]), Version(each["version"])) or f"{project}.json" != path.name:
        raise ValueError(f"{each['filename']} is not the name of a wheel of the project and version that its entry states")
    if not _SHA256.fullmatch(each["sha256"]):
        raise ValueError(f"{each['filename']} has no valid sha256")


def _text(summaries: Sequence[Mapping[str, Any]]) -> str:
    """The text of a data file. Each list of GPUs, each library and each plain list is on one line, so that diffs are easy to
    read."""
    blocks = []
    for each in summaries:
        lines = [f'   "{key}": {_value(value)}' for key, value in each.items()]
        blocks.append("  {\n" + ",\n".join(lines) + "\n  }")
    return f'{{"schema": {SCHEMA}, "files": [\n' + ",\n".join(blocks) + "\n]}\n"


def _value(value: Any) -> str:
    if isinstance(value, Mapping) and "lists" in value:
        tables = {key: value[key] for key in ("lists", "libraries") if key in value}
        rest = json.dumps({key: item for key, item in value.items() if key not in tables})
        lines = {key: ",\n".join("     " + json.dumps(each) for each in table) for key, table in tables.items()}
        return rest[:-1] + "".join(f', "{key}": [\n{text}\n   ]' for key, text in lines.items()) + "}"
    return json.dumps(value, ensure_ascii=False)


def _order(each: Mapping[str, Any]) -> tuple[Version, str]:
    return Version(each["version"]), each["filename"]
