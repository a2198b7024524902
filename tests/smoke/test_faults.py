"""For each check a planted fault that it finds; for each fault of gradient averaging, the name that the check must give."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import FAULTY, Answer, Guest
from .test_run import SHORT, valid

# A benchmark with small batches needs less time, and its checks see the same faults.
BRIEF = (*SHORT, "--batch", "16")

# fault → checks that must fail, and the cause that must be named; inside/check_faults.py has all faults
AVERAGING = {
    "no-exchange": ({"ORACLE", "REPLICA"}, "no-exchange"),
    "gradients-summed": ({"ORACLE"}, "gradients-summed"),
    "labels": ({"ORACLE"}, "labels-plus-one"),
    "one-label": ({"ORACLE"}, "wrong-labels"),
    "learning-rate=1.01": ({"ORACLE"}, "learning-rate"),
    "noise=1e-4": ({"ORACLE"}, "noise"),
    "reported-loss=1.001": ({"ORACLE"}, "reported-loss"),
    "outputs": ({"ORACLE"}, "outputs"),
    "other-start-on-rank-1": ({"ORACLE", "REPLICA"}, "other-start"),
}


def _fault(guest: Guest, folder: Path, fault: str, *arguments: str) -> Answer:
    return guest.run("run", "--adapter", FAULTY, "--option", f"fault={fault}", "--counts", "2", *arguments, folder=folder)


def test_the_faulty_adapter_is_healthy_without_a_fault(guest: Guest, tmp_path: Path) -> None:
    answer = _fault(guest, tmp_path, "", "--phases", "coll,oracle")
    assert (answer.code, answer.failed()) == (0, set()), answer.err


@pytest.mark.parametrize("fault", AVERAGING)
def test_a_fault_of_averaging_is_caught_and_named(guest: Guest, tmp_path: Path, fault: str) -> None:
    answer = _fault(guest, tmp_path, fault, "--phases", "oracle")
    failing, hypothesis = AVERAGING[fault]
    assert (answer.code, answer.failed()) == (1, failing), answer.err
    assert valid(answer)["status"] == "fail"
    oracle = answer.check("ORACLE", 2)
    assert oracle["value"] > oracle["limit"]
    assert oracle["detail"]["hypothesis"]["id"] == hypothesis, oracle
    assert oracle["message"] in answer.out


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        pytest.param("learning-rate-later=1.01", "learning-rate", marks=pytest.mark.prove),
        ("weight-decay-later=5e-4", "weight-decay"),
        pytest.param("half-exchange-later", "gradients-in-float16", marks=pytest.mark.prove),
    ],
)
def test_a_small_fault_that_begins_after_many_steps_is_caught_and_named(
    guest: Guest, tmp_path: Path, fault: str, cause: str
) -> None:
    """The timed steps show only errors of several percent. The reference network trains again after them."""
    answer = _fault(guest, tmp_path, fault, *SHORT)
    assert answer.code == 1 and {"ORACLE"} <= answer.failed() <= {"ORACLE", "EXCHANGE"}, answer.err  # EXCHANGE may see it too
    oracle = answer.check("ORACLE", 2)
    assert oracle["message"].startswith("right at the start of the run; at its end: "), oracle
    assert oracle["detail"]["hypothesis"]["id"] == cause, oracle


def test_a_fault_of_the_second_bucket_is_named_though_the_small_network_is_right(guest: Guest, tmp_path: Path) -> None:
    answer = _fault(guest, tmp_path, "second-bucket", "--phases", "oracle,buckets")
    assert (answer.code, answer.failed()) == (1, {"BUCKETS"}), answer.err
    buckets = answer.check("BUCKETS", 2)
    assert (buckets["detail"]["hypothesis"], buckets["detail"]["step"]) == ("bucket-not-exchanged", 1)
    assert "the gradients of fc1_w, fc1_b, fc2_w, fc2_b are not exchanged" in valid(answer)["reason"]


@pytest.mark.parametrize(
    ("strict", "code", "status"), [((), 0, "pass"), pytest.param(("--strict",), 5, "fail", marks=pytest.mark.prove)]
)
def test_reduced_precision_that_was_asked_for_is_a_warning(
    guest: Guest, tmp_path: Path, strict: tuple[str, ...], code: int, status: str
) -> None:
    answer = _fault(guest, tmp_path, "bf16-layers", "--phases", "oracle", "--option", "precision=bf16", *strict)
    assert (answer.code, valid(answer)["status"], answer.check("ORACLE", 2)["status"]) == (code, status, "warn"), answer.out
    assert answer.failed() == set()


def test_reduced_precision_that_nobody_asked_for_fails_on_the_cpu(guest: Guest, tmp_path: Path) -> None:
    answer = _fault(guest, tmp_path, "bf16-layers", "--phases", "oracle")
    assert (answer.code, answer.failed()) == (1, {"ORACLE"})
    assert "bfloat16" in answer.check("ORACLE", 2)["message"]


def test_what_one_device_does_exactly_and_two_do_not_is_no_matter_of_precision(guest: Guest, tmp_path: Path) -> None:
    arguments = ("run", "--adapter", FAULTY, "--option", "fault=race", "--counts", "1,2", "--phases", "oracle")
    answer = guest.run(*arguments, folder=tmp_path)
    assert (answer.code, answer.failed(), answer.check("ORACLE", 1)["status"]) == (1, {"ORACLE"}, "pass"), answer.err
    oracle = answer.check("ORACLE", 2)
    assert oracle["value"] > oracle["limit"] and "with one device, weights agree" in oracle["message"], oracle
    assert "may race with" not in oracle["message"] and "the exchange, and updates that may race" in oracle["next_step"], oracle


@pytest.mark.parametrize(
    ("fault", "phases", "failing"),
    [
        ("collective", "coll", {"COLL"}),
        ("elsewhere", "oracle", {"DEVICE"}),
        ("nan", "train", {"LOSS", "EXCHANGE"}),
        ("no-update", "train", {"LOSS", "ACC", "EXCHANGE"}),
        ("labels", "train", {"ACC", "EXCHANGE"}),
        ("no-exchange", "train", {"REPLICA", "EXCHANGE"}),  # the network learns all the same
        ("import", "oracle", {"IMPORT"}),
        # Faults that begin only after the first steps:
        ("same-shard-later", "train", {"EXCHANGE"}),
        ("same-batch-unexchanged-later", "bench", {"EXCHANGE"}),  # here the replicas are equal bit for bit
        ("unexchanged-in-bench", "oracle,bench", {"REPLICA", "EXCHANGE"}),
        ("no-waiting", "bench", {"TIME"}),
        ("reported-loss-later=1.7", "bench", {"EXCHANGE"}),
        ("random-outputs", "train,save", {"ACC", "SAVE"}),
    ],
)
def test_other_faults_fail_their_own_check(guest: Guest, tmp_path: Path, fault: str, phases: str, failing: set[str]) -> None:
    answer = _fault(guest, tmp_path, fault, "--phases", phases, *(BRIEF if "bench" in phases else SHORT))
    assert (answer.code, answer.failed()) == (1, failing), answer.out + answer.err
    assert valid(answer)["reason"]


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("", "average the gradients of 2 devices with an error of"),
        ("same-shard-later", "ranks 0 and 1 received the same images in"),
        # The message ends with these words; which rank and mode it names depends on chance.
        ("unexchanged-in-bench", "): nothing is exchanged"),
        ("summed-later", "): gradients are summed"),
        ("bfloat16-after-some-steps", "): the gradients are rounded to bfloat16"),
        ("bfloat16-sum-after-some-steps", "): the gradients are rounded to bfloat16"),
        ("float16-after-some-steps", "): the gradients are rounded to float16"),
    ],
)
def test_what_is_timed_is_checked_and_the_fault_is_named(guest: Guest, tmp_path: Path, fault: str, words: str) -> None:
    answer = _fault(guest, tmp_path, fault, "--phases", "bench", *BRIEF)
    exchange = answer.check("EXCHANGE", 2)
    assert exchange["status"] == ("fail" if fault else "pass"), answer.err
    assert words in exchange["message"]
    assert fault or exchange["value"] < exchange["limit"] / 2  # the number of earlier steps depends on the machine


@pytest.mark.parametrize("count", [1, 2])
def test_steps_that_do_nothing_are_not_timed_as_training(guest: Guest, tmp_path: Path, count: int) -> None:
    """Without updates all replicas stay equal, and their steps are fast."""
    planted = ("--adapter", FAULTY, "--option", "fault=no-update-later", "--counts", str(count))
    answer = guest.run("run", *planted, "--phases", "oracle,bench", *BRIEF, folder=tmp_path)
    assert (answer.code, answer.failed()) == (1, {"EXCHANGE", "ORACLE"}), answer.err  # ORACLE looks at 24 steps
    assert "the difference is 100 % of the gradient" in answer.check("EXCHANGE", count)["message"]


def test_a_slow_clock_of_one_rank_is_no_fast_machine(guest: Guest, tmp_path: Path) -> None:
    answer = _fault(guest, tmp_path, "slow-clock", "--phases", "oracle,bench", *BRIEF)
    assert (answer.code, answer.failed()) == (1, {"TIME"}), answer.err
    assert "the clock of rank 0 lost " in answer.out


def test_a_wrong_collective_is_told_with_rank_and_place(guest: Guest, tmp_path: Path) -> None:
    coll = _fault(guest, tmp_path, "collective", "--phases", "coll").check("COLL", 2)
    assert "ranks [1]" in coll["message"] and "777" in coll["message"]


def test_a_framework_that_cannot_be_imported_says_what_is_missing(guest: Guest, tmp_path: Path) -> None:
    answer = _fault(guest, tmp_path, "import", "--phases", "oracle")
    assert "libexample.so.9" in answer.check("IMPORT", 2)["message"]
    assert answer.report is not None
    assert any("libexample.so.9" in log for log in answer.report["logs"].values())
