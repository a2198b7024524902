"""The file about wheels whose RECORD is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild import wrong_records
from envbuild.errors import InvalidInputError
from envbuild.workspace import WRONG_RECORDS

ROWS = """\
schema: 1
sources: {page: {title: A page, url: "https://example.org"}}
wheels:
  - filename: toy-1.0-py3-none-any.whl
    sha256: %s
    source: page
    files:
      - {file: toy/a, recorded: sha256=%s, contained: sha256=%s}
      - {file: toy/b, recorded: sha256=%s, contained: sha256=%s}
"""
GOOD = ROWS % ("f" * 64, "A" * 43, "B" * 43, "C" * 43, "D" * 43)


def load(folder: Path, text: str) -> tuple[wrong_records.WrongRecord, ...]:
    (folder / WRONG_RECORDS).write_text(text)
    return wrong_records.load(folder)


def test_each_file_of_a_wheel_is_one_record(tmp_path: Path) -> None:
    found = load(tmp_path, GOOD)
    assert [(each.wheel, each.file, each.contained) for each in found] == [
        ("f" * 64, "toy/a", "sha256=" + "B" * 43),
        ("f" * 64, "toy/b", "sha256=" + "D" * 43),
    ]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("A" * 43, "A" * 42, "recorded"),
        ("sha256=" + "B" * 43, "md5=" + "B" * 43, "contained"),
        ("f" * 64, "f" * 63, "sha256"),
        ("source: page", "source: none", "source"),
        ("file: toy/a, ", "", "file"),
        ("    files:", "    file:", "files"),
    ],
)
def test_a_wrong_row_is_refused_with_its_place(old: str, new: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError) as caught:
        load(tmp_path, GOOD.replace(old, new, 1))
    assert any(problem in each.message and each.line for each in caught.value.problems), caught.value.problems
