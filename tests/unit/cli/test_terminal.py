"""Text from strangers is shown, but its control sequences never reach the terminal."""

from __future__ import annotations

import json
import re

import pytest

from envbuild.cli import session as sessions
from envbuild.cli.progress_display import display
from envbuild.cli.session import Session, describe
from envbuild.cli.terminal import plain, plain_json
from envbuild.errors import BuildError, Conflict, Problem
from envbuild.model.progress import Progress

EVIL = (
    "\x1b[2J\x1b[H",  # clear the screen
    "\x1b]0;title\x07",
    "\x1b]52;c;cm0gLXJmIC8=\x07",  # write into the clipboard
    "\x1b]8;;http://evil.example\x1b\\\\click\x1b]8;;\x1b\\\\",
    "\x1bP+q544e\x1b\\\\",
    "\x9b31m",
    "\x9d0;x\x9c",
    "\x1bc",  # reset
    "\x1b(0",
    "\x1b\x1b[0m[31m",  # removing one sequence leaves another
    "\x1b]0;never ended",
    "\x07\x08\x0b\x0c\x0e",
    "a\rb",
    "\u202egnp.exe",
    "\u2066x\u2069",
    "\u200b\u200e\ufeff\xad",
    "\u2028\u2029",
    "\x85",
    "\ud800",
    "\U000e0041",
    "\0",
)
OBEYED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff\U000e0000-\U000e007f]"
)


@pytest.mark.parametrize("evil", EVIL, ids=ascii)
def test_nothing_that_a_terminal_obeys_is_left(evil):
    assert not OBEYED.search(plain(f"a{evil}b"))
    assert plain(f"a{evil}b").startswith("a")
    assert plain(f"a{evil}b").endswith("b") or "ended" in evil
    assert json.loads(plain_json(json.dumps(evil, ensure_ascii=False))) == evil
    assert not OBEYED.search(plain_json(json.dumps(evil, ensure_ascii=False)))


def test_what_people_write_stays():
    text = "näh 日本語 🚀 a\tb\nc — “x” é"
    assert plain(text) == text
    assert plain("\x1b[32mSUCCESS\x1b[0m done\r\n") == "SUCCESS done\n"


@pytest.mark.parametrize("evil", EVIL, ids=ascii)
@pytest.mark.parametrize("kind", ["plain", "rich", "none"])
def test_no_way_out_of_the_program_lets_it_through(evil, kind, capsys, monkeypatch):
    monkeypatch.setattr("envbuild.cli.progress_display.PATIENCE_S", 0.0)
    for verbose in (0, 1):
        for as_json in (False, True):
            session = Session(progress=kind, verbose=verbose, json=as_json)
            with display(session) as shown:
                shown.news(Progress(stage="lock", message=f"reading {evil}"))
                shown.news(Progress(stage="build", message=f"log {evil}", log=True))
                shown.line(f"note {evil}")
            session.out(f"result {evil}")
            session.err(f"note {evil}")
            session.raw(f"report {evil}\n")
            session.document({"name": evil})
            problems = [Problem(where=evil, line=1, message=evil)]
            conflicts = [Conflict(row=evil, reason=evil, source=evil)]
            error = BuildError(evil, hint=evil, details=[evil], problems=problems, conflicts=conflicts)
            session.failure(describe(error))
            session.document(sessions.refusal(error))
    out, err = capsys.readouterr()
    assert "result" in out
    # rich uses control sequences for its progress bars; they contain no text of strangers
    text = out + (err if kind != "rich" else re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", err).replace("\r", ""))
    assert not OBEYED.search(text), ascii(OBEYED.search(text))
