"""The table of named faults shows the recorded counts."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def naming_page(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import naming_page

    yield naming_page
    for name in ("naming_page", "guest"):
        sys.modules.pop(name, None)


def test_the_page_shows_the_stored_counts(naming_page: ModuleType) -> None:
    content = json.loads(naming_page.DATA.read_text())
    text = naming_page.PAGE.read_text()
    assert naming_page.page(text, content) == text
    assert naming_page.BEGIN in text


def test_each_run_is_counted_once(naming_page: ModuleType) -> None:
    for fault, entry in json.loads(naming_page.DATA.read_text())["faults"].items():
        kinds = (naming_page.RIGHT, naming_page.NONE, naming_page.OTHER, naming_page.PASSED)
        assert sum(entry[kind] for kind in kinds) == entry["runs"], fault
        assert sum(entry["names"].values()) == entry[naming_page.OTHER], fault


def test_a_row_says_how_often_a_fault_got_which_name(naming_page: ModuleType) -> None:
    counts = {"named right": 3, "failed without a name": 0, "named otherwise": 1, "passed": 0, "names": {"noise": 1}}
    counts[naming_page.ALLOWED_PASSED] = 1
    table = naming_page.table({"faults": {"a fault": {"has_name": True, "runs": 4, **counts}}})
    assert table.splitlines()[-1] == "| a fault | 4 | 75 % | 0 % | 25 %: `noise` 1 | 0 % | 25 % |"
