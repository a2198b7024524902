"""Every committed environment equals the rendering of its lock and passes the linters.

A rendering depends on nothing but the lock, the recipes and the templates.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from envbuild import recipes, workspace
from envbuild.lock.lock_file import read
from envbuild.render import render

ROOT = Path(__file__).parents[2]
WORKSPACE = workspace.find(str(ROOT))
ENVIRONMENTS = sorted(path for path in (ROOT / "images" / "environments").glob("*") if path.is_dir())
GOLDEN = sorted((ROOT / "tests" / "golden" / "render").glob("*/Dockerfile"))
DOCKERFILES = [*(path / "Dockerfile" for path in ENVIRONMENTS), *GOLDEN]


@pytest.mark.parametrize("folder", ENVIRONMENTS, ids=lambda path: path.name)
def test_committed_environment_is_what_its_lock_renders_to(folder: Path) -> None:
    lock = read(folder / "lock.json")
    assert lock.environment.name == folder.name
    made = render(lock, recipes.load(WORKSPACE), recipes.templates(WORKSPACE))
    on_disk = {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}
    del on_disk["lock.json"]
    assert sorted(made) == sorted(on_disk), "missing or orphan files: run envbuild render --all"
    assert made == on_disk, "differs: run envbuild render --all"


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.parent.name)
def test_dockerfile_lints_clean(dockerfile: Path) -> None:
    hadolint = Path(sys.executable).parent / "hadolint"
    command = str(hadolint) if hadolint.exists() else shutil.which("hadolint")
    assert command, "hadolint is not installed: pip install -e .[dev]"
    done = subprocess.run(
        [command, "--no-color", "--config", str(ROOT / ".hadolint.yaml"), str(dockerfile)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_exception_of_the_linter_says_why() -> None:
    lines = (ROOT / ".hadolint.yaml").read_text().splitlines()
    for number, line in enumerate(lines):
        if line.strip().startswith("- "):
            assert lines[number - 1].strip().startswith("#"), f"{line.strip()} has no reason"


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.parent.name)
def test_dockerfile_needs_no_newer_frontend(dockerfile: Path) -> None:
    text = dockerfile.read_text()
    assert not text.startswith("# syntax")
    for word in ("<<", "COPY --link", "COPY --chmod", "ADD "):
        assert word not in text


@pytest.mark.parametrize(("name", "lines"), [("tf-2.21.0-cpu-py311-debian12", 55), ("tf-1.12.0-cuda9.0-py35-ubuntu16.04", 110)])
def test_a_dockerfile_is_short_enough_to_be_read(name: str, lines: int) -> None:
    assert len((ROOT / "images" / "environments" / name / "Dockerfile").read_text().splitlines()) <= lines


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.parent.name)
def test_no_line_is_there_more_than_three_times(dockerfile: Path) -> None:
    """The command that installs a group of wheels is an exception: its lines differ only in the mounted file."""
    lines = [line for line in dockerfile.read_text().splitlines() if line and not line.startswith(("    pip-install ", "#"))]
    assert [line for line in set(lines) if lines.count(line) > 3] == []


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.parent.name)
def test_no_step_is_there_only_to_fail(dockerfile: Path) -> None:
    """A file that the lock lists as missing is named without a hash, so the installer refuses it. No step needs to fail on
    purpose.
    """
    for line in dockerfile.read_text().splitlines():
        assert not re.search(r"(;|&&)\s*(exit [1-9]|false)\s*$", line), line


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.parent.name)
def test_no_build_finds_the_tree_of_another(dockerfile: Path) -> None:
    """In a stack several sources are unpacked into the same folder, one after the other. Each step removes the previous source
    first.
    """
    lines = [line.strip() for line in dockerfile.read_text().splitlines()]
    for before, line in itertools.pairwise(lines):
        if line.startswith("tar -xf /mnt/source.tar -C /built"):
            assert before.startswith("rm -rf /built/source;")


_DIGEST = """
import hashlib, json, sys
sys.path.insert(0, sys.argv[1])
import render_locks
from envbuild import recipes, workspace
from envbuild.render import render
templates = recipes.templates(workspace.find(sys.argv[2]))
templates.update({"recipes/alpha/install.j2": "", "recipes/beta/install.j2": "", **render_locks.SCRIPTS})
made = {name: render(lock(), render_locks.RECIPES, templates) for name, lock in sorted(render_locks.ALL.items())}
print(hashlib.sha256(json.dumps(made, sort_keys=True).encode()).hexdigest())
"""


def test_rendering_depends_on_no_hash_seed_folder_or_variable(tmp_path: Path) -> None:
    answers = set()
    for seed, folder, zone in (("0", ROOT, "UTC"), ("4242", tmp_path, "Asia/Tokyo")):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "TZ": zone, "PYTHONPATH": str(ROOT), "HOME": str(folder)}
        done = subprocess.run(
            [sys.executable, "-c", _DIGEST, str(ROOT / "tests" / "unit"), str(ROOT)],
            cwd=folder, env=environment, capture_output=True, text=True, check=True,
        )  # fmt: skip
        answers.add(done.stdout.strip())
    golden = {
        path.name: {str(file.relative_to(path)): file.read_text() for file in sorted(path.rglob("*")) if file.is_file()}
        for path in sorted((ROOT / "tests" / "golden" / "render").iterdir())
    }
    assert answers == {hashlib.sha256(json.dumps(golden, sort_keys=True).encode()).hexdigest()}
