"""A report that cannot be used is refused in one sentence, by each verb that reads one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import FEW, REPOSITORY, Guest

REAL = REPOSITORY / "tests/unit/data/report-pass.json"


def damaged(folder: Path) -> Path:
    report = json.loads(REAL.read_text(encoding="utf-8"))
    report["checks"][0]["detail"] = "none"
    path = folder / "damaged.json"
    path.write_text(json.dumps(report))
    return path


@pytest.mark.parametrize("version", FEW)
def test_diff_takes_a_real_report_and_refuses_a_damaged_one(
    guest_of: Callable[[str], Guest], tmp_path: Path, version: str
) -> None:
    guest, wrong = guest_of(version), damaged(tmp_path)
    process = guest.start("diff", REAL, REAL)
    _out, err = process.communicate(timeout=600)
    assert (process.returncode, err) == (0, "")
    for pair in ((REAL, wrong), (wrong, REAL)):
        process = guest.start("diff", *pair)
        out, err = process.communicate(timeout=600)
        assert (process.returncode, out) == (2, "")
        words = "its field checks[0].detail must be an object. Make the report again with envbuild-smoke run --json"
        assert err == f"envbuild-smoke: the report {wrong} is damaged: {words}\n"


def test_a_damaged_baseline_is_refused_before_the_run(guest: Guest, tmp_path: Path) -> None:
    answer = guest.run("run", "--adapter", "numpy", "--baseline", damaged(tmp_path), folder=tmp_path)
    assert (answer.code, answer.report, answer.err.count("\n")) == (2, None, 1)
    assert "is damaged: its field checks[0].detail must be an object" in answer.err
