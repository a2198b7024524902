"""Processes are started, timed out and stopped with all their children."""

import os
import sys
import threading
import time
from pathlib import Path

import pytest

from envbuild import files, procs
from envbuild.errors import TimedOutError, UsageError


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_output_lines_and_exit_code():
    seen: list[str] = []
    result = procs.run(["sh", "-c", "echo out; echo err >&2; exit 3"], split=True, on_line=seen.append)
    assert (result.code, result.output, result.errors) == (3, "out\n", "err\n")
    assert sorted(seen) == ["err", "out"]


def test_input_reaches_the_process():
    assert procs.run(["cat"], input_text="hello\n").output == "hello\n"


def test_a_time_limit_stops_the_children_too(tmp_path):
    note = tmp_path / "child"
    start = time.monotonic()
    with pytest.raises(TimedOutError):
        procs.run(["sh", "-c", f"sleep 60 & echo $! > {note}; wait"], timeout_s=0.5)
    assert time.monotonic() - start < 10
    assert not _alive(int(note.read_text()))


def test_an_exception_in_the_listener_stops_the_group(tmp_path):
    note = tmp_path / "child"

    def stop(_line: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        procs.run(["sh", "-c", f"sleep 60 & echo $! > {note}; echo ready; wait"], on_line=stop)
    assert not _alive(int(note.read_text()))


def test_a_missing_program_is_a_usage_error():
    with pytest.raises(UsageError) as caught:
        procs.run(["no-such-program-anywhere"])
    assert caught.value.code == "missing-program"


def test_a_daemon_outlives_the_call_and_can_be_stopped(tmp_path):
    pid = procs.start_daemon(
        [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"], log=tmp_path / "log"
    )
    try:
        for _ in range(100):
            if (tmp_path / "log").read_text() == "up\n":
                break
            time.sleep(0.05)
        assert (tmp_path / "log").read_text() == "up\n"
        assert os.getsid(pid) == pid
    finally:
        procs.stop_group(pid)
    assert not _alive(pid)


def test_a_lock_makes_the_second_wait(tmp_path):
    order: list[str] = []

    def second() -> None:
        with files.locked(tmp_path / "lock"):
            order.append("second")

    with files.locked(tmp_path / "lock"):
        thread = threading.Thread(target=second)
        thread.start()
        time.sleep(0.2)
        order.append("first")
    thread.join(5)
    assert order == ["first", "second"]
