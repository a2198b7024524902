"""Compare a manifest with the fields in data/kubernetes-fields.yaml."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

_OBJECTS: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "data" / "kubernetes-fields.yaml").read_text())["objects"]
_QUANTITY = re.compile(r"[0-9]+(\.[0-9]+)?([KMGTPE]i?|[munk])?")


def faults(manifest: dict[str, Any]) -> list[str]:
    """The parts of this manifest that Kubernetes would refuse or silently drop."""
    return list(_faults(manifest, manifest["kind"], manifest["kind"]))


def _faults(value: Any, kind: str, where: str) -> Iterator[str]:
    if kind.startswith(("list of ", "map of ")):
        shape, _, inner = kind.partition(" of ")
        if not isinstance(value, list if shape == "list" else dict):
            yield f"{where}: a {shape} expected"
            return
        for key, each in enumerate(value) if shape == "list" else value.items():
            yield from _faults(each, inner, f"{where}[{key}]")
    elif kind in _OBJECTS:
        yield from _of_object(value, kind, where)
    elif not _is_plain(value, kind):
        yield f"{where}: {kind} expected, found {value!r}"


def _of_object(value: Any, kind: str, where: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{where}: an object expected"
        return
    types = {name: type_ for type_, names in _OBJECTS[kind]["fields"].items() for name in names}
    for name in _OBJECTS[kind].get("required", ()):
        if name not in value:
            yield f"{where}.{name} is missing"
    for name, each in value.items():
        if name not in types:
            yield f"{where}.{name}: {kind} has no such field"
        else:
            yield from _faults(each, types[name], f"{where}.{name}")


def _is_plain(value: Any, kind: str) -> bool:
    if kind == "quantity":
        return isinstance(value, int) or (isinstance(value, str) and _QUANTITY.fullmatch(value) is not None)
    if kind.startswith("one of "):
        return value in kind.removeprefix("one of ").split(", ")
    expected = {"string": str, "integer": int, "boolean": bool, "object": dict}[kind]
    return isinstance(value, expected) and not (expected is int and isinstance(value, bool))
