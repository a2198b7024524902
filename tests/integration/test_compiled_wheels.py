"""A build compiles a source archive to the same wheel each time, although pip unpacks the archive into random folders."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
import uv

STEP = Path(__file__).parents[2] / "images/partials/step.sh"
# This build backend writes the path of the build folder into the wheel, as __FILE__ does in compiled code.
BACKEND = """\
import os
import zipfile


def build_wheel(folder, config_settings=None, metadata_directory=None):
    info = 'toy-1.dist-info/'
    with zipfile.ZipFile(os.path.join(folder, 'toy-1-py3-none-any.whl'), 'w') as wheel:
        wheel.writestr('toy.py', os.path.abspath('toy.c'))
        wheel.writestr(info + 'METADATA', 'Metadata-Version: 2.1\\nName: toy\\nVersion: 1\\n')
        wheel.writestr(info + 'WHEEL', 'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
        wheel.writestr(info + 'RECORD', '')
    return 'toy-1-py3-none-any.whl'
"""
FILES = {
    "backend.py": BACKEND,
    "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n',
    "PKG-INFO": "Metadata-Version: 1.1\nName: toy\nVersion: 1\n",
}


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    folder = tmp_path / "index"
    folder.mkdir()
    with tarfile.open(folder / "toy-1.tar.gz", "w:gz") as made:
        for name, text in FILES.items():
            info = tarfile.TarInfo(f"toy-1/{name}")
            info.size = len(text)
            made.addfile(info, io.BytesIO(text.encode()))
    return folder


def built(archive: Path, folder: Path, **more: str) -> str:
    """The path of the build folder that the built module contains."""
    (archive / "requirements.txt").write_text(
        f"toy==1 --hash=sha256:{hashlib.sha256((archive / 'toy-1.tar.gz').read_bytes()).hexdigest()}\n"
    )
    words = ["--no-cache-dir", "wheel", "--no-index", "--find-links", str(archive), "--no-deps", "--no-build-isolation"]
    words += ["--require-hashes", "--no-binary", ":all:", "-r", str(archive / "requirements.txt"), "-w", str(folder)]
    unpacked = archive.parent / "tmp"
    unpacked.mkdir(exist_ok=True)
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "1577836800", "TMPDIR": str(unpacked), **more}
    done = subprocess.run(
        [sys.executable, "-m", "pip", *words], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(next(folder.glob("toy-1-*.whl"))) as wheel:
        return wheel.read("toy.py").decode()


def test_a_path_of_the_build_is_the_same_each_time(archive: Path, tmp_path: Path) -> None:
    usual = {built(archive, tmp_path / f"usual-{number}") for number in range(2)}
    assert len(usual) == 2, "pip's names are no longer random: number-names of step.sh can go"
    tools = tmp_path / "build-tools"
    tools.mkdir()
    text = STEP.read_text()
    start = text.index("number-names() {")
    function = text[start : text.index("\n}\n", start) + 3]
    module = subprocess.run(["bash", "-c", f"{function}\nnumber-names"], capture_output=True, text=True, check=True).stdout
    (tools / "sitecustomize.py").write_text(module)
    numbered = {built(archive, tmp_path / f"numbered-{number}", PYTHONPATH=str(tools)) for number in range(2)}
    assert len(numbered) == 1, numbered


def test_an_installed_wheel_does_not_say_when_it_was_made(tmp_path: Path) -> None:
    """uv records the time of a wheel that is a local file."""
    mounted, prefix = tmp_path / "mnt", tmp_path / "env"
    (mounted / "wheels").mkdir(parents=True)
    (mounted / "tools").mkdir()
    (mounted / "tools" / "uv").symlink_to(uv.find_uv_bin())
    with zipfile.ZipFile(mounted / "wheels" / "toy-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("toy.py", "")
        wheel.writestr("toy-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: toy\nVersion: 1\n")
        wheel.writestr("toy-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("toy-1.dist-info/RECORD", "toy.py,,\ntoy-1.dist-info/METADATA,,\ntoy-1.dist-info/WHEEL,,\n")
    venv.create(prefix, symlinks=True)
    (tmp_path / "begun").touch()
    functions = STEP.read_text().partition('\nmkdir -p "${scratch}"')[0].replace("/mnt/", f"{mounted}/")
    functions = functions.replace("/dev/shm/envbuild", str(tmp_path))
    script = f"{functions}\ncompile() {{ :; }}\ncache={tmp_path}/cache\npip-install-built {prefix}\n"
    done = subprocess.run(["/bin/bash", "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    record = next(prefix.glob("lib/python3.*/site-packages/toy-1.dist-info/RECORD"))
    listed = {line.split(",")[0] for line in record.read_text().splitlines()}
    assert not [path for path in record.parent.iterdir() if path.name in ("uv_cache.json", "direct_url.json")]
    assert {f"toy-1.dist-info/{path.name}" for path in record.parent.iterdir()} <= listed
    assert all((record.parents[1] / path).exists() for path in listed)
