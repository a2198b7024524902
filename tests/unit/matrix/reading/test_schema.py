"""The reader refuses everything that the published schema refuses. So a file that `matrix check` accepts is valid."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from envbuild.errors import InvalidInputError
from envbuild.matrix import checks
from envbuild.matrix.reading.loader import compile_matrix, read_sources

ROOT = Path(__file__).parents[4]
TOY = read_sources(ROOT / "tests" / "golden" / "toy" / "matrix.yaml")
SCHEMA = jsonschema.Draft202012Validator(json.loads((ROOT / "envbuild" / "schemas" / "matrix.json").read_text()))
DOCUMENTS: dict[str, Any] = {name: yaml.safe_load(content) for name, content in TOY.items()}


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, (dict, list)) and value:
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(item, (*path, key))
    else:
        yield path


def fields() -> dict[tuple[str, ...], tuple[str, tuple[Any, ...]]]:
    """One example of each kind of field, by the last two names of its path: its file and its path."""
    found: dict[tuple[str, ...], tuple[str, tuple[Any, ...]]] = {}
    for name, document in DOCUMENTS.items():
        for path in leaves(document):
            found.setdefault(tuple(str(part) for part in path if isinstance(part, str))[-2:], (name, path))
    return found


def accepted(sources: dict[str, bytes]) -> bool:
    try:
        return not checks.check(compile_matrix(sources))
    except InvalidInputError:
        return False


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_toy_is_valid(name: str) -> None:
    SCHEMA.validate(DOCUMENTS[name])


@pytest.mark.parametrize("value", ["", "x y", "1.2.3.4.5.6.7", "2019", 0], ids=repr)
def test_the_reader_refuses_what_the_schema_refuses(value: object) -> None:
    lenient = []
    for name, path in fields().values():
        spoilt = copy.deepcopy(DOCUMENTS[name])
        *way, last = path
        place = spoilt
        for part in way:
            place = place[part]
        place[last] = value
        if not SCHEMA.is_valid(spoilt) and accepted({**TOY, name: yaml.safe_dump(spoilt).encode()}):
            lenient.append((name, path))
    assert lenient == []
