"""Start processes. Each process runs in its own process group and is killed with all its children. No other module starts
processes."""

from __future__ import annotations

import contextlib
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from envbuild import files, guard
from envbuild.errors import TimedOutError, UsageError

_KILL_GRACE_S = 5.0
# A Ctrl-C just before Python waits for a lock does not end this wait. So every wait has a time limit.
_LOOK_S = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """How a process ended. ``code`` is negative if a signal ended the process, as in subprocess. ``output`` has both streams,
    unless they were split."""

    argv: tuple[str, ...]
    code: int
    output: str
    errors: str = ""


def run(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    input_text: str | None = None,
    timeout_s: float | None = None,
    split: bool = False,
    on_line: Callable[[str], None] | None = None,
    dies_with_us: bool = False,
) -> Result:
    """Run a process to its end and return the result, whatever the exit code.

    ``env`` is added to this process's environment. With ``split``, standard error goes to ``errors`` instead of ``output``.
    ``on_line`` is called with each line of both streams as soon as the line arrives. Raises :class:`TimedOutError` after
    ``timeout_s`` and :class:`UsageError` (``missing-program``) if the program does not exist. If an exception occurs, including
    Ctrl-C, the whole process group is stopped before the exception is raised further. If this process is killed, the guard
    kills the group. With ``dies_with_us``, the kernel kills the program (but not its children) as soon as this process ends.
    """
    process = _start(_bound(argv) if dies_with_us else argv, env=env, cwd=cwd, reads=input_text is not None)
    lines: queue.Queue[tuple[str, str] | None] = queue.Queue()
    with guard.process_group(process.pid):
        readers = [_reader(process.stdout, "out", lines), _reader(process.stderr, "err", lines)]
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        kept: dict[str, list[str]] = {"out": [], "err": []}
        try:
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write("go\n" + (input_text or ""))
                process.stdin.close()
            for stream, line in _until_both_end(lines, len(readers), deadline, argv):
                kept["err" if split and stream == "err" else "out"].append(line)
                if on_line is not None:
                    on_line(line.rstrip("\n"))
            code = process.wait(None if deadline is None else max(0.1, deadline - time.monotonic()))
        except BaseException:
            stop_group(process.pid)
            process.wait()
            raise
    return Result(argv=tuple(argv), code=code, output="".join(kept["out"]), errors="".join(kept["err"]))


@dataclass(frozen=True, kw_only=True, slots=True)
class Said:
    """A line that one of several processes wrote to standard error."""

    key: str
    line: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """The end of one of several processes: ``code`` is negative if a signal ended it; ``output`` is its standard output."""

    key: str
    code: int
    output: str


class Children:
    """Several processes at the same time, each in its own group, each known by a key.

    Leaving the block ends the processes that still run: all get SIGTERM at once, and after ``grace_s`` seconds SIGKILL.
    If this process is killed, the guard kills the groups.
    """

    def __init__(self, grace_s: float = 120.0) -> None:
        self._grace_s = grace_s
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self._output: dict[str, list[str]] = {}
        self._open_streams: dict[str, int] = {}
        self._guards: dict[str, contextlib.ExitStack] = {}
        self._lines: queue.Queue[tuple[str, bool, str | None]] = queue.Queue()

    def __enter__(self) -> Children:
        """Return these processes."""
        return self

    def __exit__(self, *_problem: object) -> None:
        """End all processes that still run."""
        self.stop()

    def start(self, key: str, argv: Sequence[str]) -> None:
        """Start a process that reads no input."""
        process = _start(argv, env=None, cwd=None, reads=False)
        guards = contextlib.ExitStack()
        try:
            guards.enter_context(guard.process_group(process.pid))
            for stream, is_error in ((process.stdout, False), (process.stderr, True)):
                threading.Thread(target=self._read, args=(key, stream, is_error), daemon=True).start()
            # Register the process last: then threads read the output of every registered process, so that each wait for a
            # process ends.
            self._output[key], self._open_streams[key], self._guards[key] = [], 2, guards
            self._processes[key] = process
        except BaseException:
            stop_group(process.pid, grace_s=0)
            guards.close()
            raise
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write("go\n")
            process.stdin.close()

    def next(self) -> Said | Ended:
        """Wait for the next line or end of a process. At least one process must be running."""
        while True:
            try:
                key, is_error, line = self._lines.get(timeout=_LOOK_S)
            except queue.Empty:
                continue
            if key not in self._processes:
                continue  # not registered: Ctrl-C arrived while the process was being started
            if line is None:
                self._open_streams[key] -= 1
                if not self._open_streams[key]:
                    return self._ended(key)
            elif is_error:
                return Said(key=key, line=line.rstrip("\n"))
            else:
                self._output[key].append(line)

    def stop(self) -> list[Ended]:
        """End all processes that still run, and return how they ended."""
        end = time.monotonic() + self._grace_s
        for process in self._processes.values():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGTERM)
        for process in self._processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, end - time.monotonic()))
            stop_group(process.pid, grace_s=0)
        ended = []
        while self._processes:
            # Ctrl-C may have arrived after the last line of a process and before the report of its end.
            silent = next((key for key in self._processes if not self._open_streams[key]), None)
            event = self.next() if silent is None else self._ended(silent)
            ended += [event] if isinstance(event, Ended) else []
        return ended

    def _ended(self, key: str) -> Ended:
        code = self._processes[key].wait()  # remove it only after its end: Ctrl-C must still end it
        self._guards.pop(key).close()
        del self._processes[key]
        return Ended(key=key, code=code, output="".join(self._output.pop(key)))

    def _read(self, key: str, stream: Iterable[str], is_error: bool) -> None:
        for line in stream:
            self._lines.put((key, is_error, line))
        self._lines.put((key, is_error, None))


