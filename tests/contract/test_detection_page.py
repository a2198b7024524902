"""The page of detected faults shows the recorded runs."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def detection(monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import detection

    yield detection
    for name in ("detection", "guest"):
        sys.modules.pop(name, None)


def test_the_page_shows_the_stored_runs(detection) -> None:  # type: ignore[no-untyped-def]
    content = json.loads(detection.DATA.read_text())
    text = detection.PAGE.read_text()
    assert detection.page(text, content) == text


def test_new_runs_take_the_place_of_those_of_the_same_framework_and_fault(detection) -> None:  # type: ignore[no-untyped-def]
    first, second = list(detection.FAULTS)[:2]

    def run(framework: str, fault: str, seconds: int) -> dict[str, object]:
        return {"framework": framework, "fault": fault, "seconds": seconds}

    old = [run("a", second, 1), run("a", first, 1), run("b", first, 1), run("a", "a fault of old", 1)]
    assert detection.merged(old, [run("a", second, 2), run("c", first, 2)]) == [
        run("a", first, 1),
        run("a", second, 2),
        run("b", first, 1),
        run("c", first, 2),
    ]
