"""Which smoke reports tell of a test."""

from __future__ import annotations

from typing import Any

import pytest

from envbuild.pipeline.attesting import tells_of_a_test

TRAINED = [("ORACLE", "pass"), ("WORK", "skip")]
WORKED = [("ORACLE", "skip"), ("WORK", "pass")]


@pytest.mark.parametrize(
    ("checks", "runs", "device", "tells"),
    [
        (TRAINED, [{}], "cpu", True),
        (TRAINED, [{}], None, False),
        (TRAINED, [], "cpu", False),
        ([], [{}], "cpu", False),
        (WORKED, [], "cpu", True),
        ([("ORACLE", "skip"), ("WORK", "fail")], [], "cpu", False),
        ([("ORACLE", "pass"), ("WORK", "pass")], [], "cpu", False),
        ([("ORACLE", "skip")], [], "cpu", False),
    ],
)
def test_a_report_tells_of_training_or_of_what_else_the_framework_does(
    checks: Any, runs: Any, device: Any, tells: bool
) -> None:
    report = {"checks": [{"id": name, "status": status} for name, status in checks], "runs": runs, "mode": {"device": device}}
    assert tells_of_a_test(report) is tells