def become(argv: Sequence[str], *, env: Mapping[str, str] | None = None) -> NoReturn:
    """Replace this process with a program. The program gets the terminal and the signals, and its exit code is the result.

    ``env`` is added to this process's environment. Raises :class:`UsageError` (``missing-program``).
    """
    path = shutil.which(argv[0])
    if path is None:
        raise missing_program(argv[0])
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    guard.end()
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these signals; the program must not ignore them
        signal.signal(number, signal.SIG_DFL)
    os.execve(path, list(argv), {**os.environ, **(env or {})})


def missing_program(name: str) -> UsageError:
    """Return the error for a program that is not installed."""
    return UsageError(
        f"The program {name} is not installed.",
        code="missing-program",
        hint="`envbuild doctor` lists what is missing and how to get it.",
    )


def start_daemon(argv: Sequence[str], *, log: Path, env: Mapping[str, str] | None = None) -> int:
    """Start a process that outlives this process, in a new session. Its output goes to a new file, ``log``. Return its pid."""
    with files.open_new(log) as stream:
        process = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            env={**os.environ, **(env or {})},
            start_new_session=True,
        )
    return process.pid


def stop_group(pid: int, *, grace_s: float = _KILL_GRACE_S) -> None:
    """Ask the process group of ``pid`` to end. After ``grace_s`` seconds, kill the processes that still run."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(pid, number)
        except (ProcessLookupError, PermissionError):
            return
        end = time.monotonic() + grace_s
        while time.monotonic() < end:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(-pid, os.WNOHANG)
            if not _group_alive(pid):
                return
            time.sleep(0.05)


def find(program: str, *, extra: Sequence[str] = ("/usr/sbin", "/sbin")) -> str | None:
    """Return the path of ``program``. The program is searched for on PATH and then in the folders ``extra``. Return None if it
    is not found."""
    return shutil.which(program) or shutil.which(program, path=os.pathsep.join(extra))


def _bound(argv: Sequence[str]) -> Sequence[str]:
    # setpriv is in util-linux, which every Debian and Ubuntu has; without it, the program outlives a kill -9 of this process.
    setpriv = find("setpriv")
    return [setpriv, "--pdeathsig", "KILL", "--", *argv] if setpriv and shutil.which(argv[0]) else argv


# The program waits for a line, which this process sends once the guard knows the program's process group. If this process is
# killed before that, the program never runs.
_WAIT = 'read -r go || exit; exec "$@"'


def _start(argv: Sequence[str], *, env: Mapping[str, str] | None, cwd: Path | None, reads: bool) -> subprocess.Popen[str]:
    environment = {**os.environ, **(env or {})}
    if shutil.which(argv[0] if cwd is None or "/" not in argv[0] else cwd / argv[0], path=environment.get("PATH")) is None:
        raise missing_program(argv[0])
    return subprocess.Popen(
        ["/bin/sh", "-c", _WAIT if reads else f"{_WAIT} </dev/null", "sh", *argv],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        cwd=cwd,
        text=True,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,
    )


def _reader(stream: object, name: str, lines: queue.Queue[tuple[str, str] | None]) -> threading.Thread:
    def pump() -> None:
        for line in stream:  # type: ignore[attr-defined]
            lines.put((name, line))
        lines.put(None)

    thread = threading.Thread(target=pump, daemon=True)
    thread.start()
    return thread


def _until_both_end(
    lines: queue.Queue[tuple[str, str] | None], streams: int, deadline: float | None, argv: Sequence[str]
) -> Iterator[tuple[str, str]]:
    while streams:
        try:
            item = lines.get(timeout=None if deadline is None else max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            raise TimedOutError(f"{Path(argv[0]).name} was stopped: its time limit passed.") from None
        if item is None:
            streams -= 1
        else:
            yield item


def _group_alive(pid: int) -> bool:
    try:
        os.killpg(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
