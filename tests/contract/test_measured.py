"""The stored measurements of wheels agree with the rows of the matrix."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from real_matrix import FACTS

from envbuild.measure import measured_files
from envbuild.measure.comparison import compare

FOLDER = Path(__file__).parents[2] / "matrix" / "measured"
BY_PROJECT = {
    project: list(files) for project, files in itertools.groupby(measured_files.read(FOLDER), lambda each: each["project"])
}


@pytest.mark.parametrize("project", BY_PROJECT)
def test_no_row_differs_from_a_measured_wheel(project: str) -> None:
    names = {project, project.partition("-")[0]}  # jax-cuda12-plugin belongs to jax
    tables = [
        table
        for table in FACTS.frameworks
        if any(variant.package in names for release in table.releases for variant in release.variants)
    ]
    assert tables, project
    files: list[dict[str, Any]] = BY_PROJECT[project]
    found = [each for file in files for each in compare(FACTS._replace(frameworks=tables), file)]
    assert found and [each for each in found if each.verdict == "differs"] == []
