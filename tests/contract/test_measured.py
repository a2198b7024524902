"""The stored measurements of wheels agree with the rows of the matrix."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from real_matrix import FACTS

from envbuild.measure import measured_files
from envbuild.measure.comparison import Compared, compare
from envbuild.pipeline.stored_locks import read_lock

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "matrix" / "measured"
BY_PROJECT = {
    project: list(files) for project, files in itertools.groupby(measured_files.read(FOLDER), lambda each: each["project"])
}


def compared(project: str) -> list[Compared]:
    """All comparisons of the project's files with the rows. The matrix has no rows of NumPy, for example."""
    names = {project, project.partition("-")[0]}  # jax-cuda12-plugin belongs to jax
    tables = [
        table
        for table in FACTS.frameworks
        if any(variant.package in names for release in table.releases for variant in release.variants)
    ]
    files: list[dict[str, Any]] = BY_PROJECT[project]
    return [each for file in files for each in compare(FACTS._replace(frameworks=tables), file, files)]


@pytest.mark.parametrize("project", BY_PROJECT)
def test_no_row_differs_from_a_measured_wheel(project: str) -> None:
    assert [each for each in compared(project) if each.verdict == "differs"] == []


@pytest.mark.parametrize("project", ["jax-cuda12-plugin", "mxnet-cu112", "tensorflow-gpu", "torch"])
def test_measured_wheels_are_compared_with_rows(project: str) -> None:
    assert {each.field for each in compared(project) if each.verdict == "agrees"} >= {"native", "glibc"}


def test_every_locked_wheel_is_the_one_that_was_measured() -> None:
    measured = {each["filename"]: each["sha256"] for files in BY_PROJECT.values() for each in files}
    locks = [read_lock(path) for path in sorted((ROOT / "images/environments").glob("*/lock.json"))]
    pinned = {each.filename: each.sha256 for lock in locks for prefix in lock.prefixes for each in prefix.artifacts}
    both = measured.keys() & pinned.keys()
    assert len(both) > 50
    assert {name: pinned[name] for name in both if pinned[name] != measured[name]} == {}
