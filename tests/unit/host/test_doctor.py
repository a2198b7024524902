"""The findings of `envbuild doctor` about a machine."""

from __future__ import annotations

import os
import shutil
from collections import namedtuple
from dataclasses import dataclass
from pathlib import Path

import pytest

from envbuild import procs
from envbuild.errors import EngineError
from envbuild.host import doctor, nvidia
from envbuild.host.nvidia import InstalledGpu, Toolkit
from envbuild.workspace import Workspace

USAGE = namedtuple("USAGE", "total used free")


GB = 10**9


@dataclass(frozen=True, kw_only=True)
class Facts:
    builder: str = "docker-buildkit"
    builder_version: str = "20.10.24"
    gives_gpus: bool = False
    data_root: str = "/data"
    free_bytes: int | None = 100 * GB

    def describe(self) -> str:
        return "Docker in one line"


@pytest.fixture
def place(tmp_path: Path) -> Workspace:
    return Workspace(root=tmp_path, output=tmp_path, home=tmp_path / "not" / "made" / "yet")


@pytest.fixture
def machine(monkeypatch):
    """A machine with every program, no GPU, and the free disk space that the test wants."""

    def make(*, absent=(), free=100 * GB, shm=10 * GB, gpu=False, root=True):
        monkeypatch.setattr(procs, "find", lambda name, **_: None if name in absent else f"/usr/bin/{name}")
        monkeypatch.setattr(os, "geteuid", lambda: 0 if root else 1000)
        monkeypatch.setattr(
            shutil, "disk_usage", lambda path: USAGE(shm, 0, shm) if str(path) == "/dev/shm" else USAGE(free, 0, free)
        )
        one = InstalledGpu(index=0, uuid="GPU-1", name="A100", capability="8.0", memory_bytes=40 * GB, pci="0")
        monkeypatch.setattr(nvidia, "gpus", lambda: (one,) if gpu else ())
        monkeypatch.setattr(nvidia, "driver", lambda: nvidia.InstalledDriver(version="535.1", cuda="12.2") if gpu else None)
        monkeypatch.setattr(nvidia, "toolkit", lambda: Toolkit(cli="", runtime="", hook="", version="", cdi=()))

    return make


def findings(place: Workspace, facts: Facts | None = None) -> dict[str, str]:
    return {f.id: f.status for f in doctor.doctor(place, (lambda _: facts) if facts is not None else None)}


def test_a_machine_that_has_all_it_needs(place, machine):
    machine()
    found = findings(place, Facts())
    assert found["engine"] == found["buildkit"] == found["disk"] == found["engine-disk"] == found["shm"] == "ok"
    assert found["driver"] == found["gpus"] == found["toolkit"] == "info"
    assert "missing" not in found.values()


def test_no_engine_says_so_and_whether_one_could_be_started(place, machine):
    def none(_: Workspace) -> Facts:
        raise EngineError("No container engine answers.", code="no-engine", hint="Start one.")

    machine()
    by_id = {f.id: f for f in doctor.doctor(place, none)}
    assert (by_id["engine"].status, by_id["engine"].hint) == ("missing", "Start one.")
    assert by_id["private-engine"].status == "info"
    machine(absent=("dockerd", "ip"))
    private = {f.id: f for f in doctor.doctor(place, none)}["private-engine"]
    assert private.status == "missing"
    assert "dockerd, ip" in private.message
    machine(root=False)
    assert {f.id: f.status for f in doctor.doctor(place, none)}["private-engine"] == "warn"


def test_an_engine_without_buildkit_is_missing_something(place, machine):
    machine()
    assert findings(place, Facts(builder="classic"))["buildkit"] == "missing"


@pytest.mark.parametrize(("free", "status"), [(1 * GB, "missing"), (5 * GB, "warn"), (50 * GB, "ok")])
def test_disk(place, machine, free, status):
    machine(free=free)
    found = findings(place, Facts(free_bytes=free))
    assert (found["disk"], found["engine-disk"]) == (status, status)


def test_a_remote_engines_disk_is_not_judged(place, machine):
    machine()
    assert "engine-disk" not in findings(place, Facts(free_bytes=None))


def test_little_shared_memory_is_a_warning(place, machine):
    machine(shm=64 * 10**6)
    assert findings(place)["shm"] == "warn"


def test_without_mmdebstrap_bases_can_only_be_pulled(place, machine):
    machine(absent=("mmdebstrap",))
    assert findings(place)["bootstrap"] == "warn"


def test_a_gpu_without_the_toolkit_lacks_something(place, machine):
    machine(gpu=True)
    by_id = {f.id: f for f in doctor.doctor(place, lambda _: Facts())}
    assert by_id["driver"].message == "535.1, up to CUDA 12.2"
    assert "A100 (sm_80, 40 GB)" in by_id["gpus"].message
    assert by_id["toolkit"].status == "missing"
    assert "nvidia-container-toolkit" in by_id["toolkit"].hint


def test_a_toolkit_that_the_engine_does_not_know(place, machine, monkeypatch):
    machine(gpu=True)
    parts = Toolkit(cli="/c", runtime="/usr/bin/nvidia-container-runtime", hook="", version="1.14", cdi=())
    monkeypatch.setattr(nvidia, "toolkit", lambda: parts)
    assert findings(place, Facts())["toolkit"] == "warn"
    assert findings(place, Facts(gives_gpus=True))["toolkit"] == "ok"


def test_a_cdi_file_that_the_engine_does_not_use(place, machine, monkeypatch):
    machine(gpu=True)
    monkeypatch.setattr(
        nvidia, "toolkit", lambda: Toolkit(cli="", runtime="", hook="", version="", cdi=("/etc/cdi/nvidia.yaml",))
    )
    (found,) = (each for each in doctor.doctor(place, lambda _: Facts()) if each.id == "toolkit")
    assert found.status == "warn"
    assert '"cdi": true' in found.hint
    assert findings(place, Facts(gives_gpus=True))["toolkit"] == "ok"


def test_every_finding_that_is_not_well_says_what_to_do(place, machine):
    machine(absent=("dockerd", "mmdebstrap"), free=1 * GB, shm=1, gpu=True)
    for finding in doctor.doctor(place, lambda _: Facts(builder="classic", free_bytes=1)):
        assert finding.hint or finding.status in ("ok", "info"), finding
