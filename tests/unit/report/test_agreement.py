"""`envbuild report A B` and `envbuild-smoke diff A B` give the same answer about the same figures."""

from __future__ import annotations

import re
from typing import Any

import pytest
from report_files import load

from envbuild.report import comparison, regression
from envbuild.smoke.reporting import diff


def changed(rate: float, spread: float, gain: float) -> dict[str, Any]:
    """A stored report whose run with two workers has this speed and speedup, with intervals of ``spread``."""
    content = load("pass")
    run = next(run for run in content["runs"] if run["n"] == 2)
    run["images_per_s"]["dp"] = rate
    run["images_per_s_interval"] = {"dp": {"lo": rate * (1 - spread), "hi": rate * (1 + spread), "level": 0.96}}
    run["speedup"] |= {"median": gain, "lo": gain * (1 - spread), "hi": gain * (1 + spread)}
    content["runs"] = [run]
    return content


@pytest.mark.parametrize("spread", [0.0, 0.01, 0.2])
@pytest.mark.parametrize("factor", [0.5, 0.85, 0.95, 1.0, 1.05, 1.2, 3.0])
@pytest.mark.parametrize("gain", [1.0, 1.2])
def test_host_and_guest_agree(factor: float, gain: float, spread: float) -> None:
    a, b = changed(1000.0, spread, 1.5), changed(1000.0 * factor, spread, 1.5 * gain)
    host = comparison.compare(a, b).split("2 workers")[1]
    said = {
        figure: words for figure, words in re.findall(r"^ +(images/s|speedup) .*\((?:B is )?([^()]+)\)$", host, re.MULTILINE)
    }
    assert said == {entry["figure"]: entry["word"] for entry in diff.compare(a, b)["speed"]}


def test_reports_without_intervals_are_not_judged_by_either() -> None:
    a = load("pass")
    assert "(not judged, because there is no confidence interval)" in comparison.compare(a, a)
    assert diff.OPEN in {entry["word"] for entry in diff.compare(a, a)["speed"]}


def test_both_call_the_same_checks_checks_of_correctness() -> None:
    assert set(diff.CORRECTNESS) == regression.CORRECTNESS
