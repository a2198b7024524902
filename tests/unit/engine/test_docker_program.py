"""Which docker program is used to build."""

from __future__ import annotations

import os

from envbuild.engine import docker_program


def test_candidates_follow_path_and_count_each_file_once(tmp_path):
    for name in ("one", "two", "three"):
        (tmp_path / name).mkdir()
    for name in ("two", "three"):
        (tmp_path / name / "docker").write_text(f"#!/bin/sh\n# {name}\n")
        (tmp_path / name / "docker").chmod(0o755)
    (tmp_path / "one" / "docker").symlink_to(tmp_path / "two" / "docker")
    path = os.pathsep.join(str(tmp_path / name) for name in ("one", "two", "three"))
    found = [p for p in docker_program.candidates({"PATH": path}) if p.startswith(str(tmp_path))]
    assert found == [str(tmp_path / "one" / "docker"), str(tmp_path / "three" / "docker")]


def test_a_named_program_is_the_only_candidate(tmp_path):
    (tmp_path / "mine").write_text("#!/bin/sh\n")
    (tmp_path / "mine").chmod(0o755)
    assert docker_program.candidates({"ENVBUILD_DOCKER": str(tmp_path / "mine"), "PATH": "/usr/bin"}) == [
        str(tmp_path / "mine")
    ]
    assert docker_program.candidates({"ENVBUILD_DOCKER": str(tmp_path / "absent"), "PATH": "/usr/bin"}) == []


def test_no_program_means_the_classic_builder():
    assert docker_program.choose("unix:///nowhere", []).builder == "classic"


def test_buildx_builds_in_the_engine_itself():
    argv = docker_program.DockerCli(path="/d", builder="buildx", version="0.13").build_argv()
    assert argv[:3] == ["/d", "buildx", "build"]
    assert "--builder=default" in argv
    assert "--load" in argv
    assert docker_program.DockerCli(path="/d", builder="docker-buildkit", version="20").build_argv() == ["/d", "build"]
