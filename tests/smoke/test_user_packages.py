"""Packages that users install with pip are put above the locked packages, which stay unchanged.

The tests run with every Python and its real pip.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from render_locks import cpu

from envbuild import build_context, workspace
from envbuild.matrix import cache
from envbuild.model.lock import Lock

from .conftest import EVERY, FEW, PYTHONS, REPOSITORY

OVERLAY = REPOSITORY / "images" / "overlay"
WHEELS = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "envbuild" / "test-wheels"
NAME = "tf-1.0"  # the name in the lock
pytestmark = pytest.mark.network


@dataclass(frozen=True)
class Inside:
    """A prefix as in an image, in a folder of the test, with the user's added environment."""

    python: Path
    overlay: Path
    home: Path
    offered: Path
    name: str

    def run(self, *words: str, code: int = 0, **env: str) -> subprocess.CompletedProcess[str]:
        settings = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.offered), "PIP_CONFIG_FILE": os.devnull}
        settings |= {"HOME": str(self.home), "PATH": os.environ["PATH"], **env}
        done = subprocess.run([self.python, *words], env=settings, capture_output=True, text=True, check=False, cwd=self.home)
        assert done.returncode == code, done.stdout + done.stderr
        return done

    def version(self, module: str, *options: str, **env: str) -> str:
        return self.run(*options, "-c", f"import {module}; print({module}.VERSION)", **env).stdout.strip()


