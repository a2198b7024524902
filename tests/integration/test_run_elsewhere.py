"""`envbuild run` with Podman and Apptainer, which start the image for real.

A plain Debian with the tag and the build record of a locked environment stands in for its image.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from program import ROOT, Program, fresh_root

from envbuild import build, codec, files
from envbuild.engine import bases
from envbuild.engine.client import Engine
from envbuild.pipeline import plan
from envbuild.pipeline.batch import Job
from envbuild.pipeline.tools import Tools
from envbuild.workspace import Workspace

NAME = "opencv-5.0.0.93-cpu-py311-debian12"
SCRIPT = 'echo "$A" > made; id -u; pwd; exit 7'

pytestmark = [pytest.mark.prove, pytest.mark.engine]


@pytest.fixture
def built(tmp_path: Path, engine: Engine, debian12: bases.RealisedBase) -> Iterator[Program]:
    root, home = fresh_root(tmp_path / "root"), tmp_path / "home"
    shutil.copytree(ROOT / "images/environments" / NAME, root / "images/environments" / NAME)
    workspace = Workspace(root=root, output=root / "images", home=home)
    (each,), _ = plan.candidates(Tools(workspace), [Job(name=NAME, request=NAME)])
    record = build.BuildRecord(
        name=NAME, lock=each.locked.digest, inputs=each.inputs, image=debian12.image_id, tags=each.tags,
        base=build.BaseRecord(reference="b", image=debian12.image_id, how="pulled", digest="", notes=()),
        engine=engine.endpoint, built_at="2026-11-23T10:00:00+00:00", seconds=1.0, steps=2, cached=0, size=1, kept=False,
        builder="docker", rendering="c" * 64, guest="d" * 64,
    )  # fmt: skip
    files.write_atomic(workspace.build_record(NAME), codec.dumps(record))
    (tmp_path / "config.json").write_text("{}")  # Podman reads this file wherever DOCKER_CONFIG is set
    engine.tag(debian12.image_id, each.tags[2])
    yield Program(root=root, home=home, environment={"DOCKER_HOST": engine.endpoint, "DOCKER_CONFIG": str(tmp_path)})
    engine.remove_unused(each.tags[2])


@pytest.mark.judges("podman")
def test_podman_runs_it_and_loads_it_once(built, folder, podman_store):
    built.environment |= podman_store
    for is_first in (True, False):
        told = built.run("run", "--with", "podman", "--env", "A=b c", NAME, "sh", "-c", SCRIPT, cwd=folder)
        told.expect(7)
        assert told.out == f"{folder.stat().st_uid}\n/workspace\n"
        assert (folder / "made").read_text() == "b c\n" and (folder / "made").stat().st_uid == folder.stat().st_uid
        (folder / "made").unlink()
        if is_first:
            (built.home / "saved").rmdir()  # fails if the file for Podman is left
    assert not (built.home / "saved").exists()


@pytest.mark.judges("podman")
def test_podman_loads_another_image_with_the_same_name(built, folder, podman_store, engine, debian12):
    """The image in Podman is used only if it is the image of the last build."""
    built.environment |= podman_store
    empty = bytes(10240)  # two blocks of zeros, padded, end an archive
    argv = ["podman", "import", "--quiet", "-", "localhost/other"]
    other = subprocess.run(argv, input=empty, capture_output=True, env=built.env(), check=True)
    told = built.run("run", "--dry-run", "--json", "--with", "podman", NAME, cwd=folder).expect(0).document
    name = told["argv"][-1]
    subprocess.run(["podman", "tag", other.stdout.decode().strip(), name], env=built.env(), check=True)
    built.run("run", "--with", "podman", NAME, "true", cwd=folder).expect(0)
    shown = subprocess.run(
        ["podman", "image", "inspect", "--format", "{{.Id}}", name], env=built.env(), capture_output=True, text=True, check=True
    )
    assert shown.stdout.strip() == debian12.image_id.removeprefix("sha256:")


@pytest.mark.judges("apptainer")
def test_apptainer_runs_it(built, tmp_path):
    folder = tmp_path / "my work"
    folder.mkdir()
    # In a container, root lacks capabilities that Apptainer would ask for.
    built.environment |= {"APPTAINER_TMPDIR": str(tmp_path), "APPTAINER_CACHEDIR": str(tmp_path / "cache")}
    built.environment |= {"APPTAINER_NO_PRIVS": "1"}
    told = built.run("run", "--with", "apptainer", "--env", "A=b c", NAME, "sh", "-c", SCRIPT, cwd=folder).expect(7)
    assert told.out == f"{os.geteuid()}\n/workspace\n"
    assert (folder / "made").read_text() == "b c\n"
