"""On a terminal: live progress, a typed Ctrl-C, and a screen that is restored at the end."""

from __future__ import annotations

import os
import pty
import time
from pathlib import Path

import pytest
from program import Program, fresh_root

pytestmark = pytest.mark.network


@pytest.fixture
def program(tmp_path: Path) -> Program:
    # No engine is needed, because locking alone takes long enough to show progress.
    return Program(
        root=fresh_root(tmp_path / "root"),
        home=tmp_path / "home",
        environment={"DOCKER_HOST": "unix:///nonexistent/docker.sock"},
    )


def on_a_terminal(
    program: Program, *words: str, env: dict[str, str] | None = None, typed: bytes = b"", when: str = ""
) -> tuple[int, str]:
    """Run a command on a pseudo terminal.

    As soon as ``when`` was shown, ``typed`` is typed. Returns the exit code and everything shown.
    """
    pid, screen = pty.fork()
    if pid == 0:
        os.execvpe(program.argv()[0], program.argv(*words), program.env({"TERM": "xterm", "COLUMNS": "120", **(env or {})}))
    shown = b""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        try:
            piece = os.read(screen, 65536)
        except OSError:  # the program has closed the terminal
            break
        if not piece:
            break
        shown += piece
        if typed and when.encode() in shown:
            os.write(screen, typed)
            typed = b""
    _, status = os.waitpid(pid, 0)
    os.close(screen)
    return os.waitstatus_to_exitcode(status), shown.decode(errors="replace")


HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"


def test_progress_moves_and_leaves_the_screen_clean(program):
    code, shown = on_a_terminal(program, "lock", "tf-2.21-cpu")
    assert code == 0
    assert "lock" in shown
    assert shown.count(HIDE) == shown.count(SHOW) == 1
    tail = shown[shown.rindex(SHOW) :]
    assert "files pinned by sha256" in tail
    assert "\x1b[3" in shown


def test_no_color_is_honoured(program):
    code, shown = on_a_terminal(program, "lock", "tf-2.21-cpu", env={"NO_COLOR": "1"})
    assert code == 0
    assert "\x1b[3" not in shown.replace(HIDE, "").replace(SHOW, "")


def test_ctrl_c_typed_ends_at_once_and_gives_the_cursor_back(program):
    began = time.monotonic()
    code, shown = on_a_terminal(program, "lock", "tf-2.21-cpu", typed=b"\x03", when="reading")
    assert code == 130
    assert shown.count("interrupted: ") == 1
    assert shown.count(HIDE) == shown.count(SHOW)
    assert "Traceback" not in shown
    assert time.monotonic() - began < 60
    assert not list((program.root / "images").rglob("lock.json"))


def test_dumb_terminals_get_lines(program):
    code, shown = on_a_terminal(program, "lock", "tf-2.21-cpu", env={"TERM": "dumb"})
    assert code == 0
    assert "[lock] " in shown
    assert "\x1b" not in shown
