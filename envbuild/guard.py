"""Clears up after this process if it is killed outright: process groups, folders, containers.

``kill -9`` runs no handler, so another process must do it: the guard, one small Python program, started with the first thing
that needs it. It reads what to clear from a pipe. Only this process holds the other end, so the kernel closes it with this
process, however it ends. The guard then kills, removes and runs what is still on its list, and ends.
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

# Imports what it needs at its end, so that it takes as little time and memory as possible while nothing happens.
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
        os._exit(0)
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
    """The pipe to the guard; nothing is started before the first use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._owner = 0
        self._count = 0

    def hold(self, *what: object) -> str:
        """Put ``what`` on the list and return its key."""
        with self._lock:
            self._count += 1
            key = str(self._count)
            self._send(["hold", key, list(what)])
            return key

    def free(self, key: str) -> None:
        """Take one entry off the list."""
        with self._lock:
            self._send(["free", key, None])

    def end(self) -> None:
        """Let the guard end without doing anything: this process ends in order."""
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
        if self._process is None or self._owner != os.getpid():  # a fork does not inherit it: it would keep the pipe open
            self._process, self._owner = _start(), os.getpid()
            atexit.register(self.end)
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # the guard was killed: this process works without one
            self._process.stdin.write(json.dumps(words) + "\n")
            self._process.stdin.flush()


def _start() -> subprocess.Popen[str]:
    # A session of its own: Ctrl-C and a terminal that closes are no reason for it to end. -I -S: it starts in half the time.
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
    """The process group ``pid`` is killed if this process is killed while the block lasts."""
    key = _GUARD.hold("group", pid)
    try:
        yield
    finally:
        _GUARD.free(key)


@contextlib.contextmanager
def temporary_folder(prefix: str, parent: Path | None = None) -> Iterator[Path]:
    """A new folder, removed at the end of the block, and where this process is killed before."""
    folder = (parent or Path(tempfile.gettempdir())) / (prefix + secrets.token_hex(8))
    key = _GUARD.hold("folder", str(folder))  # before it exists: a kill may come at any moment
    try:
        folder.mkdir(mode=0o700)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        _GUARD.free(key)


def run_if_killed(argv: Sequence[str]) -> None:
    """Run ``argv`` once this process is killed; nothing if it ends in order."""
    _GUARD.hold("command", list(argv))
