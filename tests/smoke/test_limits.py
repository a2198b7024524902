"""Checks that do not apply to a framework are skipped with a reason. A skipped check never makes another check pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import INSIDE, Guest

ALONE = ("run", "--adapter", INSIDE / "alone.py", "--phases", "coll,oracle")
ONE_DEVICE = ("--option", "devices=it exchanges nothing")
NO_TRAINING = ("--option", "training=it only adds")


def test_a_framework_of_one_device_is_tested_on_one(guest: Guest, tmp_path: Path) -> None:
    answer = guest.run(*ALONE, *ONE_DEVICE, folder=tmp_path)
    assert (answer.code, answer.check("ORACLE", 1)["status"]) == (0, "pass"), answer.err
    skipped = answer.check("DEVICES", 2)
    assert (skipped["status"], skipped["message"]) == ("skip", "does not apply: it exchanges nothing")
    assert answer.report is not None
    assert answer.report["notes"] == ["Data parallelism was not tested: it exchanges nothing."]
    assert {check["n"] for check in answer.report["checks"] if check["id"] != "DEVICES"} == {None, 1}


@pytest.mark.parametrize("arguments", [("--counts", "2"), ("--counts", "1,2", "--min-speedup", "2:1.5")])
@pytest.mark.parametrize("limit", [ONE_DEVICE, NO_TRAINING])
def test_asking_for_more_devices_than_apply_is_inconclusive(
    guest: Guest, tmp_path: Path, arguments: tuple[str, ...], limit: tuple[str, ...]
) -> None:
    answer = guest.run(*ALONE, *limit, *arguments, folder=tmp_path)
    assert answer.code == 3
    assert answer.report is not None
    assert answer.report["reason"].startswith("the test on 2 devices was requested, but cannot run: it ")


def test_what_does_not_apply_to_gpus_is_tested_on_the_cpu(guest: Guest, tmp_path: Path) -> None:
    answer = guest.run(*ALONE, "--option", "gpus=it has no exchange", "--counts", "2", folder=tmp_path)
    assert (answer.code, answer.check("ORACLE", 2)["status"]) == (0, "pass"), answer.err


def test_a_framework_that_does_not_train_is_given_work_of_its_own(guest: Guest, tmp_path: Path) -> None:
    answer = guest.run(*ALONE, *NO_TRAINING, folder=tmp_path)
    assert (answer.code, answer.check("WORK", 1)["message"]) == (0, "right: adding, subtracting"), answer.err
    assert {answer.check(key, n)["status"] for key, n in (("ORACLE", 1), ("ACC", 1), ("DEVICES", 2))} == {"skip"}
    assert answer.report is not None
    assert (answer.report["training"], answer.report["runs"]) == ([], [])
    assert answer.report["notes"] == ["Nothing was trained: it only adds."]


def test_work_that_goes_wrong_is_named(guest: Guest, tmp_path: Path) -> None:
    answer = guest.run(*ALONE, *NO_TRAINING, "--option", "wrong=subtracting", folder=tmp_path)
    assert (answer.code, answer.failed()) == (1, {"WORK"})
    assert answer.check("WORK", 1)["message"] == "subtracting gives a wrong result: 41 instead of 42"


def test_a_framework_that_cannot_compute_here_is_inconclusive(guest: Guest, tmp_path: Path) -> None:
    answer = guest.run(*ALONE, *NO_TRAINING, "--option", "cannot=it needs a GPU", folder=tmp_path)
    assert (answer.code, answer.check("WORK", 1)["status"]) == (3, "inconclusive"), answer.err
    assert answer.report is not None
    assert answer.report["reason"] == "it needs a GPU"


def test_silence_while_an_adapter_compiles_is_no_hang(guest: Guest, tmp_path: Path) -> None:
    quiet = ("--phases", "coll", "--stall", "6", "--counts", "1", "--option", "prepare=8")
    answer = guest.run(*ALONE, *quiet, "--stall-first", "60", folder=tmp_path)
    assert answer.code == 0, answer.err
    assert answer.report is not None
    assert answer.report["timing"]["1x_prepare_s"] >= 8
    assert guest.run(*ALONE, *quiet, "--stall-first", "3", folder=tmp_path).failed() == {"HANG"}
