"""The base provider conda: the rendered step that unpacks CUDA, with toy files and a stand-in for micromamba.

Tests cannot reach the hosts of the real packages. The rendered step runs unchanged, below another root folder.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tarfile
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from envbuild import recipes
from envbuild import workspace as workspaces
from envbuild.model.environment import Base, RemoteFile
from envbuild.model.lock import Lock
from envbuild.render import render

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
import render_locks as locks

CHANNEL = "https://conda.anaconda.org/conda-forge/linux-64"
INSTALLER = "https://github.com/mamba-org/micromamba-releases/releases/download/1/micromamba-linux-64"
# It unpacks each package below the prefix and writes the same record as conda's own programs.
STAND_IN = """#!/bin/sh
set -eu
test "$1 $2 $3 $4 $5" = 'create --yes --offline --no-rc --prefix'
mkdir -p "$6/conda-meta" "$MAMBA_ROOT_PREFIX/pkgs"
sed 1d "$8" | while read -r file; do tar -xf "${file#file://}" -C "$6"; echo "$file" > "$6/conda-meta/history"; done
"""


@dataclass(frozen=True, kw_only=True)
class Mirror:
    """A folder that stands in for both hosts, and the lock whose files are in it."""

    folder: Path
    lock: Lock


@pytest.fixture
def mirror(tmp_path: Path) -> Mirror:
    folder, kept = tmp_path / "mirror", []
    for package, file in (("cudatoolkit-9.0", "libcudart.so.9.0"), ("cudnn-7.4.2", "libcudnn.so.7")):
        (tmp_path / "lib").mkdir(exist_ok=True)
        (tmp_path / "lib" / file).write_text(file)
        place = folder / "conda-forge" / "linux-64" / f"{package}.tar.bz2"
        place.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(place, "w:bz2") as archive:
            archive.add(tmp_path / "lib" / file, f"lib/{file}")
        kept.append(RemoteFile(url=f"{CHANNEL}/{place.name}", sha256=hashlib.sha256(place.read_bytes()).hexdigest()))
    program = folder / INSTALLER.removeprefix("https://github.com/")
    program.parent.mkdir(parents=True)
    program.write_text(STAND_IN)
    installer = RemoteFile(url=INSTALLER, sha256=hashlib.sha256(STAND_IN.encode()).hexdigest())
    plain = locks.gpu()
    base = Base(
        provider="conda", image="toyos:4", is_default=False, repositories=(), packages=(), other_providers=(),
        files=tuple(kept), installer=installer,
    )  # fmt: skip
    return Mirror(folder=folder, lock=replace(plain, environment=replace(plain.environment, base=base)))


def run_step(mirror: Mirror, root: Path) -> subprocess.CompletedProcess[str]:
    """Run the step of the stage ``cuda-files`` with the functions of step.sh; it writes only to folders below ``root``."""
    repository = Path(__file__).parents[2]
    found = recipes.templates(workspaces.find(str(repository)))
    text = render(mirror.lock, locks.RECIPES, {**found, "recipes/alpha/install.j2": ""})["Dockerfile"]
    stage = next(part for part in re.split(r"(?m)^(?=FROM )", text) if " AS cuda-files" in part.splitlines()[0])
    step = stage.split("\nRUN ")[-1].split("\n\n")[0]
    lines = [line.removesuffix("\\") for line in step.splitlines() if "--mount=" not in line]
    functions = (repository / "images" / "partials" / "step.sh").read_text().partition('\nmkdir -p "${scratch}"')[0]
    script = "\n".join([functions, *lines])
    script = re.sub(r"(?<![\w/])/(conda|usr/local/cuda-9.0|tmp|dev/shm/envbuild)(?=[/ ;])", rf"{root}/\1", script)
    for folder in ("tmp", "dev/shm/envbuild"):
        (root / folder).mkdir(parents=True)
    variables = {"CONDA_CHANNEL_ALIAS": mirror.folder.as_uri(), "ENVBUILD_GITHUB_MIRROR": mirror.folder.as_uri()}
    return subprocess.run(
        ["/bin/bash", "-o", "pipefail", "-c", script],
        env={"PATH": "/usr/bin:/bin", **variables}, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


def test_cuda_is_unpacked_from_pinned_files_and_nothing_else_is_left(mirror: Mirror, tmp_path: Path) -> None:
    root = tmp_path / "root"
    done = run_step(mirror, root)
    assert done.returncode == 0, done.stderr
    cuda = root / "usr/local/cuda-9.0"
    assert sorted(str(path.relative_to(cuda)) for path in cuda.rglob("*")) == [
        "lib",
        "lib/libcudart.so.9.0",
        "lib/libcudnn.so.7",
        "lib64",
    ]
    assert (cuda / "lib64" / "libcudnn.so.7").read_text() == "libcudnn.so.7"
    assert not (root / "conda").exists()


def test_a_package_that_is_not_the_locked_one_stops_the_build(mirror: Mirror, tmp_path: Path) -> None:
    package = mirror.folder / "conda-forge" / "linux-64" / "cudnn-7.4.2.tar.bz2"
    package.write_bytes(package.read_bytes() + b"spoilt")
    done = run_step(mirror, tmp_path / "root")
    assert done.returncode != 0
    assert "cudnn-7.4.2.tar.bz2: FAILED" in done.stdout
    assert not (tmp_path / "root/usr/local/cuda-9.0").exists()
