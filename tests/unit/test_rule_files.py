"""Files of rules: the entries cite the file's sources, and every fault is reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild import rule_files, yaml_reader
from envbuild.errors import InvalidInputError

GOOD = 'schema: 1\nsources:\n  page: {title: A page, url: "https://example.org/"}\nword: "a+"\n'


def read(table: yaml_reader.Table, sources: set[str]) -> tuple[str, set[str]]:
    return rule_files.regular_expression(table, "word"), sources


def test_the_reader_gets_the_table_and_the_names_of_the_sources(tmp_path: Path) -> None:
    (tmp_path / "toy.yaml").write_text(GOOD)
    assert rule_files.load(tmp_path, "toy.yaml", "The toy rules", read) == ("a+", {"page"})


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('"a+"', '"a("', "word: is not a regular expression"),
        ("https", "http", "sources.page.url: 'http://example.org/' does not have the expected form"),
        ("title", "titel", "sources.page: title is missing"),
        ("schema: 1", "schema: 2", "schema must be 1"),
        ("word", "words", "word is missing"),
        (GOOD, "- 1\n", "the document must be a mapping"),
        (GOOD, "", "the document must be a mapping"),
    ],
)
def test_a_fault_is_refused(tmp_path: Path, old: str, new: str, problem: str) -> None:
    (tmp_path / "toy.yaml").write_text(GOOD.replace(old, new, 1))
    with pytest.raises(InvalidInputError) as caught:
        rule_files.load(tmp_path, "toy.yaml", "The toy rules", read)
    assert caught.value.message.startswith("The toy rules have")
    assert any(problem in each.message for each in caught.value.problems)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"toy\.yaml: No such file or directory"):
        rule_files.load(tmp_path, "toy.yaml", "The toy rules", read)
