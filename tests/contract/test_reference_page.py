"""The pages show the stored healthy runs of the reference check, and new runs are taken in."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def reference_page(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import reference_page

    yield reference_page
    for name in ("reference_page", "guest"):
        sys.modules.pop(name, None)


def _result(page: ModuleType, version: str, errors: dict[str, float]) -> dict[str, Any]:
    made: dict[str, Any] = page.summary("jax", version, errors, 4e-5)
    return made


def test_the_pages_show_the_stored_runs(reference_page: ModuleType) -> None:
    content = json.loads(reference_page.DATA.read_text())
    text, other = reference_page.PAGE.read_text(), reference_page.OTHER_PAGE.read_text()
    assert reference_page.page(text, content) == text
    assert reference_page.gpu_page(text, reference_page.gpu_results()) == text
    assert reference_page.other_page(other, content) == other


def test_runs_of_the_same_version_are_added(reference_page: ModuleType) -> None:
    old = {"healthy": [_result(reference_page, "1", {"0": 1e-6, "1": 2e-6})]}
    (found,) = reference_page.merged(old, [_result(reference_page, "1", {"1": 3e-6, "2": 5e-5})])["healthy"]
    assert found["errors"] == {"0": 1e-6, "1": 3e-6, "2": 5e-5}
    assert (found["runs"], found["above the limit"], found["seeds above"]) == (3, 1, ["2"])


def test_another_version_replaces_the_stored_runs(reference_page: ModuleType) -> None:
    old = {"healthy": [_result(reference_page, "1", {"0": 1e-6, "1": 2e-6})]}
    (found,) = reference_page.merged(old, [_result(reference_page, "2", {"7": 3e-6})])["healthy"]
    assert (found["version"], found["runs"]) == ("2", 1)


def test_fewer_runs_do_not_replace_more(reference_page: ModuleType) -> None:
    stored = {"healthy": [{"adapter": "jax", "version": "1", "runs": 3}]}
    with pytest.raises(SystemExit, match="3 runs are stored, the new file has only 1"):
        reference_page.merged(stored, [_result(reference_page, "1", {"0": 1e-6})])


def test_a_weight_that_is_no_number_is_above_the_limit(reference_page: ModuleType) -> None:
    assert _result(reference_page, "1", {"0": float("nan")})["above the limit"] == 1
