"""Docker programs that do not answer: stand-ins for an engine that is too busy to build."""

from __future__ import annotations

import pytest

from envbuild.engine import docker_program
from envbuild.errors import EngineError


def test_an_engine_that_does_not_finish_a_trial_build_is_busy(tmp_path):
    """An engine that removes old builds answers, but builds nothing until it has removed them."""
    program = tmp_path / "docker"
    program.write_text('#!/bin/sh\n[ "$1 $2" = "buildx version" ] && echo "buildx v0.13" && exit\nexec sleep 60\n')
    program.chmod(0o755)
    with pytest.raises(EngineError, match=r"at unix:///busy did not finish an empty build within 1 s") as raised:
        docker_program.choose("unix:///busy", [str(program)], patience_s=1.0)
    assert raised.value.code == "engine-busy"


def test_a_program_that_works_is_chosen_though_another_does_not_answer(tmp_path):
    for name, text in (("late", "exec sleep 60"), ("good", 'echo "buildx v0.13"')):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    found = docker_program.choose("unix:///x", [str(tmp_path / "late"), str(tmp_path / "good")], patience_s=2.0)
    assert (found.path, found.builder, found.version) == (str(tmp_path / "good"), "buildx", "v0.13")
