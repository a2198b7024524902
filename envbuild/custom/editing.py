"""Add entries to a list in the text of an ``envbuild.yaml``. Every other byte, including comments, stays as it is. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

import yaml

from envbuild.custom.requirements import project_of
from envbuild.errors import InvalidInputError

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/+-]*")  # text that needs no quotes in YAML, unless it is a number
_NUMBER = re.compile(r"[0-9._+-]+|[0-9.]+e[0-9]+", re.IGNORECASE)
_WORDS = frozenset({"true", "false", "yes", "no", "on", "off", "null", "y", "n"})


def edit_list(text: str, key: str, *, new: Sequence[str], replaced: Mapping[str, str]) -> str:
    """Return ``text`` with the entries ``new`` added to its list ``key``; ``replaced`` maps projects that are already in the
    list to their new entries.

    The file must be valid. If it has no list ``key`` yet, the new list replaces the commented example of ``key``, or is added
    at the end if there is no example. Raises :class:`InvalidInputError` if ``key`` is not a list.
    """
    if not new and not replaced:
        return text
    node = _value(text, key)
    if node is None:
        return _new_list(text, key, [*new, *replaced.values()])
    if not isinstance(node, yaml.SequenceNode):
        raise InvalidInputError(f"`{key}` is not a list.", code="not-a-list", hint=f"Write it as a list: {key}: [NAME, NAME].")
    for item in reversed(node.value):
        if (entry := replaced.get(project_of(item.value))) is not None:
            text = text[: item.start_mark.index] + _scalar(entry) + text[item.end_mark.index :]
    return _append(text, key, new) if new else text


def _append(text: str, key: str, entries: Sequence[str]) -> str:
    node = _value(text, key)
    assert isinstance(node, yaml.SequenceNode)
    if node.flow_style or not node.value:
        end = node.end_mark.index - 1  # the closing bracket
        held = text[:end].rstrip()
        separator = "" if not node.value else " " if held.endswith(",") else ", "
        return held + separator + ", ".join(map(_scalar, entries)) + text[end:]
    last = node.value[-1]
    start = text.find("\n", last.end_mark.index)
    at = len(text) if start < 0 else start + 1
    indent = " " * node.start_mark.column
    lines = "".join(f"{indent}- {_scalar(entry)}\n" for entry in entries)
    return (text[:at] if text[:at].endswith("\n") else text[:at] + "\n") + lines + text[at:]


def _new_list(text: str, key: str, entries: Sequence[str]) -> str:
    line = f"{key}: [{', '.join(map(_scalar, entries))}]"
    example = re.compile(rf"^# {key}: \[.*\].*$", re.MULTILINE)
    if example.search(text):
        return example.sub(lambda _: line, text, count=1)
    return (text if text.endswith("\n") or not text else text + "\n") + line + "\n"


def _value(text: str, key: str) -> yaml.Node | None:
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if not isinstance(root, yaml.MappingNode):
        return None
    return next((value for name, value in root.value if name.value == key), None)


def _scalar(entry: str) -> str:
    plain = _PLAIN.fullmatch(entry) and not _NUMBER.fullmatch(entry) and entry.lower() not in _WORDS
    return entry if plain else json.dumps(entry, ensure_ascii=False)
