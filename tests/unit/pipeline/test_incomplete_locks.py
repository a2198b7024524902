"""A lock without any file of a framework is refused before a build begins. The error names complete environments."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import verify_locks

from envbuild.errors import InvalidInputError
from envbuild.lock import lock_file
from envbuild.model.lock import Lock
from envbuild.pipeline import building, incomplete_locks
from envbuild.pipeline.stored_locks import Locked
from envbuild.pipeline.tools import Tools
from envbuild.workspace import Workspace

WHOLE = verify_locks.lock()
(FRAMEWORK,) = WHOLE.environment.frameworks


def lacking(lock: Lock) -> Lock:
    return replace(lock, prefixes=tuple(replace(prefix, frameworks=(), artifacts=()) for prefix in lock.prefixes))


def version(text: str, *, cuda: str | None) -> Lock:
    framework = replace(FRAMEWORK, version=text, index="https://wheels.example/cu90")
    name = f"{framework.name}-{text}-{'cuda' + cuda if cuda else 'cpu'}"
    return replace(WHOLE, environment=replace(WHOLE.environment, name=name, frameworks=(framework,), cuda=cuda))


@pytest.fixture
def tools(tmp_path: Path) -> Tools:
    tools = Tools(Workspace(root=tmp_path, output=tmp_path / "images", home=tmp_path / "home"))
    held = [version(text, cuda="9.0") for text in ("1.4.1", "1.0.1", "0.3.1")]
    held += [version("0.4.1", cuda=None), lacking(version("0.4.0", cuda="9.0")), lacking(version("0.4.1", cuda="9.0"))]
    for lock in held:
        lock_file.write(tools.workspace.written_lock(lock.environment.name), lock)
    broken = tools.workspace.written_lock("broken")
    broken.parent.mkdir()
    broken.write_text("{")
    return tools


def test_a_lock_that_pins_every_framework_is_not_refused(tools):
    incomplete_locks.require_complete(tools, WHOLE)


def test_the_refusal_names_what_lacks_where_it_was_looked_for_and_both_ways_on(tools):
    lock = lacking(version("0.4.1", cuda="9.0"))
    with pytest.raises(InvalidInputError) as caught:
        incomplete_locks.require_complete(tools, lock)
    error = caught.value
    assert (error.code, error.exit_code) == ("lock-incomplete", 5)
    (problem,) = error.problems
    assert f"{FRAMEWORK.package} 0.4.1" in problem.message and "https://wheels.example/cu90" in problem.message
    assert f"`envbuild lock {lock.environment.name}`" in error.hint and "wheels.example" in error.hint
    assert [each.name.split("-")[-2] for each in error.alternatives] == ["0.3.1", "1.0.1", "1.4.1"]
    json.dumps(error.to_json())


def test_nothing_is_built_of_it(tools):
    lock = lacking(version("0.4.1", cuda="9.0"))
    tools.__dict__["engine"] = None  # any use of the engine would fail
    held = Locked(lock=lock, digest=lock_file.digest(lock), path=Path(), kept=True)
    with pytest.raises(InvalidInputError) as caught:
        building.build_environment(tools, held, {})
    assert caught.value.code == "lock-incomplete"
