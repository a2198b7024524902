"""Several machines: ranks started by launchers find each other; a lost one is named and ends the run in limited time."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from machines import Machines, why_not

from .conftest import FAULTY, Answer, Guest, compiled
from .test_run import valid

QUICK = ("--adapter", "numpy", "--phases", "coll,oracle")
# check_hosts.Promise tests the 15 s that docs/how-to/cluster.md promises, with a simulated clock. Here real hosts are lost
# on a machine that may be loaded, so the limit is longer. Without the watchdog the ranks would wait for 300 s.
LOST_WITHIN_S = 150


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    reason = why_not()
    if reason:
        pytest.skip(reason)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with Machines(scratch, "ant", "bee") as made:
        yield made


class Job:
    """Four ranks, started as by a launcher: two on each machine."""

    def __init__(
        self,
        guest: Guest,
        machines: Machines,
        folder: Path,
        *arguments: str | Path,
        clock: int = 0,
        beside: str = "",
        **of_bee: str,
    ) -> None:
        self._target = folder / "report.json"
        self.started = time.monotonic()
        self.ranks: list[subprocess.Popen[str]] = []
        for rank in range(4):
            variables = {"RANK": str(rank), "WORLD_SIZE": "4", "LOCAL_RANK": str(rank % 2), "LOCAL_WORLD_SIZE": "2"}
            variables |= of_bee if rank > 1 else {}
            there = beside if beside and rank == 1 else machines.address("ant")
            env = guest.env(MASTER_ADDR=there, MASTER_PORT="29700", **variables)
            words = ("run", *arguments, "--json", self._target) if rank == 0 else ("run", *arguments)
            self.ranks.append(
                guest.start(
                    *words,
                    prefix=machines.enter(machines.names[rank // 2], clock * (rank // 2)),
                    env=env,
                    start_new_session=True,
                )
            )

    def answer(self) -> tuple[Answer, list[int]]:
        """The answer of rank 0, and the exit codes of the other ranks."""
        out, err = self.ranks[0].communicate(timeout=600)
        others = [rank.wait(timeout=600) for rank in self.ranks[1:]]
        report = json.loads(self._target.read_text()) if self._target.exists() else None
        return Answer(self.ranks[0].returncode, out, err, report), others

    def stop(self, *ranks: int) -> None:
        """Stop the processes that the launcher started. Their ranks run on, because they have separate sessions."""
        for rank in ranks:
            os.killpg(self.ranks[rank].pid, signal.SIGSTOP)

    def go_on(self, *ranks: int) -> None:
        """Continue stopped processes."""
        for rank in ranks:
            os.killpg(self.ranks[rank].pid, signal.SIGCONT)

    def wait_for(self, words: str) -> None:
        """Wait until rank 0 prints a line with these words."""
        assert self.ranks[0].stderr is not None
        for line in self.ranks[0].stderr:
            if words in line:
                return
        raise AssertionError(f"rank 0 never said {words!r}")


def test_two_machines_of_two_ranks(guest: Guest, machines: Machines, tmp_path: Path) -> None:
    answer, others = Job(guest, machines, tmp_path, *QUICK).answer()
    assert (answer.code, others) == (0, [0, 0, 0]), answer.out + answer.err
    report = valid(answer)
    assert [(host["name"], host["address"], host["ranks"]) for host in report["hosts"]] == [
        ("ant", machines.address("ant"), [0, 1]),
        ("bee", machines.address("bee"), [2, 3]),
    ]
    assert report["launcher"] == "torchrun"
    assert {(check["n"], check["status"]) for check in report["checks"] if check["id"] == "ORACLE"} == {
        (1, "pass"),
        (2, "pass"),
        (4, "pass"),
    }
    assert {(entry["n"], entry["hosts"]) for entry in report["collectives"]} == {(2, 1), (4, 2)}
    assert "within a host" in answer.out and "between hosts" in answer.out


@pytest.mark.parametrize(
    "fault", ["killed", *(pytest.param(each, marks=pytest.mark.prove) for each in ("raises", "no-exchange"))]
)
def test_a_fault_on_another_machine_is_told_from_there(guest: Guest, machines: Machines, tmp_path: Path, fault: str) -> None:
    planted = ("--adapter", FAULTY, "--option", f"fault={fault}", "--counts", "4", "--phases", "oracle")
    answer, others = Job(guest, machines, tmp_path, *planted).answer()
    assert (answer.code, others) == (1, [0, 0, 0]), answer.err
    wanted = {"killed": "rank 3 in phase", "raises": "rank 3 failed in phase", "no-exchange": "gradients are not exchanged"}
    assert wanted[fault] in valid(answer)["reason"]
    if fault != "no-exchange":
        assert answer.check("RUN", 4)["detail"]["ranks"][3]["host"] == "bee"


def test_the_clocks_of_two_machines_need_not_agree(guest: Guest, machines: Machines, tmp_path: Path) -> None:
    """The time of day of one machine is two hours late, and its monotonic clock began 100,000 s earlier."""
    if subprocess.run(["unshare", "--time", "--monotonic", "9", "--fork", "true"], capture_output=True, check=False).returncode:
        pytest.skip("no time namespaces here")
    compiled(tmp_path, "libclock")
    (tmp_path / "wrong-by").write_text("-7200")
    apart = {"LD_PRELOAD": str(tmp_path / "libclock.so"), "STUB_CLOCK": str(tmp_path / "wrong-by")}
    planted = ("--adapter", FAULTY, "--option", "fault=raises-everywhere", "--counts", "4", "--phases", "oracle")
    answer, others = Job(guest, machines, tmp_path, *planted, clock=100000, **apart).answer()
    assert (answer.code, others) == (1, [0, 0, 0]), answer.err
    assert "rank 3 failed in phase" in answer.check("RUN", 4)["message"]
    assert 0 < valid(answer)["duration_s"] < 120


def test_a_rank_that_met_rank_0_within_its_host_is_not_sent_to_the_loopback(
    guest: Guest, machines: Machines, tmp_path: Path
) -> None:
    """Debian maps a host's own name to 127.0.1.1.

    So the connection of a rank on the host of rank 0 does not show which network interface to use.
    """
    planted = ("--adapter", FAULTY, "--option", "fault=tells-interface", "--option", "on-rank=1", "--counts", "4")
    answer, _others = Job(guest, machines, tmp_path, *planted, "--phases", "oracle", beside="127.0.1.1").answer()
    assert 'NCCL is told "eth0"' in answer.check("RUN", 4)["message"], answer.err


def _asleep(guest: Guest, machines: Machines, folder: Path) -> Job:
    """Start a run that stands still for a long time in its third step."""
    planted = ("--adapter", FAULTY, "--option", "fault=asleep", "--counts", "4", "--phases", "oracle", "--stall", "300")
    job = Job(guest, machines, folder, *planted)
    job.wait_for("4 workers: oracle")
    return job


@pytest.mark.prove
def test_a_cut_cable_ends_the_run_on_both_sides(guest: Guest, machines: Machines, tmp_path: Path) -> None:
    job = _asleep(guest, machines, tmp_path)
    machines.cut("bee")
    start = time.monotonic()
    answer, others = job.answer()
    assert time.monotonic() - start < LOST_WITHIN_S
    assert (answer.code, others) == (1, [0, 1, 1]), answer.err
    message = answer.check("RUN", 4)["message"]
    assert re.search(r"rank [23] in phase .*the connection to its host bee was lost", message), message
    assert valid(answer)["status"] == "fail"


def test_a_process_that_is_stopped_is_lost_like_a_dead_host(guest: Guest, machines: Machines, tmp_path: Path) -> None:
    """Its kernel still answers, so only the missing beats show the loss.

    Its ranks run on until those on the side of rank 0 end them.
    """
    job = _asleep(guest, machines, tmp_path)
    job.stop(2, 3)
    start = time.monotonic()
    try:
        out, err = job.ranks[0].communicate(timeout=600)
        assert time.monotonic() - start < LOST_WITHIN_S
        report = json.loads((tmp_path / "report.json").read_text())
        (run,) = [check for check in report["checks"] if check["id"] == "RUN"]
        lost = "rank [23] in phase .*the connection to its host bee was lost: no message for 10 s"
        assert re.search(lost, run["message"]), err + out
    finally:
        job.go_on(2, 3)
    assert [rank.wait(timeout=LOST_WITHIN_S) for rank in job.ranks[1:]] == [0, 1, 1]


@pytest.mark.prove
def test_a_rank_0_that_is_stopped_ends_the_run_on_the_other_side(guest: Guest, machines: Machines, tmp_path: Path) -> None:
    job = _asleep(guest, machines, tmp_path)
    job.stop(0)
    start = time.monotonic()
    try:
        assert [rank.wait(timeout=600) for rank in job.ranks[1:]] == [1, 1, 1]
        assert time.monotonic() - start < LOST_WITHIN_S
    finally:
        job.go_on(0)
    answer, _others = job.answer()
    assert answer.code == 1


def test_a_machine_that_dies_is_named_at_once(guest: Guest, machines: Machines, tmp_path: Path) -> None:
    job = _asleep(guest, machines, tmp_path)
    for rank in (2, 3):
        os.killpg(job.ranks[rank].pid, signal.SIGKILL)
    start = time.monotonic()
    answer, _others = job.answer()
    assert time.monotonic() - start < LOST_WITHIN_S
    assert "the connection to its host bee was lost: the other side closed the connection" in answer.check("RUN", 4)["message"]


@pytest.mark.prove
def test_a_hang_elsewhere_shows_the_stacks_of_all(guest: Guest, machines: Machines, tmp_path: Path) -> None:
    planted = ("--adapter", FAULTY, "--option", "fault=frozen", "--counts", "4", "--phases", "oracle", "--stall", "4")
    answer, _others = Job(guest, machines, tmp_path, *planted).answer()
    assert (answer.code, answer.failed()) == (4, {"HANG"}), answer.err
    assert "check rank 3" in answer.check("HANG", 4)["message"]
    assert "stopped by a signal" in answer.check("HANG", 4)["message"]
    assert "_exchange" in valid(answer)["logs"]["4 workers, rank 2"]  # rank 2, on the other machine, waits for rank 3


def test_ranks_that_do_not_come_are_named(guest: Guest, tmp_path: Path) -> None:
    place = f"127.0.0.1:{_free_port()}"
    flags = ("--rank", "0", "--world-size", "3", "--master", place, "--join", "2")
    answer = guest.run("run", *QUICK, *flags, folder=tmp_path)
    assert (answer.code, answer.failed()) == (1, {"HOSTS"}), answer.err
    assert f"ranks 1, 2 did not connect to {place} within 2 s" in answer.check("HOSTS")["message"]


def test_a_lost_rank_0_lets_nobody_wait(guest: Guest, tmp_path: Path) -> None:
    flags = ("--rank", "1", "--world-size", "2", "--master", f"127.0.0.1:{_free_port()}", "--join", "1")
    process = guest.start("run", *QUICK, *flags)
    _out, err = process.communicate(timeout=600)
    assert process.returncode == 1
    assert "cannot connect to" in err


@pytest.mark.prove
def test_several_devices_of_one_process(guest: Guest, tmp_path: Path) -> None:
    port = str(_free_port())
    pod = {"JOB_COMPLETION_INDEX": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    other = guest.start("run", *QUICK, "--slots", "2", "--counts", "4", env=guest.env(**pod))
    flags = ("--rank", "0", "--world-size", "2", "--slots", "2", "--master", f"127.0.0.1:{port}")
    answer = guest.run("run", *QUICK, "--counts", "4", *flags, folder=tmp_path)
    assert (answer.code, answer.check("ORACLE", 4)["status"]) == (0, "pass"), answer.err
    assert other.wait(timeout=600) == 0
