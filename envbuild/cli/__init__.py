"""The command line: one module per verb. A module parses the options, calls the library, prints, and returns an exit code."""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import sys
import threading
from collections.abc import Sequence
from typing import NoReturn


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run the ``envbuild`` command with ``argv`` (default: this process's arguments) and end the process with the exit code of
    the command."""
    # A command makes thousands of objects and keeps them until it ends, so frequent garbage collection would only take time.
    gc.set_threshold(50_000)
    _open_standard_streams()
    exit_code = [1]
    if argv is None:  # a caller that passes arguments, for example a test, needs its process afterwards
        atexit.register(_end_despite_threads, exit_code)  # registered first, so it runs after all other exit handlers
    from envbuild.cli import frame

    exit_code[0] = frame.run(sys.argv[1:] if argv is None else [*argv])  # not list(argv): in this package, `list` is a module
    gc.freeze()  # skip the last garbage collection: it took a fifth of the time of a short command
    sys.exit(exit_code[0])


def _end_despite_threads(exit_code: Sequence[int]) -> None:
    """End the process at once if a thread still waits for a server, for example after Ctrl-C.

    A normal exit of Python clears OpenSSL's memory while the thread still uses this memory. The process could then die of
    SIGSEGV (https://github.com/openssl/openssl/issues/6214).
    """
    if any(thread.daemon and thread is not threading.current_thread() for thread in threading.enumerate()):
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(exit_code[0])


def _open_standard_streams() -> None:
    """Open the standard streams that the caller closed. Some daemons close them, and ``>&-`` in a shell does, too.

    If a stream is closed, Python sets ``sys.stdin``, ``sys.stdout`` or ``sys.stderr`` to None. The next file that is opened
    would get the number (file descriptor) of the closed stream.
    """
    if None not in (sys.stdin, sys.stdout, sys.stderr):
        return
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "w" if number else "r", encoding="utf-8", closefd=False))  # noqa: SIM115
