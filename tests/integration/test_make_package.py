"""The wheel contains facts, recipes and templates: an installed package plans the same environments as a checkout."""

from __future__ import annotations

import json
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
    """A folder with the contents of the wheel, as pip would install it."""
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
    done = run(installed, "lock", "tf-2.21-cpu", "-q", "--relock")  # --relock, because the package possibly contains this lock
    assert done.returncode == 0, done.stderr
    before = {path for path in (installed / "site").rglob("*") if "__pycache__" not in path.parts}
    done = run(installed, "render", "tf-2.21-cpu")
    assert done.returncode == 0, done.stderr
    (dockerfile,) = installed.glob("tf-2.21.0-cpu-*/Dockerfile")  # in the working folder
    assert "FROM" in dockerfile.read_text() and (dockerfile.parent / "lock.json").is_file()
    assert {path for path in (installed / "site").rglob("*") if "__pycache__" not in path.parts} == before
    (dockerfile.parent / "notes.txt").write_text("mine")
    assert "(kept)" in run(installed, "render", "tf-2.21-cpu").stdout
    assert (dockerfile.parent / "notes.txt").read_text() == "mine"
    done = run(installed, "render", "--all", "--check")
    assert done.returncode == 0, done.stderr


def test_a_lock_of_the_users_leaves_the_packages_evidence_alone(installed):
    """The package's proofs belong to its own lock.

    Another lock of the user neither makes a check fail nor changes files of the package.
    """
    shipped = installed / "site/envbuild/_data/images"
    evidence = next(path for path in sorted((shipped / "evidence").glob("*.json")) if json.loads(path.read_text())["proofs"])
    proofs = evidence.read_bytes()
    theirs = installed / "home/images/environments" / evidence.stem / "lock.json"
    lock = json.loads((shipped / "environments" / evidence.stem / "lock.json").read_text())
    lock["environment"]["frameworks"][0]["released"] = "2001-01-01"
    theirs.parent.mkdir(parents=True)
    theirs.write_text(json.dumps(lock))
    done = run(installed, "evidence", evidence.stem, "--prune", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["environments"][0]["stale"], "the user's lock was not taken"
    assert evidence.read_bytes() == proofs
    theirs.unlink()
    done = run(installed, "evidence", evidence.stem, "--check")
    assert done.returncode == 2 and "has no repository" in done.stderr


def test_the_guest_and_its_adapters_are_in_the_wheel(installed):
    package = installed / "site/envbuild"
    assert (package / "smoke/__main__.py").is_file()
    assert len(list((package / "_data/images/recipes").glob("*/smoke.py"))) >= 3
    assert {path.name for path in (package / "schemas").glob("*.json")} >= {"smoke-report.json", "lock.json", "refusal.json"}
