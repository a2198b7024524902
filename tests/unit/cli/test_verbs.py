"""Command lines of envbuild in texts for the user have the options with which the user chose the checkout."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from envbuild import errors
from envbuild.cli import frame
from envbuild.cli.progress_display import Events
from envbuild.cli.session import Session
from envbuild.cli.verbs import with_options

WORDS = ("--root=/a b", "--policy=/p.yaml")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("To build it, run: envbuild build NAME", "To build it, run: envbuild '--root=/a b' --policy=/p.yaml build NAME"),
        ("`envbuild lock X --relock` makes one.", "`envbuild '--root=/a b' --policy=/p.yaml lock X --relock` makes one."),
        ("`a && envbuild make X`", "`a && envbuild '--root=/a b' --policy=/p.yaml make X`"),
        ("`envbuild run --help` shows the allowed form.", None),
        ("`envbuild matrix show --help` shows it.", None),
        ("`envbuild --root=/c lock X` makes one.", None),
        ("envbuild list writes this file.", None),
        ("the rule of the matrix: envbuild builds nothing for it", None),
        ("`/opt/envbuild lists`", None),
    ],
)
def test_only_command_lines_get_the_options(text, expected):
    assert with_options(text, WORDS) == (expected or text)
    assert with_options(with_options(text, WORDS), WORDS) == (expected or text), "a second time changes nothing"
    assert with_options(text, ()) == text


def refused(*argv: str) -> int:
    return frame.run([*argv, "plan", "--changed-since", "HEAD", "--times", __file__])


def test_the_hint_of_an_error_has_the_options_in_text_and_in_json(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "matrix.yaml").write_text("")
    code = refused("--root", ".", "--matrix", "own.yaml", "--policy", "p.yaml")
    assert code == errors.InvalidInputError.exit_code
    words = f"envbuild --root={tmp_path} --matrix={tmp_path}/own.yaml --policy={tmp_path}/p.yaml make --all --json"
    assert f"hint: `{words} > FILE` writes such a file." in capsys.readouterr().err
    refused("--json", "--root", str(tmp_path), "--matrix", "own.yaml", "--policy", "p.yaml")
    assert words in json.loads(capsys.readouterr().out)["error"]["hint"]


def test_the_text_of_a_file_is_for_another_machine_and_stays(tmp_path, capsys):
    (tmp_path / "matrix.yaml").write_text("")
    (tmp_path / "images").mkdir()
    shutil.copytree(Path(__file__).parents[3] / "images/pipelines", tmp_path / "images/pipelines")
    plain = ["ci", "github", "--to", "h.example/lab/dl"]
    assert frame.run([*plain, "--json", "--root", str(tmp_path)]) == 0
    text = json.loads(capsys.readouterr().out)["text"]
    assert "run: envbuild catalogue -o site" in text and str(tmp_path) not in text


def test_remarks_results_and_events_have_the_options(capsys):
    session = Session(root="/root", policy="/it's.yaml")
    words = """envbuild --root=/root '--policy=/it'"'"'s.yaml' lock X"""
    session.err("To lock it, run: envbuild lock X")
    session.out("To lock it, run: envbuild lock X")
    session.out("There, run: envbuild lock X", is_for_here=False)
    out, err = capsys.readouterr()
    assert err == f"To lock it, run: {words}\n"
    assert out == f"To lock it, run: {words}\nThere, run: envbuild lock X\n"
    Events(session).line("`envbuild lock X` locks it")
    assert json.loads(capsys.readouterr().err) == {"line": f"`{words}` locks it"}
