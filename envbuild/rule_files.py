"""Read the files of rules that people write in ``images/``.

These files are in YAML. Each file has a list of sources, and its rules name sources from this list.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from envbuild import yaml_reader
from envbuild.errors import InvalidInputError, Problem

SCHEMA = 1

T = TypeVar("T")


def load(images: Path, file: str, what: str, read: Callable[[yaml_reader.Table, set[str]], T]) -> T:
    """Return the result of ``read``, which gets the file's top table and the names of the file's sources.

    ``what`` names the rules in messages, in the plural. Raises :class:`InvalidInputError` with all problems of the file.
    """
    path = images / file
    problems: list[Problem] = []
    try:
        table = yaml_reader.load(path.read_bytes(), f"{images.name}/{file}", problems)
    except OSError as error:
        raise InvalidInputError(f"Cannot read {path}: {error.strerror}.", hint="Restore the file.") from error
    found: T | None = None
    if table is not None:
        table.schema(SCHEMA)
        found = read(table, _sources(table))
        table.finish()
    yaml_reader.raise_for(problems, what, is_plural=True)
    assert found is not None  # without a top table, a problem was reported and raised above
    return found


def regular_expression(table: yaml_reader.Table, key: str) -> str:
    """Read a text that must be a regular expression."""
    text = table.text(key)
    try:
        re.compile(text)
    except re.error as error:
        table.problem(f"is not a regular expression: {error}", key)
    return text


def _sources(table: yaml_reader.Table) -> set[str]:
    names = set()
    for name, source in table.named_tables("sources", required=True):
        source.text("title")
        source.text("url", pattern=r"https://\S+")
        source.finish()
        names.add(name)
    return names
