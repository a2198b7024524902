"""Processes are started, stopped after a timeout, and stopped with all their children."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from envbuild import files, guard, procs
from envbuild.errors import TimedOutError, UsageError
from envbuild.index.thread_pool import DaemonPool


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
    assert time.monotonic() - start < 50
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
    thread.join(60)
    assert order == ["first", "second"]


KILLED = """
import sys, threading
from pathlib import Path
from envbuild import guard, procs
with guard.temporary_folder("killed-", Path(sys.argv[1])) as folder:
    (folder / "deep").mkdir()
    script = "sleep {0} & sh -c 'sleep {0} & wait' & trap '' TERM; echo ready; wait".format(sys.argv[2])
    other = threading.Thread(target=procs.run, args=(["sh", "-c", "sleep {0}; true".format(sys.argv[2])],))
    other.start()
    procs.run(["sh", "-c", script], on_line=lambda line: print(line, flush=True))
"""


def sleepers(seconds: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if (entry / "cmdline").read_bytes().split(b"\0")[:2] == [b"sleep", str(seconds).encode()] and _alive(
                    int(entry.name)
                ):
                    found.append(int(entry.name))
    return found


@pytest.mark.parametrize("delay", [None, 0.0, 0.05, 0.1, 0.2, 0.4])
def test_nothing_is_left_of_a_process_that_is_killed_outright(tmp_path, delay):
    """At several moments: when its children run, and while they are being started."""
    seconds = 20_000_000 + os.getpid() * 10 + [None, 0.0, 0.05, 0.1, 0.2, 0.4].index(delay)
    argv = [sys.executable, "-c", KILLED, str(tmp_path), str(seconds)]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])})
    assert process.stdout is not None
    if delay is None:
        process.stdout.readline()
        _wait_for(lambda: len(sleepers(seconds)) >= 3)
    else:
        time.sleep(delay)
    process.kill()
    process.wait()
    _wait_for(lambda: not sleepers(seconds) and not list(tmp_path.iterdir()))
    time.sleep(0.3)  # nothing may start later
    assert sleepers(seconds) == []


@pytest.mark.parametrize(
    "code",
    [
        # killed after a program was started and before the guard knows it
        "guard._GUARD.hold = lambda *words: os.kill(os.getpid(), 9)\nprocs.run(['mkdir', sys.argv[1] + '/left'])",
        # killed right after a folder was made
        "make = Path.mkdir\nPath.mkdir = lambda *words, **more: (make(*words, **more), os.kill(os.getpid(), 9))\n"
        "with guard.temporary_folder('left-', Path(sys.argv[1])): pass",
    ],
    ids=["program", "folder"],
)
def test_a_kill_between_two_steps_leaves_nothing(tmp_path, code):
    code = f"import os, sys\nfrom pathlib import Path\nfrom envbuild import guard, procs\n{code}"
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], env=env, check=False)
    assert done.returncode == -signal.SIGKILL
    _wait_for(lambda: not list(tmp_path.iterdir()))
    time.sleep(0.3)  # nothing may start later
    assert not list(tmp_path.iterdir())


def test_a_process_that_ends_in_order_leaves_no_guard_and_runs_nothing(tmp_path):
    code = (
        "from envbuild import guard, procs; guard.run_if_killed(['touch', 'ran']); procs.run(['true'])\n"
        "print(guard._GUARD._process.pid)"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True, check=True)
    assert not _alive(int(done.stdout))
    assert not (tmp_path / "ran").exists()


ABANDONED = """
import sys, threading
from pathlib import Path
from envbuild import guard, procs
begun = threading.Event()
def work():
    with guard.temporary_folder("abandoned-", Path(sys.argv[1])):
        procs.run(["sh", "-c", "echo ready; exec sleep " + sys.argv[2]], on_line=lambda line: begun.set())