def fetched(project: str, version: str) -> Path:
    """The wheel of one release. It is kept between runs."""
    WHEELS.mkdir(parents=True, exist_ok=True)
    found = list(WHEELS.glob(f"{project}-{version}-*.whl"))
    if not found:
        words = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "--python-version", "3.99"]
        done = subprocess.run([*words, "-d", WHEELS, f"{project}=={version}"], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            words = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:"]
            done = subprocess.run([*words, "-d", WHEELS, f"{project}=={version}"], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            pytest.skip(f"{project} {version} cannot be downloaded: {done.stderr.strip()[-300:]}")
        found = list(WHEELS.glob(f"{project}-{version}-*.whl"))
    return found[0]


def offer(folder: Path, name: str, version: str, *needs: str) -> None:
    """Write a wheel with a module and a program that give its version."""
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": f"VERSION = {version!r}\ndef main():\n    print(VERSION)\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        + "".join(f"Requires-Dist: {need}\n" for need in needs),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py2-none-any\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[console_scripts]\nsay-{name} = {name}:main\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / f"{name}-{version}-py2.py3-none-any.whl", "w") as wheel:
        for path, text in files.items():
            wheel.writestr(path, text)


def virtual_environment(version: str, target: Path) -> None:
    python = PYTHONS[version]
    if version in ("2.7", "3.5"):
        words = [python, "-m", "virtualenv", "--no-download", "--no-pip", "--no-setuptools", "--no-wheel", target]
        env = {**os.environ, "PYTHONPATH": str(fetched("virtualenv", "16.7.12"))}
        subprocess.run(words, env=env, check=True, capture_output=True)
    else:
        subprocess.run([python, "-m", "venv", "--without-pip", target], check=True, capture_output=True)


def lock_for(version: str, path: Path) -> Lock:
    lock = cpu()
    prefix = lock.prefixes[0]
    base = replace(prefix.artifacts[0], name="base", version="1.0")
    held = replace(prefix, path=str(path), python=replace(prefix.python, version=version), artifacts=(base,))
    return replace(lock, prefixes=(held,))


def pip_for(version: str) -> Path:
    rows = cache.load(workspace.find(str(REPOSITORY))).build_tools
    row = next(row for row in rows if version in row.pythons)
    return fetched(row.name, row.version)


def make(version: str, folder: Path) -> Inside:
    """Do the same as a build, in `folder` instead of /opt."""
    prefix, overlay = folder / "opt" / "env", folder / "opt" / "envbuild" / "overlay"
    virtual_environment(version, prefix)
    lock = lock_for(version, prefix)
    shutil.copytree(OVERLAY, overlay)
    for path, content in build_context.pip_files(lock, lock.prefixes[0], pip_for(version), str(overlay)).items():
        target = overlay / lock.prefixes[0].name / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    told = {"prefixes": [{"name": each.name, "artifacts": [{"name": a.name, "version": a.version} for a in each.artifacts]}
                         for each in lock.prefixes]}  # fmt: skip
    (overlay.parent / "lock.json").write_text(json.dumps(told))
    site = prefix / "lib" / f"python{version}" / "site-packages"
    shutil.copy(overlay / lock.prefixes[0].name / "prefix.pth", site / "envbuild-overlay.pth")
    (site / "base.py").write_text("VERSION = '1.0'\n")
    (site / "base-1.0.dist-info").mkdir()
    (site / "base-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: base\nVersion: 1.0\n")
    (site / "base-1.0.dist-info" / "RECORD").write_text("base.py,,\n")
    (site / "base-1.0.dist-info" / "INSTALLER").write_text("uv")
    offered = folder / "offered"
    offer(offered, "base", "1.0")
    offer(offered, "base", "2.0")
    offer(offered, "extra", "1.0", "base")
    offer(offered, "greedy", "1.0", "base>=2")
    home = folder / "home"
    home.mkdir()
    return Inside(prefix / "bin" / "python", overlay, home, offered, lock.environment.name)


@pytest.mark.parametrize("version", EVERY)
def test_a_users_packages_lie_above_the_locked_ones(version: str, tmp_path: Path) -> None:
    inside = make(version, tmp_path)
    locked = {
        path: path.read_bytes() for path in inside.python.parent.parent.rglob("*") if path.is_file() and path.suffix != ".pyc"
    }

    done = inside.run("-m", "pip", "install", "extra")
    added = inside.home / ".local" / "share" / "envbuild" / inside.name / inside.overlay.parent.parent.joinpath("env").name
    assert f"installing into {added}" in done.stderr
    assert inside.version("extra") == "1.0"
    assert subprocess.run([added / "bin" / "say-extra"], capture_output=True, text=True, check=True,
                          env={"HOME": str(inside.home)}).stdout == "1.0\n"  # fmt: skip
    assert not (added / "lib" / f"python{version}" / "site-packages" / "base.py").exists()

    refused = inside.run("-m", "pip", "install", "greedy", code=1)
    assert "locked packages keep their versions unless you name them" in refused.stderr

    done = inside.run("-m", "pip", "install", "greedy", "base")
    assert "base 2.0 is used instead of the locked 1.0" in done.stderr
    assert inside.version("base") == "2.0"
    assert inside.version("base", "-s") == inside.version("base", PYTHONNOUSERSITE="1") == "1.0"
    assert inside.version("base", ENVBUILD_PACKAGES="off") == "1.0"

    inside.run("-m", "pip", "uninstall", "-y", "base")
    assert inside.version("base") == "1.0"
    inside.run("-m", "pip", "uninstall", "-y", "base")  # the user's package is already gone, so the locked one stays
    assert inside.version("base") == "1.0"
    now = {
        path: path.read_bytes() for path in inside.python.parent.parent.rglob("*") if path.is_file() and path.suffix != ".pyc"
    }
    assert now == locked


@pytest.mark.parametrize("version", FEW)
def test_files_of_requirements_name_packages_too(version: str, tmp_path: Path) -> None:
    inside = make(version, tmp_path)
    (inside.home / "needs.txt").write_text("# mine\ngreedy\nBase>=2\n")
    inside.run("-m", "pip", "install", "--user", "-r", "needs.txt")
    assert inside.version("base") == "2.0"


def test_a_folder_of_the_users_choice_takes_them(tmp_path: Path) -> None:
    inside = make(FEW[-1], tmp_path)
    chosen = tmp_path / "chosen"
    inside.run("-m", "pip", "install", "extra", ENVBUILD_PACKAGES=str(chosen))
    assert inside.version("extra", ENVBUILD_PACKAGES=str(chosen)) == "1.0"
    inside.run("-c", "import extra", code=1)


def test_where_nothing_can_be_written_one_sentence_says_what_to_do(tmp_path: Path) -> None:
    inside = make(FEW[-1], tmp_path)
    done = inside.run("-m", "pip", "install", "extra", code=1, ENVBUILD_PACKAGES="/proc/nowhere")
    assert "cannot write to any folder for additional packages" in done.stderr
    assert "--user" in done.stderr
    assert "Traceback" not in done.stderr
