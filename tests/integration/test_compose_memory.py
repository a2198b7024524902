"""A layer is written in pieces, so a wheel can be larger than the memory that the process may use."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from wheel_files import metadata

ALLOWED = 64 << 20  # bytes of address space in addition to those in use when the limit is set
PROGRAM = """
import pathlib, re, resource, sys
from envbuild.compose import wheel_layer
from envbuild.compose.model import InstallPlace
now = 1024 * int(re.search(r"VmSize:\\s+(\\d+)", pathlib.Path("/proc/self/status").read_text()).group(1))
resource.setrlimit(resource.RLIMIT_AS, (now + int(sys.argv[2]), resource.RLIM_INFINITY))
place = InstallPlace(prefix="/opt/env", python="3.11", installer="uv")
with open("/dev/null", "wb") as stream:
    layer = wheel_layer.write(stream, [(pathlib.Path(sys.argv[1]), True)], place, {})
print(layer.unpacked)
"""


def large_wheel(folder: Path, megabytes: int, method: int) -> Path:
    file = folder / "toy-1.0-py3-none-any.whl"
    block = hashlib.shake_128(b"envbuild").digest(1 << 20)
    digest = hashlib.sha256()
    with zipfile.ZipFile(file, "w", method, compresslevel=1) as archive:
        with archive.open("toy/library.so", "w", force_zip64=True) as member:
            for _ in range(megabytes):
                member.write(block)
                digest.update(block)
        files = metadata()
        record = "toy-1.0.dist-info/RECORD"
        told = base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode()
        lines = [f"toy/library.so,sha256={told},{megabytes << 20}", *(f"{name},," for name in (*files, record))]
        for name, content in {**files, record: "\n".join(lines).encode()}.items():
            archive.writestr(name, content)
    return file


def write_bounded(wheel: Path, allowed: int = ALLOWED) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, str(wheel), str(allowed)], capture_output=True, text=True, check=False, timeout=1200
    )


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED], ids=["stored", "deflated"])
def test_a_wheel_larger_than_the_memory(tmp_path: Path, method: int) -> None:
    done = write_bounded(large_wheel(tmp_path, 96, method))
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 96 << 20


def test_the_bound_is_one(tmp_path: Path) -> None:
    """With no additional memory the same program fails. So the limit of the other tests has an effect."""
    done = write_bounded(large_wheel(tmp_path, 8, zipfile.ZIP_STORED), allowed=0)
    assert done.returncode != 0


@pytest.mark.prove
def test_a_wheel_of_two_gigabytes(tmp_path: Path) -> None:
    done = write_bounded(large_wheel(tmp_path, 2048, zipfile.ZIP_DEFLATED))
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 2048 << 20