guard.run_if_killed(["touch", sys.argv[1] + "/ran"])
threading.Thread(target=work, daemon=True).start()
begun.wait()
"""


def test_what_threads_still_do_when_a_process_ends_in_order_is_ended(tmp_path):
    """As after Ctrl-C: the main thread does not wait for a build in another thread."""
    seconds = 30_000_000 + os.getpid()
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    subprocess.run([sys.executable, "-c", ABANDONED, str(tmp_path), str(seconds)], env=env, check=True)
    _wait_for(lambda: not sleepers(seconds) and not list(tmp_path.iterdir()))


def test_a_folder_is_removed_though_a_thread_writes_into_it_meanwhile(tmp_path, monkeypatch):
    real = shutil.rmtree
    late = [b"one", b"two"]

    def remove(folder: Path, **more: bool) -> None:
        real(folder, **more)
        if late:
            folder.mkdir()
            (folder / "late").write_bytes(late.pop())

    monkeypatch.setattr(guard.shutil, "rmtree", remove)
    with guard.temporary_folder("written-", tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_killed_guard_is_no_harm_to_its_process():
    assert procs.run(["true"]).code == 0
    process = guard._GUARD._process
    assert process is not None
    process.kill()
    process.wait()
    assert procs.run(["echo", "still"]).output == "still\n"


def _wait_for(condition, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to pass in time"
        time.sleep(0.02)


LOCKING = """
import sys
from pathlib import Path
from envbuild import files
counter = Path(sys.argv[1])
for _ in range(100):
    with files.locked(counter.with_name(".counter.lock")):
        counter.write_text(str(int(counter.read_text()) + 1))
"""


def test_a_lock_holds_though_its_file_goes_each_time(tmp_path):
    counter = tmp_path / "counter"
    counter.write_text("0")
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    running = [subprocess.Popen([sys.executable, "-c", LOCKING, str(counter)], env=env) for _ in range(4)]
    assert [process.wait(120) for process in running] == [0] * 4
    assert counter.read_text() == "400"
    assert [path.name for path in tmp_path.iterdir()] == ["counter"]


WRITING = """
import sys
from pathlib import Path
from envbuild import files
print("go", flush=True)
while True:
    files.write_atomic(Path(sys.argv[1]), b"x" * 3_000_000)
