"""A plan names each environment once, so a lock must be in the folder with the name of its environment."""

from __future__ import annotations

from pathlib import Path

import pytest
import render_locks

from envbuild.errors import InvalidInputError
from envbuild.lock import lock_file
from envbuild.pipeline import plan, rendering
from envbuild.pipeline.batch import Job
from envbuild.pipeline.tools import Tools
from envbuild.workspace import Workspace

LOCK = render_locks.cpu()
NAME = LOCK.environment.name


@pytest.fixture
def tools(tmp_path: Path) -> Tools:
    return Tools(Workspace(root=tmp_path, output=tmp_path / "images", home=tmp_path / "home"))


def put(tools: Tools, folder: str) -> Path:
    path = tools.workspace.environment(folder) / "lock.json"
    path.parent.mkdir(parents=True)
    lock_file.write(path, LOCK)
    return path


def test_a_lock_in_a_folder_with_another_name_is_refused(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendering, "render_text", lambda *_: pytest.fail("nothing is rendered"))
    names = ["renamed", "copied"]
    paths = [put(tools, name) for name in names]
    with pytest.raises(InvalidInputError, match="2 locks are in a folder with another name") as caught:
        plan.candidates(tools, [Job(name=name, request=name) for name in names])
    assert caught.value.code == "misplaced-lock"
    assert [(problem.where, problem.message) for problem in caught.value.problems] == [
        (str(path), f"the folder is named {path.parent.name}, but the environment is {NAME}") for path in paths
    ]


def test_a_copy_is_refused_even_for_another_device(tools: Tools) -> None:
    put(tools, "copied")
    with pytest.raises(InvalidInputError, match="1 lock is in a folder with another name"):
        plan.candidates(tools, [Job(name="copied", request="copied")], only="gpu")


def test_a_lock_in_its_own_folder_is_accepted(tools: Tools) -> None:
    put(tools, NAME)
    assert plan.candidates(tools, [Job(name=NAME, request=NAME)], only="gpu") == ([], [])
