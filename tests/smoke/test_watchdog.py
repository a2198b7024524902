"""Ranks that freeze, sleep, die or raise, and parent processes that are stopped.

The run ends in limited time, names the cause, and leaves no process.
"""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import FAULTY, FEW, NEWEST, OLDEST, Answer, Guest, compiled
from .test_run import valid

SOON_S = 120  # without the watchdog these runs would last a thousand seconds


def _disaster(guest: Guest, folder: Path, fault: str, *arguments: str) -> tuple[Answer, float]:
    start = time.monotonic()
    planted = ("--adapter", FAULTY, "--option", f"fault={fault}", "--counts", "2", "--phases", "oracle")
    answer = guest.run("run", *planted, *arguments, folder=folder)
    return answer, time.monotonic() - start


def _ranks(scratch: Path) -> set[int]:
    """The process ids of the ranks whose plan is below `scratch`."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                argv = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"--plan" in argv and any(os.fsencode(scratch) in word for word in argv):
                found.add(int(entry.name))
    return found


def _in_phase(scratch: Path, phase: str) -> int:
    """How many ranks have written a heartbeat of this phase."""
    return sum(f'"phase": "{phase}' in heart.read_text() for heart in scratch.rglob("heart-*"))


@pytest.mark.parametrize("version", FEW)
def test_a_frozen_rank_is_named_within_the_stall_limit(guest_of: Callable[[str], Guest], tmp_path: Path, version: str) -> None:
    answer, seconds = _disaster(guest_of(version), tmp_path, "frozen", "--stall", "4")
    assert (answer.code, answer.failed()) == (4, {"HANG"}), answer.err
    assert "check rank 1" in answer.check("HANG", 2)["message"]
    assert "stopped by a signal" in answer.check("HANG", 2)["message"]
    assert seconds < SOON_S
    assert valid(answer)["status"] == "fail"


def test_a_first_step_that_is_compiled_is_no_hang(guest: Guest, tmp_path: Path) -> None:
    answer, _seconds = _disaster(guest, tmp_path, "compiles", "--stall", "4")
    assert answer.code == 0, answer.err
    answer, _seconds = _disaster(guest, tmp_path, "compiles", "--stall", "2", "--stall-first", "2")
    assert (answer.code, answer.failed()) == (4, {"HANG"})


def test_a_sleeping_rank_shows_its_stack(guest: Guest, tmp_path: Path) -> None:
    answer, _seconds = _disaster(guest, tmp_path, "asleep", "--stall", "4")
    assert answer.code == 4, answer.err
    logs = valid(answer)["logs"]
    assert "disaster" in logs["2 workers, rank 1"]  # the function that sleeps
    assert "_exchange" in logs["2 workers, rank 0"]  # the function that waits for the sleeping rank


def test_the_time_limit_ends_a_run(guest: Guest, tmp_path: Path) -> None:
    """It is no hang: a healthy run on a busy machine may exceed the limit."""
    answer, seconds = _disaster(guest, tmp_path, "asleep", "--timeout", "8")
    assert (answer.code, valid(answer)["status"], answer.failed()) == (3, "inconclusive", set()), answer.err
    assert answer.check("HANG", 2)["status"] == "inconclusive"
    assert "time limit" in answer.check("HANG", 2)["message"]
    assert seconds < SOON_S


def test_a_stopped_rank_is_a_hang_at_the_time_limit_too(guest: Guest, tmp_path: Path) -> None:
    answer, _seconds = _disaster(guest, tmp_path, "frozen", "--timeout", "8")
    assert (answer.code, answer.failed()) == (4, {"HANG"}), answer.err
    assert "check rank 1" in answer.check("HANG", 2)["message"]


def test_a_rank_that_had_only_begun_at_the_time_limit_is_not_said_to_be_killed(guest: Guest, tmp_path: Path) -> None:
    answer, _ = _disaster(guest, tmp_path, "asleep", "--timeout", "0.2")
    assert (answer.code, answer.failed()) == (3, set())
    assert "SIGUSR1" not in answer.check("HANG", 2)["message"]


@pytest.mark.parametrize("version", FEW)
@pytest.mark.parametrize(("number", "rank"), [(signal.SIGSEGV, 1), (signal.SIGKILL, 0)])
def test_a_rank_that_dies_when_it_is_asked_for_its_stack_is_named_as_dead(
    guest_of: Callable[[str], Guest], tmp_path: Path, version: str, number: signal.Signals, rank: int
) -> None:
    planted = ("--stall", "4", "--option", f"by={int(number)}", "--option", f"on-rank={rank}")
    answer, _seconds = _disaster(guest_of(version), tmp_path, "dies-when-asked", *planted)
    assert (answer.code, answer.failed()) == (4, {"HANG"}), answer.err
    message = answer.check("HANG", 2)["message"]
    assert re.search(rf'check rank {rank} in phase "oracle[^"]*" \(waiting, then killed by {number.name}\)', message), message
    assert f'rank {1 - rank} in "oracle' in message and "killed" not in message.partition("the others")[2]


@pytest.mark.parametrize("version", FEW)
def test_a_killed_rank_is_the_culprit_and_not_its_peer(guest_of: Callable[[str], Guest], tmp_path: Path, version: str) -> None:
    answer, seconds = _disaster(guest_of(version), tmp_path, "killed")
    assert (answer.code, answer.failed()) == (1, {"RUN"}), answer.err
    message = answer.check("RUN", 2)["message"]
    assert "rank 1" in message and "SIGKILL" in message and "rank 0" not in message
    assert seconds < SOON_S


@pytest.mark.parametrize(("version", "fault"), [(NEWEST, "killed-parent"), (OLDEST, "killed-parent-of-daemon")])
def test_what_a_killed_rank_had_started_ends_as_well(
    guest_of: Callable[[str], Guest], tmp_path: Path, version: str, fault: str
) -> None:
    """Child processes of the rank end, too, even one in a separate session."""
    guest = guest_of(version)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    planted = ("--adapter", FAULTY, "--option", f"fault={fault}", "--counts", "2", "--phases", "oracle")
    answer = guest.run("run", *planted, folder=tmp_path, env=guest.env(TMPDIR=str(scratch)))
    assert (answer.code, answer.failed()) == (1, {"RUN"}), answer.err
    until = time.monotonic() + 5
    while _ranks(scratch) and time.monotonic() < until:
        time.sleep(0.05)
    assert _ranks(scratch) == set()


@pytest.mark.parametrize("version", FEW)
@pytest.mark.parametrize("counts", ["1", "2"])
def test_a_rank_that_exits_without_a_result_is_blamed(
    guest_of: Callable[[str], Guest], tmp_path: Path, version: str, counts: str
) -> None:
    """Exit code 0 is not enough. Its peers, which report that they lost it, are not to blame."""
    answer, seconds = _disaster(guest_of(version), tmp_path, "exits", "--counts", counts)
    assert (answer.code, answer.failed()) == (1, {"RUN"}), answer.err
    check = answer.check("RUN", int(counts))
    assert f'rank {int(counts) - 1} in phase "oracle' in check["message"]
    assert "ended with status 0 and without a result" in check["message"]
    assert "exit" in check["next_step"]
    assert valid(answer)["status"] == "fail" and seconds < SOON_S


def test_a_rank_that_calls_exit_says_where(guest: Guest, tmp_path: Path) -> None:
    answer, _seconds = _disaster(guest, tmp_path, "exits-politely")
    check = answer.check("RUN", 2)
    assert (answer.code, check["message"]) == (1, 'rank 1 failed in phase "oracle": SystemExit: 0'), answer.err
    assert "disaster" in check["detail"]["traceback"]


@pytest.mark.parametrize("rank", ["0", "1"])
def test_a_stopped_child_is_blamed_on_its_own_rank(guest: Guest, tmp_path: Path, rank: str) -> None:
    answer, seconds = _disaster(guest, tmp_path, "stopped-child", "--stall", "4", "--option", f"on-rank={rank}")
    assert (answer.code, answer.failed()) == (4, {"HANG"}), answer.err
    message = answer.check("HANG", 2)["message"]
    assert f"check rank {rank} in phase" in message
    assert re.search(r"\(its child \d+ \(python[\d.]*\) is stopped by a signal\)", message), message
    assert seconds < SOON_S


@pytest.mark.parametrize("version", FEW)
def test_an_exception_reaches_the_report(guest_of: Callable[[str], Guest], tmp_path: Path, version: str) -> None:
    answer, _seconds = _disaster(guest_of(version), tmp_path, "raises")
    assert (answer.code, answer.failed()) == (1, {"RUN"}), answer.err
    check = answer.check("RUN", 2)
    assert check["message"].startswith('rank 1 failed in phase "oracle": RuntimeError: out of memory')
    assert "disaster" in check["detail"]["traceback"]


@pytest.mark.parametrize("words", [("--help",), ("run", "--help"), ("coll", "--help")])
def test_the_help_names_every_exit_code(guest: Guest, words: tuple[str, ...]) -> None:
    out, _err = guest.start(*words).communicate(timeout=600)
    told = " ".join(out.split("Exit codes:")[1].split())
    assert re.findall(r"(?<!-)\b\d+\b", told) == ["0", "1", "2", "3", "4", "5", "129", "130", "143"]
    assert "129 by SIGHUP" in told


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_a_stopped_parent_leaves_no_rank_behind(guest: Guest, tmp_path: Path, number: signal.Signals, code: int) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    planted = ("--adapter", FAULTY, "--option", "fault=asleep", "--counts", "2", "--phases", "oracle")
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # `nohup make test` ignores it, and so would the guest
    try:
        process = guest.start("run", *planted, "--json", tmp_path / "r.json", env=guest.env(TMPDIR=str(scratch)))
    finally:
        signal.signal(signal.SIGHUP, before)
    until = time.monotonic() + 60
    while _in_phase(scratch, "oracle") < 2 and time.monotonic() < until:
        time.sleep(0.05)
    assert len(_ranks(scratch)) == _in_phase(scratch, "oracle") == 2
    os.kill(process.pid, number)
    process.communicate(timeout=600)
    assert process.returncode == code
    until = time.monotonic() + 10
    while _ranks(scratch) and time.monotonic() < until:
        time.sleep(0.05)
    assert _ranks(scratch) == set()
    if number != signal.SIGKILL:
        assert list(scratch.iterdir()) == []
        assert '"interrupted"' in (tmp_path / "r.json").read_text()


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize("hours", [2, -2])
def test_setting_the_clock_changes_nothing(guest_of: Callable[[str], Guest], tmp_path: Path, version: str, hours: int) -> None:
    """The time of day jumps by two hours while the ranks compute. There is no hang and no negative duration."""
    guest, wrong_by, target = guest_of(version), tmp_path / "wrong-by", tmp_path / "r.json"
    wrong_by.write_text("0")
    compiled(tmp_path, "libclock")
    env = guest.env(LD_PRELOAD=str(tmp_path / "libclock.so"), STUB_CLOCK=str(wrong_by))
    planted = ("--adapter", FAULTY, "--option", "fault=compiles", "--counts", "2", "--phases", "coll,oracle")
    start = time.monotonic()
    process = guest.start("run", *planted, "--json", target, env=env)
    assert process.stderr is not None
    for line in process.stderr:
        if "2 workers: oracle" in line:
            wrong_by.write_text(f"{hours * 3600}")
            break
    _out, err = process.communicate(timeout=600)
    took = time.monotonic() - start
    assert process.returncode == 0, err
    report = json.loads(target.read_text())
    assert report["status"] == "pass"
    assert 0 < report["duration_s"] < took
    assert all(0 <= seconds < took for seconds in report["timing"].values())
    (run,) = [check for check in report["checks"] if check["id"] == "RUN"]
    assert 5 < run["value"] < took  # the ranks sleep for 5 s in their first step


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize(("speed", "went"), [("3", "gained"), ("0.3", "lost")])
def test_a_wrong_clock_of_all_processes_is_found(
    guest_of: Callable[[str], Guest], tmp_path: Path, version: str, speed: str, went: str
) -> None:
    guest = guest_of(version)
    compiled(tmp_path, "libclock")
    env = guest.env(LD_PRELOAD=str(tmp_path / "libclock.so"), STUB_CLOCK_SPEED=speed)
    answer = guest.run(
        "run", "--adapter", "numpy", "--device", "cpu", "--counts", "2", "--phases", "oracle", folder=tmp_path, env=env
    )
    assert answer.code == 1, answer.err
    assert f"the clock of all processes of this machine {went} " in answer.check("TIME", 2)["message"]