"""


@pytest.mark.parametrize("delay", [0.03, 0.05, 0.08, 0.11])
def test_a_killed_write_leaves_the_old_file_or_the_new_one_and_nothing_that_stays(tmp_path, delay):
    target = tmp_path / "kept.json"
    target.write_bytes(b"x" * 3_000_000)
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    process = subprocess.Popen([sys.executable, "-c", WRITING, str(target)], env=env, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(delay)
    process.kill()
    process.wait()
    # Replacing a file takes two steps. A file left by a kill between the steps stays until the next write.
    assert {path.name for path in tmp_path.iterdir()} <= {"kept.json", ".kept.json.new"}
    assert target.read_bytes() == b"x" * 3_000_000
    files.write_atomic(target, b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["kept.json"]


def test_what_a_kill_left_beside_a_file_is_removed_by_the_next_write(tmp_path):
    target = tmp_path / "kept.json"
    code = (
        "import os, sys\nfrom pathlib import Path\nfrom envbuild import files\n"
        "Path.replace = lambda *words: os.kill(os.getpid(), 9)\nfiles.write_atomic(Path(sys.argv[1]), 'x')"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    assert subprocess.run([sys.executable, "-c", code, str(target)], env=env, check=False).returncode == -signal.SIGKILL
    assert [path.name for path in tmp_path.iterdir()] == [".kept.json.new"]
    files.write_atomic(target, "new")
    assert [path.name for path in tmp_path.iterdir()] == ["kept.json"]


def test_many_writers_of_one_file_leave_one_of_their_texts(tmp_path):
    target = tmp_path / "kept.json"
    code = (
        "import sys\nfrom pathlib import Path\nfrom envbuild import files\n"
        "for _ in range(100): files.write_atomic(Path(sys.argv[1]), sys.argv[2] * 20_000)"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    writers = [subprocess.Popen([sys.executable, "-c", code, str(target), letter], env=env) for letter in "abcd"]
    while any(writer.poll() is None for writer in writers):
        if target.exists():
            text = target.read_text()
            assert text in {letter * 20_000 for letter in "abcd"}
    assert [writer.returncode for writer in writers] == [0, 0, 0, 0]
    assert [path.name for path in tmp_path.iterdir()] == ["kept.json"]


def test_several_processes_are_told_apart_line_by_line():
    with procs.Children() as children:
        children.start("a", ["sh", "-c", "echo one >&2; echo answer"])
        children.start("b", ["sh", "-c", "echo two >&2; exit 3"])
        events = [children.next() for _ in range(4)]
    assert {each for each in events if isinstance(each, procs.Said)} == {
        procs.Said(key="a", line="one"),
        procs.Said(key="b", line="two"),
    }
    assert {each for each in events if isinstance(each, procs.Ended)} == {
        procs.Ended(key="a", code=0, output="answer\n"),
        procs.Ended(key="b", code=3, output=""),
    }


def test_stopping_several_processes_lets_each_clean_up(tmp_path):
    cleaning = 'trap "echo cleaned; exit 130" TERM; echo ready >&2; while :; do sleep 0.1; done'
    with procs.Children() as children:
        for key in ("a", "b"):
            children.start(key, ["sh", "-c", cleaning])
        assert {children.next(), children.next()} == {procs.Said(key="a", line="ready"), procs.Said(key="b", line="ready")}
        ended = children.stop()
    assert sorted(ended, key=lambda each: each.key) == [procs.Ended(key=key, code=130, output="cleaned\n") for key in "ab"]


def test_a_process_that_does_not_end_in_time_is_killed(tmp_path):
    with procs.Children(grace_s=0.1) as children:
        children.start("a", ["sh", "-c", 'trap "" TERM; echo ready >&2; while :; do sleep 0.1; done'])
        assert children.next() == procs.Said(key="a", line="ready")
        assert [each.code for each in children.stop()] == [-signal.SIGKILL]


def test_leaving_the_block_by_an_error_ends_the_processes(tmp_path):
    note = tmp_path / "pid"
    with pytest.raises(KeyError), procs.Children() as children:
        children.start("a", ["sh", "-c", f"echo $$ > {note}; echo ready >&2; exec sleep 600"])
        assert children.next() == procs.Said(key="a", line="ready")
        raise KeyError
    assert not _alive(int(note.read_text()))


def test_ctrl_c_while_a_process_is_started_ends_it_and_leaves_nothing_to_wait_for(monkeypatch):
    pids: list[int] = []

    @contextlib.contextmanager
    def interrupted(pid: int):
        pids.append(pid)
        raise KeyboardInterrupt
        yield

    children = procs.Children()
    children.start("a", ["sleep", "600"])
    monkeypatch.setattr(procs.guard, "process_group", interrupted)
    with pytest.raises(KeyboardInterrupt):
        children.start("b", ["sleep", "600"])
    assert [each.key for each in DaemonPool(1).submit(children.stop).result(60)] == ["a"]
    end = time.monotonic() + 60
    while _alive(pids[0]) and time.monotonic() < end:
        time.sleep(0.05)
    assert not _alive(pids[0])


def test_ctrl_c_after_the_last_line_of_a_process_leaves_nothing_to_wait_for():
    children = procs.Children()
    children.start("a", ["sh", "-c", "exec >&- 2>&-; sleep 600"])
    children._processes["a"], real = Interrupted(), children._processes["a"]
    with pytest.raises(KeyboardInterrupt):
        children.next()
    children._processes["a"] = real
    assert [each.key for each in DaemonPool(1).submit(children.stop).result(60)] == ["a"]


class Interrupted:
    """A process; waiting for it raises KeyboardInterrupt, as Ctrl-C does."""

    def wait(self) -> int:
        raise KeyboardInterrupt


def test_all_processes_have_the_same_time_to_clean_up(monkeypatch):
    now = [0.0]

    class Stubborn:
        pid = 1

        def wait(self, timeout: float = 0.0) -> int:
            now[0] += timeout
            if timeout:
                raise subprocess.TimeoutExpired("stubborn", timeout)
            return -signal.SIGKILL

    monkeypatch.setattr(procs, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(procs.os, "killpg", lambda *_: None)
    monkeypatch.setattr(procs, "stop_group", lambda *_, **__: None)
    children = procs.Children(grace_s=120.0)
    for key in "abc":
        children._processes[key], children._open_streams[key] = Stubborn(), 0
        children._output[key], children._guards[key] = [], contextlib.ExitStack()
    assert [each.code for each in children.stop()] == [-9, -9, -9]
    assert now[0] == 120.0


def test_a_program_in_the_place_of_ours_ignores_no_signal():
    """Else a pipe inside of it would end with an error message, and not silently."""
    script = "from envbuild import procs; procs.become(['sh', '-c', 'grep SigIgn /proc/self/status'])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert not int(done.stdout.split()[1], 16) & (1 << signal.SIGPIPE - 1), done.stdout
