"""A real image with two prefixes: it is entered, verified and trained; then faults are planted in one prefix."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import smoke_toy
from smoke_toy import Toy, derive

from envbuild import smoketest, verify
from envbuild.engine.client import Engine
from envbuild.smoketest import SmokeOptions
from envbuild.workspace import Workspace

pytestmark = [pytest.mark.engine, pytest.mark.network]

SHORT = ("--phases", "oracle", "--counts", "1")
SITE = "lib/python3.11/site-packages"


@pytest.fixture(scope="module")
def toy(engine: Engine, workspace: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Toy]:
    made = smoke_toy.make(engine, workspace, tmp_path_factory.mktemp("several"), smoke_toy.side_by_side)
    yield made
    smoke_toy.remove(engine, made)


def said(engine: Engine, toy: Toy, *argv: str) -> tuple[int, list[str]]:
    result = engine.run(toy.image, list(argv), network="none")
    return result.code, result.output.split()


def test_one_command_lists_the_prefixes_and_enters_each_with_its_own_variables(engine: Engine, toy: Toy) -> None:
    code, words = said(engine, toy, "envbuild-use")
    assert code == 0 and {"first", "second", "3.11"} <= set(words)
    show = ("sh", "-c", "python -c 'import sys; print(sys.prefix)'; echo ${PYTHONPATH-none}")
    assert said(engine, toy, *show) == (0, ["/opt/envs/first", "none"])  # the default when the image starts
    assert said(engine, toy, "envbuild-use", "first", *show) == (0, ["/opt/envs/first", "none"])
    assert said(engine, toy, "envbuild-use", "second", *show) == (0, ["/opt/envs/second", "/opt/other"])
    assert said(engine, toy, "envbuild-use", "third", "true")[0] == 2


def test_both_are_verified_and_trained(engine: Engine, toy: Toy, tmp_path: Path) -> None:
    report = verify.verify(engine, toy.lock, toy.image, base=toy.base)
    assert report.require() is report
    assert report.counts["distributions"] == 2
    outcome = smoketest.run(engine, toy.tag, toy.lock, SmokeOptions(counts=(), arguments=SHORT), tmp_path)
    assert (outcome.status, outcome.exit_code) == ("pass", 0), outcome.sentence
    assert [(part["framework"], part["prefix"], part["status"]) for part in outcome.report["parts"]] == [
        ("toy", "first", "pass"),
        ("other", "second", "pass"),
    ]


def test_a_fault_in_one_is_found_there_and_fails_the_whole(engine: Engine, toy: Toy, tmp_path: Path) -> None:
    file = f"/opt/envs/second/{SITE}/numpy/version.py"
    image = derive(engine, toy, tmp_path / "fault", f"RUN echo 'raise ImportError(\"broken here\")' >> {file}")
    report = verify.verify(engine, toy.lock, image, base=toy.base)
    assert {problem.where for problem in report.problems} == {file, "second: other", "/opt/envs/second: import numpy (numpy)"}
    outcome = smoketest.run(engine, image, toy.lock, SmokeOptions(counts=(), arguments=SHORT), tmp_path / "report")
    assert (outcome.status, outcome.exit_code) == ("error", 9)
    assert [part["status"] for part in outcome.report["parts"]] == ["pass", "error"]
    assert "other" in outcome.sentence
