"""Build steps with the files of a bundle: the functions of step.sh, with the build secret for a build without a network."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import archive_server
import pytest
from wheel_files import Part, make_wheel

from envbuild import build_secret
from envbuild.files import sha256_of

ROOT = Path(__file__).parents[2]
URL = "https://files.example/python 3.11.tar.gz"
INSTALL = "installer env --no-deps --require-hashes --only-binary :all:"  # into the folder `env` of the test


@pytest.fixture
def build(tmp_path: Path):
    """Run a command as a build step would. The folder of the step is ``tmp_path/mnt``."""
    functions = (ROOT / "images/partials/step.sh").read_text().partition('\nmkdir -p "${scratch}"')[0]
    (secret,) = build_secret.joined(build_secret.offline()).values()
    mnt = tmp_path / "mnt"
    for name in ("offline/files", "offline/fetched", "tools", "cache"):
        (mnt / name).mkdir(parents=True)
    program = f"{functions}\n{secret.decode()}\n".replace("/mnt", str(mnt))
    program = program.replace("/dev/shm/envbuild", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()

    def run(command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", f"{program}\n{command}"],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            env=os.environ | variables,
        )

    run.mnt = mnt
    return run


def test_a_step_that_downloads_takes_the_file_of_the_bundle_and_checks_it(build, tmp_path: Path):
    content = b"an interpreter"
    held = build.mnt / "offline/fetched" / build_secret.fetched_name(URL)
    held.write_bytes(content)
    sha256 = hashlib.sha256(content).hexdigest()
    done = build(f"fetch {tmp_path}/files/python {sha256} '{URL}'")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "files/python").read_bytes() == content
    held.write_bytes(b"another file")
    assert build(f"fetch {tmp_path}/files/python {sha256} '{URL}'").returncode != 0
    assert build(f"fetch {tmp_path}/files/python {sha256} https://files.example/other").returncode != 0


def test_uv_installs_from_the_bundle_and_leaves_no_note_of_the_files_time(build, tmp_path: Path):
    uv = shutil.which("uv", path=str(Path(sys.executable).parent))
    assert uv is not None
    (build.mnt / "tools/uv").symlink_to(uv)
    wheel = make_wheel(build.mnt / "offline/files", [Part(name="toy.py", content=b"")])
    requirements = f"toy==1.0 --hash=sha256:{sha256_of(wheel)}\n"
    (build.mnt / "requirements.txt").write_text(requirements)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "env")], check=True)
    done = build(f"{INSTALL} -r {build.mnt}/requirements.txt")
    assert done.returncode == 0, done.stderr
    (record,) = (tmp_path / "env").glob("lib/*/site-packages/toy-1.0.dist-info/RECORD")
    assert "toy.py" in record.read_text()
    assert "uv_cache.json" not in record.read_text() + " ".join(path.name for path in record.parent.iterdir())


def test_uv_installs_from_the_bundle_although_its_cache_has_the_page_of_an_index(build, tmp_path: Path):
    """An earlier build with a network left the page of the package in the builder's cache, but not the file itself."""
    uv = str(shutil.which("uv", path=str(Path(sys.executable).parent)))
    (build.mnt / "tools/uv").symlink_to(uv)
    wheel = make_wheel(build.mnt / "offline/files", [Part(name="toy.py", content=b"")])
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "env")], check=True)
    with archive_server.serve() as server:
        index = f"{server.url}/simple"
        link = f'<a href="/files/{wheel.name}#sha256={sha256_of(wheel)}">{wheel.name}</a>'
        server.files |= {"simple/toy/": link.encode(), f"files/{wheel.name}": wheel.read_bytes()}
        subprocess.run(
            [uv, "pip", "install", "--python", str(tmp_path / "env/bin/python"), "--dry-run", "--no-deps", "toy==1.0"],
            check=True,
            env=os.environ | {"UV_CACHE_DIR": str(build.mnt / "cache/uv"), "UV_DEFAULT_INDEX": index, "UV_NO_CONFIG": "1"},
        )
    (build.mnt / "requirements.txt").write_text(f"toy==1.0 --hash=sha256:{sha256_of(wheel)}\n")
    done = build(f"{INSTALL} -r {build.mnt}/requirements.txt", UV_DEFAULT_INDEX=index)
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_the_bundle_lacks_is_not_looked_for_elsewhere(build, tmp_path: Path):
    uv = shutil.which("uv", path=str(Path(sys.executable).parent))
    (build.mnt / "tools/uv").symlink_to(str(uv))
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "env")], check=True)
    done = build(f"installer {tmp_path}/env --no-deps six==1.17.0")
    assert done.returncode != 0
    assert "six" in done.stdout + done.stderr


def test_what_steps_are_told_is_a_sound_shell_script(tmp_path: Path):
    (secret,) = build_secret.joined(build_secret.offline()).values()
    script = tmp_path / "secret.sh"
    script.write_bytes(b"#!/bin/bash\n" + secret)
    checker = Path(sys.executable).parent / "shellcheck"
    done = subprocess.run([checker, "--exclude=SC2312", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
