"""Clean up process groups, folders and containers if this process is killed.

``kill -9`` runs no handler, so another process must clean up: the guard, a small Python program that is started on first use.
The guard reads from a pipe what it must clean up. Only this process holds the other end of the pipe, so the kernel closes the
pipe when this process ends for any reason. The guard then kills the listed groups, removes the folders, runs the commands, and
ends. If this process ends normally, no command is run; groups and folders that are still listed belong to threads that Ctrl-C
left behind.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

# Attempts to remove a folder: after Ctrl-C, a thread may still write into the folder during the removal. Once the folder is
# gone, the thread cannot write any more.
_REMOVALS = 10
# The program imports some modules only when it needs them, so that a guard that only waits takes little time and memory.
_PROGRAM = """
import json, os, signal, sys
held = {}
for line in sys.stdin:
    verb, key, what = json.loads(line)
    if verb == "hold":
        held[key] = what
    elif verb == "free":
        held.pop(key, None)
    elif verb == "end":
        held = {key: what for key, what in held.items() if what[0] != "command"}
        break
for what in list(held.values()):
    if what[0] == "group":
        try:
            os.killpg(what[1], signal.SIGKILL)
        except OSError:
            pass
for what in list(held.values()):
    if what[0] == "folder":
        import shutil
        shutil.rmtree(what[1], ignore_errors=True)
for what in list(held.values()):
    if what[0] == "command":
        import subprocess
        subprocess.call(what[1], stdin=subprocess.DEVNULL)
"""


class _Guard:
    """The pipe to the guard. The guard is started on first use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._owner = 0
        self._count = 0

    def hold(self, *what: object) -> str:
        """Add ``what`` to the list of things to clean up, and return its key."""
        with self._lock:
            self._count += 1
            key = str(self._count)
            self._send(["hold", key, list(what)])
            return key

    def free(self, key: str) -> None:
        """Remove the entry with this key from the list of things to clean up."""
        with self._lock:
            self._send(["free", key, None])

    def end(self) -> None:
        """End the guard because this process ends normally. The guard cleans up what threads left behind, and runs no
        command."""
        with self._lock:
            if self._process is None or self._owner != os.getpid():
                return
            self._send(["end", "", None])
            process, self._process = self._process, None
            with contextlib.suppress(OSError):
                process.stdin.close()  # type: ignore[union-attr]
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(1)

    def _send(self, words: list[object]) -> None:
        if self._process is None or self._owner != os.getpid():  # after a fork, replace the parent's guard and pipe
            self._process, self._owner = _start(), os.getpid()
            atexit.register(self.end)
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # the guard was killed: continue without it
            self._process.stdin.write(json.dumps(words) + "\n")
            self._process.stdin.flush()


def _start() -> subprocess.Popen[str]:
    # Start the guard in a separate session, so that Ctrl-C or a closed terminal does not end it. -I -S halve its start-up time.
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )


_GUARD = _Guard()


@contextlib.contextmanager
def process_group(pid: int) -> Iterator[None]:
    """If this process is killed inside the block, the guard kills the process group ``pid``."""
    key = _GUARD.hold("group", pid)
    try:
        yield
    finally:
        _GUARD.free(key)


@contextlib.contextmanager
def temporary_folder(prefix: str, parent: Path | None = None) -> Iterator[Path]:
    """Make a new folder, and remove it at the end of the block. If this process is killed earlier, the guard removes the
    folder."""
    folder = (parent or Path(tempfile.gettempdir())) / (prefix + secrets.token_hex(8))
    key = _GUARD.hold("folder", str(folder))  # register the folder before it exists: a kill may come at any moment
    try:
        folder.mkdir(mode=0o700)
        yield folder
    finally:
        for _ in range(_REMOVALS):
            shutil.rmtree(folder, ignore_errors=True)
            if not folder.exists():
                break
        _GUARD.free(key)


def end() -> None:
    """End the guard, because another program replaces this process. The guard then removes everything that is still listed."""
    _GUARD.end()


def run_if_killed(argv: Sequence[str]) -> None:
    """Let the guard run the command ``argv`` if this process is killed. If this process ends normally, nothing is run."""
    _GUARD.hold("command", list(argv))
