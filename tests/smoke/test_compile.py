"""COMPILE: code that a framework compiles when a program runs. The adapter of these tests really runs a C++ compiler."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import FEW, INSIDE, Guest

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++ on this machine")
COMPILED = ("run", "--adapter", INSIDE / "compiled.py", "--phases", "compile")


@pytest.mark.parametrize("version", FEW)
def test_what_compiles_and_is_right_passes(guest_of: Callable[[str], Guest], tmp_path: Path, version: str) -> None:
    answer = guest_of(version).run(*COMPILED, "--counts", "1,2", folder=tmp_path)
    found = answer.check("COMPILE", 1)
    assert (answer.code, found["status"], found["message"]) == (
        0,
        "pass",
        "compiled, with the right result: a function in C++ (6.0)",
    ), answer.err
    assert answer.report is not None
    assert [check["n"] for check in answer.report["checks"] if check["id"] == "COMPILE"] == [1]


@pytest.mark.parametrize("version", FEW)
def test_without_a_compiler_it_fails_and_names_that(guest_of: Callable[[str], Guest], tmp_path: Path, version: str) -> None:
    guest = guest_of(version)
    answer = guest.run(*COMPILED, "--counts", "2", folder=tmp_path, env=guest.env(CXX="/nowhere/g++"))
    assert (answer.code, answer.failed()) == (1, {"COMPILE"}), answer.err
    assert "the image has no C++ compiler (/nowhere/g++)" in answer.check("COMPILE", 2)["message"]
    assert "the recipe installs it" in answer.check("COMPILE", 2)["next_step"]


def test_a_compiler_that_fails_is_told_by_its_first_line(guest: Guest, tmp_path: Path) -> None:
    broken = tmp_path / "c++"
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)
    answer = guest.run(*COMPILED, "--counts", "1", folder=tmp_path, env=guest.env(CXX=str(broken)))
    assert answer.failed() == {"COMPILE"}
    assert "returned non-zero exit status 3" in answer.check("COMPILE", 1)["message"] + str(
        answer.check("COMPILE", 1)["detail"]
    )


def test_a_wrong_answer_fails(guest: Guest, tmp_path: Path) -> None:
    answer = guest.run(*COMPILED, "--counts", "1", "--option", "wrong=1", folder=tmp_path)
    assert (answer.failed(), answer.check("COMPILE", 1)["message"]) == (
        {"COMPILE"},
        "a function in C++ gives a wrong result: 6.0",
    )


def test_an_image_without_a_compiler_on_purpose_is_skipped_with_that_reason(guest: Guest, tmp_path: Path) -> None:
    answer = guest.run(*COMPILED, "--counts", "1", "--option", "compile=no", folder=tmp_path, env=guest.env(CXX="/nowhere/g++"))
    found = answer.check("COMPILE")
    assert (found["status"], answer.failed()) == ("skip", set())
    assert "made without" in found["message"] and 'options: {compile: "no"}' in found["message"]


def test_what_has_no_compiler_here_is_skipped_with_its_reason(guest: Guest, tmp_path: Path) -> None:
    answer = guest.run(*COMPILED, "--counts", "1", "--option", "none=it came later", folder=tmp_path)
    assert (answer.check("COMPILE", 1)["status"], answer.check("COMPILE", 1)["message"]) == (
        "skip",
        "does not apply: it came later",
    )


def test_an_adapter_that_compiles_nothing_has_no_such_check(guest: Guest, tmp_path: Path) -> None:
    answer = guest.run("run", "--adapter", "numpy", "--phases", "coll,compile", "--counts", "1", folder=tmp_path)
    assert answer.report is not None
    assert "COMPILE" not in {check["id"] for check in answer.report["checks"]}


def test_a_compiler_that_takes_long_is_no_hang(guest: Guest, tmp_path: Path) -> None:
    answer = guest.run(*COMPILED, "--counts", "2", "--stall", "3", "--option", "slow=7", folder=tmp_path)
    assert (answer.code, answer.check("COMPILE", 2)["status"]) == (0, "pass"), answer.err
