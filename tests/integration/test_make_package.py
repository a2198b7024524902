"""The wheel carries facts, recipes and templates: what a checkout plans, an installed package plans too."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.network


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel's contents, as pip would put it into site-packages."""
    folder = tmp_path_factory.mktemp("package")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run(command, check=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder


def run(installed: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(installed / "site"), "ENVBUILD_HOME": str(installed / "home")}
    env.pop("ENVBUILD_ROOT", None)
    env["DOCKER_HOST"] = "unix:///nonexistent/docker.sock"
    return subprocess.run(
        [sys.executable, "-P", "-m", "envbuild", *words], capture_output=True, text=True, env=env, cwd=installed, check=False
    )


def test_planning_says_the_same_as_in_the_checkout(installed):
    from program import Program

    here = Program(root=ROOT, home=installed / "home2")
    for words in (["list", "--json"], ["resolve", "tf-1.12-cuda9", "--json"]):
        ours = run(installed, *words)
        assert ours.returncode == 0, ours.stderr
        theirs = here.run(*words).expect(0)
        if words[0] == "list":
            assert ours.stdout == theirs.out


def test_locks_go_to_the_users_own_folder_and_renderings_to_the_working_folder(installed):
    done = run(installed, "lock", "tf-2.21-cpu", "-q", "--relock")  # the package may carry a lock of it
    assert done.returncode == 0, done.stderr
    before = {path for path in (installed / "site").rglob("*") if "__pycache__" not in path.parts}
    done = run(installed, "render", "tf-2.21-cpu")
    assert done.returncode == 0, done.stderr
    (dockerfile,) = installed.glob("tf-2.21.0-cpu-*/Dockerfile")  # the working folder
    assert "FROM" in dockerfile.read_text() and (dockerfile.parent / "lock.json").is_file()
    assert {path for path in (installed / "site").rglob("*") if "__pycache__" not in path.parts} == before
    (dockerfile.parent / "notes.txt").write_text("mine")
    assert "(kept)" in run(installed, "render", "tf-2.21-cpu").stdout
    assert (dockerfile.parent / "notes.txt").read_text() == "mine"
    assert run(installed, "render", "--all", "--check").returncode == 0


def test_the_guest_and_its_adapters_are_in_the_wheel(installed):
    package = installed / "site/envbuild"
    assert (package / "smoke/__main__.py").is_file()
    assert len(list((package / "_data/images/recipes").glob("*/smoke.py"))) >= 3
    assert {path.name for path in (package / "schemas").glob("*.json")} >= {"smoke-report.json", "lock.json", "refusal.json"}
