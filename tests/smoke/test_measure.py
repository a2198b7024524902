"""Measurements of whole runs: the cause of slowness, collectives of each type, other schemes, comparison with a report."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import FAULTY, FEW, Answer, Guest
from .test_run import valid

BENCH = (
    "--phases",
    "bench",
    "--counts",
    "2",
    "--rounds",
    "3",
    "--round-seconds",
    "0.05",
    "--batch",
    "4",  # small, so that a step takes much less time than a fault adds, on any machine
    "--warmup-max",
    "10",
)
TRAIN = ("--train-images", "1024", "--test-images", "256", "--epochs", "1", "--min-accuracy", "0.15")


def _faulty(guest: Guest, folder: Path, fault: str, *arguments: str) -> Answer:
    return guest.run("run", "--adapter", FAULTY, "--option", f"fault={fault}", *arguments, folder=folder)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("slow-rank", ("contention", "rank 1 is slow")),
        ("slow-exchange", ("communication-bound",)),
        ("slow-input", ("input-bound",)),
    ],
)
def test_slowness_is_named_by_its_cause_and_is_no_failure(
    guest: Guest, tmp_path: Path, fault: str, words: tuple[str, ...]
) -> None:
    answer = _faulty(guest, tmp_path, fault, *BENCH)
    assert answer.failed() == set(), answer.err
    check = answer.check("SPEED", 2)
    assert (check["status"], valid(answer)["runs"][0]["judged"]) == ("skip", False)
    assert all(word in check["message"] for word in words), check["message"]


def test_time_is_split_and_what_is_left_out_is_told(guest: Guest, tmp_path: Path) -> None:
    answer = guest.run("run", "--adapter", "numpy", *BENCH, "--batch", "15", "--scaling", "weak,strong", folder=tmp_path)
    (run,) = valid(answer)["runs"]
    split = run["split"]
    assert split["compute_ms"] > 0 <= split["communication_ms"] and 0 <= split["input_share"] < 1
    assert set(run["warmup"]) == {"solo", "indep", "dp", "input"}
    assert run["rounds"][1]["order"] == "input,dp,indep,solo"
    assert len(run["busy_ms"]["indep"]) == 2
    assert run["harness_share"] > 0
    assert "the first step, which is measured separately" in answer.out
    assert "15 images cannot be divided equally" in answer.out


@pytest.mark.parametrize("version", [FEW[0], FEW[-1]])
def test_schemes_stand_beside_averaging_gradients(guest_of: Callable[[str], Guest], tmp_path: Path, version: str) -> None:
    schemes = "parameters:1,parameters:5,async:2"
    answer = guest_of(version).run(
        "run", "--adapter", "numpy", "--counts", "2", "--phases", "oracle,train", *TRAIN, "--sync", schemes, folder=tmp_path
    )
    report = valid(answer)
    assert [entry["sync"] for entry in report["schemes"]] == schemes.split(",")
    first, every_fifth, stale = report["schemes"]
    parts = [check["detail"]["parts"] for check in report["checks"] if check["id"] == "SYNC"]
    assert [[part["id"] for part in each] for each in parts] == [
        ["ORACLE", "REPLICA", "LOSS", "ACC"],
        ["LOSS", "ACC"],
        ["LOSS", "ACC", "SYNC"],
    ]
    assert parts[0][0]["status"] == parts[0][1]["status"] == "pass"
    assert abs(first["accuracy_difference"]) < 0.02
    assert every_fifth["distance"] > 0 and stale["distance"] > 0
    assert stale["staleness"]["bound"] == 2 >= stale["staleness"]["largest"]
    assert "async:2: accuracy" in answer.out


def test_a_run_that_is_worse_than_its_baseline(guest: Guest, tmp_path: Path) -> None:
    arguments = ("run", "--adapter", "numpy", "--phases", "oracle", "--counts", "2")
    first = guest.run(*arguments, folder=tmp_path)
    assert first.code == 0, first.err
    kept = tmp_path / "kept.json"
    kept.write_text(json.dumps(valid(first)))
    again = guest.run(*arguments, "--baseline", kept, folder=tmp_path)
    assert (again.code, again.check("BASELINE")["status"]) == (0, "pass"), again.out
    worse = _faulty(guest, tmp_path, "reduced-precision", "--phases", "oracle", "--counts", "2", "--baseline", str(kept))
    assert (worse.code, worse.failed()) == (1, {"BASELINE", "ORACLE"}), worse.out
    assert "ORACLE with 2 devices: now fail, before pass" in worse.check("BASELINE")["message"]
    process = guest.start("diff", kept, tmp_path / "report.json")
    out, err = process.communicate(timeout=600)
    assert process.returncode == 1, err
    assert "ORACLE with 2 devices: now fail, before pass" in out


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "--adapter", "numpy", "--sync", "elastic"),
        ("run", "--adapter", "numpy", "--sync", "parameters:0"),
        ("run", "--adapter", "numpy", "--tolerance", "2"),
        ("run", "--adapter", "numpy", "--baseline", "/nowhere/report.json"),
        ("diff", "/nowhere/a.json", "/nowhere/b.json"),
        ("diff", "/nowhere/a.json"),
    ],
)
def test_wrong_usage(guest: Guest, arguments: tuple[str, ...]) -> None:
    process = guest.start(*arguments)
    _out, err = process.communicate(timeout=600)
    assert process.returncode == 2
    assert "Traceback" not in err
