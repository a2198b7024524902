"""Engines that are not a local Docker daemon: Podman's service, and Docker over ssh."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from engine_toy import environment

from envbuild.engine import bases
from envbuild.engine.choice import connect
from envbuild.engine.client import Engine
from envbuild.errors import EngineError
from envbuild.model.progress import ignore_progress
from envbuild.workspace import Workspace

pytestmark = pytest.mark.engine


def test_podman_is_named_podman_runs_what_it_holds_and_says_that_it_cannot_build(
    podman: str, workspace: Workspace, tmp_path: Path
) -> None:
    engine = connect(workspace, {"DOCKER_HOST": podman})
    assert engine.info.product == "Podman" and engine.info.name.startswith("Podman ")
    pinned = bases.pin(environment(), engine, workspace, ignore_progress)
    base = bases.provide(pinned, environment(), engine, workspace, ignore_progress)  # type: ignore[arg-type]
    done = engine.run(base.reference, ["sh", "-c", "echo hi; echo x > /tmp/out; exit 3"], network="none", collect=["/tmp/out"])
    assert (done.code, done.output, done.files) == (3, "hi\n", {"/tmp/out": b"x\n"})
    for number in range(3):  # a line that is printed at once must be neither lost nor repeated
        assert engine.run(base.reference, ["echo", str(number)], network="none").output == f"{number}\n"
    assert "/etc/debian_version" in {entry.path for entry in engine.layer_files(base.reference)}, "a search sees its layers"
    (tmp_path / "Dockerfile").write_text(f"FROM {base.reference}\nRUN true\n")
    with pytest.raises(EngineError, match=r"Podman at .* cannot build") as caught:
        engine.build(tmp_path, tag="t:1")
    assert caught.value.code == "no-buildkit" and "engine up" in (caught.value.hint or "")
    argv = [sys.executable, "-m", "envbuild", "engine", "status"]
    environ = {**os.environ, "DOCKER_HOST": podman, "ENVBUILD_HOME": str(tmp_path)}
    told = subprocess.run(argv, env=environ, capture_output=True, text=True, check=True).stdout
    assert "Podman" in told.splitlines()[0] and "cannot build" in told


# A stand-in for `ssh OPTIONS HOST COMMAND` that runs the command on this machine.
SSH = """#!/bin/sh
for last; do :; done
exec env DOCKER_HOST={endpoint} sh -c "$last"
"""


def test_an_engine_by_ssh_is_used_through_the_ssh_program(
    engine: Engine, debian12: bases.RealisedBase, workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("paramiko", reason="engines by ssh need it; envbuild[ssh]")
    (tmp_path / "ssh").write_text(SSH.format(endpoint=engine.endpoint))
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    there = connect(workspace, {"DOCKER_HOST": "ssh://somebody@host.example"})
    assert there.info.data_root == engine.info.data_root
    assert there.run(debian12.reference, ["echo", "hi"], network="none").output == "hi\n"


@pytest.mark.parametrize("installed", [True, False])
def test_an_engine_by_ssh_that_is_not_there_says_what_to_do(installed: bool, workspace: Workspace, tmp_path: Path) -> None:
    if installed:
        pytest.importorskip("paramiko", reason="engines by ssh need it; envbuild[ssh]")
    else:
        (tmp_path / "paramiko.py").write_text("raise ImportError('No module named paramiko')\n")
    argv = [sys.executable, "-m", "envbuild", "engine", "status", "--json"]
    environ = {**os.environ, "DOCKER_HOST": "ssh://somebody@127.0.0.1:1", "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 6
    error = json.loads(done.stdout)["error"]
    assert ("ssh cannot connect" if installed else "envbuild[ssh]") in error["message"] + error["hint"]
