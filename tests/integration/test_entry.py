"""The start of an image: the message of its entry point about a mounted work folder, and the environment variables."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import smoke_toy
from smoke_toy import Toy

from envbuild.engine.client import Engine
from envbuild.engine.model import Mount
from envbuild.workspace import Workspace

pytestmark = [pytest.mark.engine, pytest.mark.network]


@pytest.fixture(scope="module")
def toy(engine: Engine, workspace: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Toy]:
    made = smoke_toy.make(engine, workspace, tmp_path_factory.mktemp("entry"))
    yield made
    smoke_toy.remove(engine, made)


@pytest.fixture
def roots(tmp_path: Path) -> Path:
    """A folder that root owns. The tests with an engine run as root."""
    folder = tmp_path / "of-root"
    folder.mkdir()
    folder.chmod(0o755)
    os.chown(folder, 0, 0)
    return folder


def test_a_folder_of_root_is_named_with_the_option_that_helps_and_the_command_runs_all_the_same(
    engine: Engine, toy: Toy, roots: Path
) -> None:
    mounted = (Mount(source=str(roots), target="/workspace", read_only=False),)
    result = engine.run(toy.tag, ["sh", "-c", "echo ran; exit 7"], mounts=mounted)
    assert (result.code, "ran" in result.output) == (7, True)
    lines = [line for line in result.output.splitlines() if line.startswith("envbuild:")]
    assert lines == [
        "envbuild: user 1000 cannot write to /workspace, which belongs to user 0: add '--user 0:0' to the command that "
        "starts the container, or give the folder to user 1000."
    ]
    helped = engine.run(toy.tag, ["touch", "/workspace/made"], mounts=mounted, user="0:0")
    assert (helped.code, helped.output) == (0, "")
    assert (roots / "made").exists()


def test_folders_that_are_meant_so_are_not_spoken_of(engine: Engine, toy: Toy, roots: Path) -> None:
    read_only = (Mount(source=str(roots), target="/workspace", read_only=True),)
    assert engine.run(toy.tag, ["true"], mounts=read_only).output == ""
    assert engine.run(toy.tag, ["true"]).output == ""
    elsewhere = (Mount(source=str(roots), target="/data", read_only=False),)
    assert engine.run(toy.tag, ["true"], mounts=elsewhere).output == ""


def test_a_report_that_cannot_be_written_is_refused_before_the_test_begins(engine: Engine, toy: Toy, roots: Path) -> None:
    mounted = (Mount(source=str(roots), target="/reports", read_only=False),)
    result = engine.run(toy.tag, ["envbuild-smoke", "--json", "/reports/report.json"], mounts=mounted)
    assert result.code == 2
    assert "user 1000 cannot write to /reports, which belongs to user 0. Add '--user 0:0'" in result.output


def test_plots_go_to_files_unless_the_user_says_otherwise(engine: Engine, toy: Toy) -> None:
    assert engine.run(toy.tag, ["printenv", "MPLBACKEND"]).output.strip() == "Agg"
    assert engine.run(toy.tag, ["printenv", "MPLBACKEND"], env={"MPLBACKEND": "svg"}).output.strip() == "svg"


@pytest.mark.parametrize(("given", "found"), [("Agg", "none"), ("svg", "svg"), (None, "none")])
def test_notebooks_keep_their_own_way_of_showing_plots(tmp_path: Path, given: str | None, found: str) -> None:
    """IPython's kernel shows plots in the notebook only if MPLBACKEND is not set."""
    program = tmp_path / "jupyter"
    program.write_text('#!/bin/sh\necho "${MPLBACKEND:-none}"\n')
    program.chmod(0o755)
    script = Path(__file__).parents[2] / "images" / "services" / "jupyter.sh"
    variables = {"PATH": f"{tmp_path}:/usr/bin:/bin"} | ({} if given is None else {"MPLBACKEND": given})
    told = subprocess.run(["/bin/sh", str(script)], env=variables, capture_output=True, text=True, check=True)
    assert told.stdout.strip() == found
