"""The output of a builder becomes the right error."""

from __future__ import annotations

import pytest

from envbuild.engine.build_failures import PATTERNS, classify, explain


@pytest.mark.parametrize("row", PATTERNS, ids=lambda row: row.text)
def test_each_row_of_the_table_recognises_its_example(row):
    assert classify(f"some words\n{row.example}\nmore words") == row.code


def test_other_output_is_a_failed_step():
    assert classify("gcc: error: x.c: No such file or directory\nexit code: 1") == "build-step"


def test_the_error_carries_instruction_reason_and_the_last_lines():
    error = explain(instruction="[a 1/2] RUN x", reason="exit code: 3", lines=[str(n) for n in range(100)])
    assert (error.code, error.exit_code) == ("build-step", 7)
    assert "RUN x" in error.message
    assert "exit code: 3" in error.message
    assert error.details == tuple(str(n) for n in range(60, 100))


def test_a_full_disk_counts_before_the_download_that_it_breaks():
    lines = ["curl: (6) Could not resolve host: a", "No space left on device"]
    assert explain(instruction="[a] RUN x", reason="exit code: 1", lines=lines).code == "no-space"


def test_metadata_of_the_base_is_the_base():
    error = explain(instruction="[internal] load metadata for registry.example/library/os:1", reason="no such host", lines=[])
    assert error.code == "base-unreachable"
