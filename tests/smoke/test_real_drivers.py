"""The checks of the driver with NVIDIA's real libraries of three drivers, on a machine without a GPU."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import unquote
from urllib.request import urlopen

import pytest

from envbuild.engine import host_apt

from .conftest import FAULTY, REPOSITORY, Guest

pytestmark = pytest.mark.network

SYMBOLS = REPOSITORY / "images" / "driver-symbols.json"
POOL = "pool/non-free/n/nvidia-graphics-drivers"
PLACE = "usr/lib/x86_64-linux-gnu/nvidia/current"
VARIABLES = {"libcuda": "ENVBUILD_SMOKE_LIBCUDA", "libnvidia-ml": "ENVBUILD_SMOKE_LIBNVML"}
# Debian's drivers, and the CUDA that NVIDIA's release notes give for each: the notes of CUDA 11.4, 12.2 and 12.4.
CUDA_OF = {"470.256.02": "11.4", "535.261.03": "12.2", "550.163.01": "12.4"}


@pytest.fixture
def no_new_devices() -> Iterator[None]:
    """Remove /dev/nvidiactl, which NVIDIA's libraries make if they run as root."""
    before = set(Path("/dev").glob("nvidia*"))
    yield
    for path in set(Path("/dev").glob("nvidia*")) - before:
        path.unlink()


def real_driver(driver: str, folder: Path) -> dict[str, str]:
    """Unpack Debian's packages of a driver, which `images/driver-symbols.json` names. Return the variables that select it."""
    mirror = next((each.root for each in host_apt.host_sources() if each.archive == "debian"), "")
    if not mirror or shutil.which("dpkg-deb") is None:
        pytest.skip("the apt of this machine has no Debian mirror")
    variables = {}
    for source in json.loads(SYMBOLS.read_text())["sources"]:
        if source["driver"] != driver or not source["source"].startswith("pkg:deb/"):
            continue
        name, _, version = unquote(source["source"].partition("?")[0].rpartition("/")[2]).partition("@")
        path = folder / f"{name}_{version}_amd64.deb"
        try:
            with urlopen(f"{mirror}{POOL}/{path.name}", timeout=120) as answer:
                path.write_bytes(answer.read())
        except HTTPError as error:
            if error.code != HTTPStatus.NOT_FOUND or os.environ.get("ENVBUILD_REQUIRE_JUDGES") == "1":
                raise
            pytest.skip(f"Debian has a newer driver than {path.name}: name the newer one in images/driver-symbols.json")
        assert hashlib.sha256(path.read_bytes()).hexdigest() == source["sha256"], path.name
        subprocess.run(["dpkg-deb", "-x", path, folder], check=True)
        variables[VARIABLES[name.rstrip("1")]] = str(folder / PLACE / f"{name.rstrip('1')}.so.{driver}")
    assert set(variables) == set(VARIABLES.values())
    return variables


@pytest.mark.usefixtures("no_new_devices")
@pytest.mark.parametrize("driver", CUDA_OF)
def test_a_real_driver_without_a_gpu_is_told_so(guest: Guest, tmp_path: Path, driver: str) -> None:
    if Path("/proc/driver/nvidia").exists():
        pytest.skip("on this machine, a driver in the kernel answers instead")
    env = guest.env(**real_driver(driver, tmp_path))
    probed = guest.run("probe", folder=tmp_path, env=env)
    assert probed.report is not None and probed.code == 0, probed.err
    assert (probed.report["host"]["driver_cuda"], probed.report["devices"]) == (CUDA_OF[driver], [])
    asked = guest.run("run", "--adapter", FAULTY, "--device", "cuda", "--phases", "oracle", folder=tmp_path, env=env)
    assert (asked.code, asked.failed()) == (3, set()), asked.err
    assert asked.check("DEVICES")["message"].endswith("there is no GPU: cuInit returns error 100: the driver sees no GPU")
