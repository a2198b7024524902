"""`matrix check --online` and `matrix update` through the program, against the real package index."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from program import Program, fresh_root

NO_INDEX = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_EXTRA_INDEX_URL": "", "PIP_CONFIG_FILE": os.devnull}
NEWEST = re.compile(r'      - \{version: "([\d.]+)", released: "([\d-]+)"\}\n')


@pytest.fixture
def own(tmp_path: Path) -> Program:
    """One whose matrix the test may change."""
    return Program(root=fresh_root(tmp_path / "root"), home=tmp_path / "home")


def texts(program: Program) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in (program.root / "matrix").rglob("*.yaml")}


@pytest.mark.network
@pytest.mark.parametrize("framework", ["tensorflow", "mxnet"])
def test_a_release_taken_out_is_proposed_and_written(own: Program, framework: str) -> None:
    path = own.root / "matrix" / "frameworks" / f"{framework}.yaml"
    text = path.read_text()
    row = NEWEST.search(text)
    assert row is not None
    path.write_text(text.replace(row[0], "", 1) if text.count("releases:\n" + row[0] + "\n") == 0 else text)
    if path.read_text() == text:  # the only release of its series: the series goes with it
        start = text.rindex("  - series:", 0, row.start())
        path.write_text(text[:start] + text[row.end() :].lstrip("\n"))
    before = texts(own)
    dry = own.run("matrix", "update", "--json", timeout=300)
    if dry.code == 7:
        pytest.skip(f"no package index: {dry.err}")
    document = dry.expect(0).document
    assert {"framework": framework, "version": row[1], "file": f"matrix/frameworks/{framework}.yaml"} in document["added"]
    assert f'version: "{row[1]}", released: "{row[2]}"' in document["diff"] and not document["written"]
    assert texts(own) == before
    assert own.run("matrix", "update", "--write", "--json", timeout=300).expect(0).document["written"]
    assert own.run("matrix", "update", "--json", timeout=300).expect(0).document["diff"] == ""
    own.run("matrix", "check", timeout=60).expect(0)
    answer = own.run("resolve", f"{framework}-{row[1]}", "--json", timeout=60).expect(0).document
    assert any("has not been proved" in warning for warning in answer["warnings"])


@pytest.mark.network
def test_a_wrong_date_and_an_invented_release_are_found(own: Program) -> None:
    path = own.root / "matrix" / "frameworks" / "tensorflow.yaml"
    text = path.read_text()
    row = NEWEST.search(text)
    assert row is not None
    path.write_text(text.replace(row[0], row[0].replace(row[2], "2019-01-01") + row[0].replace(row[1], f"{row[1]}99"), 1))
    answer = own.run("matrix", "check", "--online", "--json", timeout=300)
    if answer.code == 7:
        pytest.skip(f"no package index: {answer.err}")
    error = answer.expect(5).document["error"]
    assert error["code"] == "matrix-online"
    messages = {problem["message"] for problem in error["problems"]}
    assert any(f"tensorflow {row[1]} " in text and "first wheel is from" in text for text in messages)
    assert any(f"tensorflow {row[1]}99 " in text and "no file of it" in text for text in messages)


def test_an_index_that_cannot_be_reached_is_7_and_changes_nothing(own: Program) -> None:
    before = texts(own)
    for words in (["check", "--online"], ["update", "--write"]):
        answer = own.run("matrix", *words, "--json", timeout=120, env=NO_INDEX).expect(7)
        assert answer.document["error"]["code"] == "index-unreachable"
    assert texts(own) == before
