"""A composed layer has the same contents as the installers of a build make from the same wheels: every path, mode and byte."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import pytest
import uv
from random_wheels import installed, random_wheel
from wheel_files import FILE, FOLDER, Part, make_wheel

from envbuild.compose import wheel_layer
from envbuild.compose.model import InstallPlace

PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
OLD_PIP = "pip==20.3.4"  # the installer in matrix/build_tools.yaml for Pythons that are too old for uv
ENTRY_POINTS = """\
[console_scripts]
tool = toy.cli:main.run [all]
pip = toy:pip
pip3 = toy:pip3
pip3.7 = toy:pip37
easy_install = toy:easy
easy_install-3.2 = toy:easy32

[gui_scripts]
show = toy:show
"""


def toy(folder: Path, *more: Part) -> Path:
    """A wheel with every feature that installers treat specially."""
    parts = [
        Part(name=f"toy/{name}", content=b"x", mode=mode, system=system)
        for name, mode, system in (
            ("a.py", FILE | 0o644, 3), ("program", FILE | 0o755, 3), ("kindless", 0o755, 3), ("dos", FILE | 0o755, 0),
            ("user", FILE | 0o744, 3), ("readable", FILE | 0o444, 3), ("setuid", FILE | 0o4755, 3), ("modeless", 0, 0),
            ("__pycache__/a.cpython-36.pyc", FILE | 0o644, 3), ('"quoted", ünïcode', FILE | 0o644, 3),
        )
    ]  # fmt: skip
    parts += [
        Part(name=f"toy-1.0.data/{name}", content=content, mode=mode)
        for name, content, mode in (
            ("data/share/toy/a", b"x", FILE | 0o644), ("data/bin/data", b"x", FILE | 0o644),
            ("headers/a/b.h", b"x", FILE | 0o644), ("purelib/pure/a.py", b"x", FILE | 0o644),
            ("platlib/plat/a.py", b"x", FILE | 0o755),
            ("scripts/a", b"#!python\nx", FILE | 0o644), ("scripts/b", b"#!python -u\r\nx\r\n", FILE | 0o755),
            ("scripts/c", b"#!pythonw\nx", FILE | 0o644), ("scripts/d", b"#!/bin/sh\nx", FILE | 0o644),
            ("scripts/e.py", b"#!python", FILE | 0o644), ("scripts/f", b"#!py", FILE | 0o755),
            ("scripts/tool", b"x", FILE | 0o644), ("scripts/tool-script.py", b"x", FILE | 0o644),
            ("scripts/show.EXE", b"x", FILE | 0o644),
        )
    ]  # fmt: skip
    folders = ("toy/empty/", "empty/", "toy-1.0.data/data/empty/er/", "toy-1.0.data/headers/empty/", "toy-1.0.data/scripts/")
    parts += [Part(name=name, method=0, mode=FOLDER | 0o700) for name in folders]
    return make_wheel(folder, [*parts, *more], entry_points=ENTRY_POINTS)


def tree(top: Path) -> dict[str, tuple[str, bytes]]:
    found = {}
    for folder, folders, files in os.walk(top):
        for path in (Path(folder) / name for name in (*folders, *files)):
            about = path.lstat()
            content = bytes(path.readlink()) if path.is_symlink() else path.read_bytes() if path.is_file() else b""
            found[str(path.relative_to(top))] = stat.filemode(about.st_mode), content
    return found


def install_by_uv(wheels: Path, prefix: Path, names: Sequence[str]) -> None:
    words = [
        "pip",
        "install",
        "--offline",
        "--no-deps",
        "--no-index",
        "--find-links",
        wheels,
        "--python",
        prefix / "bin/python",
    ]
    settings = {"UV_LINK_MODE": "copy", "UV_NO_CONFIG": "1", "UV_CACHE_DIR": str(wheels.parent / "cache")}
    subprocess.run([uv.find_uv_bin(), *words, "-q", *names], env=os.environ | settings, check=True, timeout=600)
    (prefix / ".lock").unlink(missing_ok=True)
    for dated in prefix.rglob("*.dist-info/uv_cache.json"):  # step.sh removes them, too
        record = dated.with_name("RECORD")
        rows = record.read_bytes().splitlines(keepends=True)
        record.write_bytes(b"".join(row for row in rows if b".dist-info/uv_cache.json," not in row))
        dated.unlink()


def install_by_old_pip(wheels: Path, prefix: Path, names: Sequence[str]) -> None:
    program = next((wheels.parent / "pip").glob("*.whl")) / "pip"
    words = ["--no-python-version-warning", "--isolated", "--no-cache-dir", "install", "-q", "--no-compile", "--no-deps"]
    command = [prefix / "bin/python", program, *words, "--no-index", "--find-links", wheels, *names]
    subprocess.run(command, check=True, timeout=600)


def compare(tmp_path: Path, files: Sequence[Path], installer: Literal["uv", "pip"]) -> None:
    """Compare for the wheels in one folder. Their names must differ before the first dash."""
    prefix, bare = tmp_path / "env", tmp_path / "bare"
    venv.create(prefix, symlinks=True)
    shutil.copytree(prefix, bare, symlinks=True)
    install = install_by_uv if installer == "uv" else install_by_old_pip
    install(files[0].parent, prefix, [file.name.partition("-")[0] for file in files])

    layer = tmp_path / "layer.tar.gz"
    with layer.open("wb") as stream:
        wheel_layer.write(
            stream, [(file, True) for file in files], InstallPlace(prefix=str(prefix), python=PYTHON, installer=installer), {}
        )
    root = tmp_path / "root"
    composed = root / prefix.relative_to("/")
    composed.parent.mkdir(parents=True)
    bare.rename(composed)
    unpack(layer, root)
    wanted, found = tree(prefix), tree(composed)
    different = {
        path: (wanted.get(path), found.get(path))
        for path in wanted.keys() | found.keys()
        if wanted.get(path) != found.get(path)
    }
    assert not different


def unpack(layer: Path, folder: Path) -> None:
    """Unpack the layer with tar, which stops at the end of the tar. The list of files after it is still read to its end."""
    script = 'set -o pipefail; gzip -dc "$1" | { tar -x --overwrite -C "$2" && cat > /dev/null; }'
    subprocess.run(["bash", "-c", script, "-", layer, folder], check=True)


def some_wheels(folder: Path, first: int, count: int) -> list[Path]:
    folder.mkdir()
    return [random_wheel(folder, number, f"toy{number}") for number in range(first, first + count)]


def test_as_uv_installs_it(tmp_path: Path) -> None:
    (tmp_path / "wheels").mkdir()
    compare(tmp_path, [toy(tmp_path / "wheels", Part(name="toy-1.0.data/data/lib64/a"))], "uv")


def test_as_uv_installs_many(tmp_path: Path) -> None:
    compare(tmp_path, some_wheels(tmp_path / "wheels", 0, 60), "uv")


@pytest.fixture
def old_pip(tmp_path: Path) -> None:
    words = ["download", "-q", "--no-deps", "--only-binary", ":all:", "--no-cache-dir", "-d", tmp_path / "pip", OLD_PIP]
    subprocess.run([sys.executable, "-m", "pip", "--disable-pip-version-check", *words], check=True, timeout=300)


@pytest.mark.network
@pytest.mark.usefixtures("old_pip")
def test_as_the_old_pip_installs_it(tmp_path: Path) -> None:
    wheels = some_wheels(tmp_path / "wheels", 0, 12)
    compare(tmp_path, [*wheels, toy(tmp_path / "wheels")], "pip")


@pytest.mark.prove
@pytest.mark.parametrize("first", range(1000, 3000, 200))
def test_as_uv_installs_very_many(first: int, tmp_path: Path) -> None:
    compare(tmp_path, some_wheels(tmp_path / "wheels", first, 200), "uv")


@pytest.mark.prove
@pytest.mark.network
@pytest.mark.usefixtures("old_pip")
def test_as_the_old_pip_installs_many(tmp_path: Path) -> None:
    compare(tmp_path, some_wheels(tmp_path / "wheels", 5000, 200), "pip")


@pytest.mark.prove
@pytest.mark.skipif(not shutil.which("unzip"), reason="unzip is not installed")
def test_layers_of_ten_thousand_wheels_hold_what_unzip_finds(tmp_path: Path) -> None:
    place = InstallPlace(prefix="/opt/env", python="3.11", installer="uv")
    for number in range(10_000):
        file = random_wheel(tmp_path, number)
        raw, root, layer = tmp_path / "raw", tmp_path / "root", tmp_path / "layer"
        for folder in (raw, root):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
        with layer.open("wb") as stream:
            wheel_layer.write(stream, [(file, True)], place, {})
        unpack(layer, root)
        subprocess.run(["unzip", "-qq", file, "-d", raw], check=True, env={**os.environ, "LC_ALL": "C.UTF-8"})
        for path, (mode, content) in installed(file, place.prefix, place.python, raw).items():
            there = root / path
            assert stat.S_IMODE(there.lstat().st_mode) == mode, (number, path)
            assert there.is_dir() if content is None else path.endswith("/RECORD") or there.read_bytes() == content, (
                number,
                path,
            )
