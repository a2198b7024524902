from __future__ import annotations

import ctypes
import json
import os
import shutil
import sys
import types
from collections import namedtuple
from dataclasses import dataclass
from pathlib import Path

import pytest

from envbuild import matrix, procs, workspace
from envbuild.cli import frame
from envbuild.errors import EngineError
from envbuild.host import doctor, fits, nvidia
from envbuild.host.nvidia import Gpu, Toolkit, driver, gpus
from envbuild.workspace import Workspace

USAGE = namedtuple("USAGE", "total used free")
GB = 10**9


@dataclass(frozen=True, kw_only=True)
class Facts:
    builder: str = "docker-buildkit"
    builder_version: str = "20.10.24"
    runtimes: tuple[str, ...] = ("runc",)
    data_root: str = "/data"
    free_bytes: int | None = 100 * GB

    def describe(self) -> str:
        return "Docker in one line"


@pytest.fixture
def place(tmp_path: Path) -> Workspace:
    return Workspace(root=tmp_path, output=tmp_path, home=tmp_path / "not" / "made" / "yet")


@pytest.fixture
def machine(monkeypatch):
    """A machine with every program, no GPU, and as much disk as asked for."""

    def make(*, absent=(), free=100 * GB, shm=10 * GB, gpu=False, root=True):
        monkeypatch.setattr(procs, "find", lambda name, **_: None if name in absent else f"/usr/bin/{name}")
        monkeypatch.setattr(os, "geteuid", lambda: 0 if root else 1000)
        monkeypatch.setattr(
            shutil, "disk_usage", lambda path: USAGE(shm, 0, shm) if str(path) == "/dev/shm" else USAGE(free, 0, free)
        )
        one = Gpu(index=0, uuid="GPU-1", name="A100", capability="8.0", memory_bytes=40 * GB, pci="0")
        monkeypatch.setattr(nvidia, "gpus", lambda: (one,) if gpu else ())
        monkeypatch.setattr(nvidia, "driver", lambda: nvidia.Driver(version="535.1", cuda="12.2") if gpu else None)
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
    assert findings(place, Facts(runtimes=("nvidia", "runc")))["toolkit"] == "ok"


def test_every_finding_that_is_not_well_says_what_to_do(place, machine):
    machine(absent=("dockerd", "mmdebstrap"), free=1 * GB, shm=1, gpu=True)
    for finding in doctor.doctor(place, lambda _: Facts(builder="classic", free_bytes=1)):
        assert finding.hint or finding.status in ("ok", "info"), finding


def test_cdi_files_that_name_nvidia_devices_count(monkeypatch, tmp_path):
    (tmp_path / "nvidia.yaml").write_text("kind: nvidia.com/gpu\n")
    (tmp_path / "other.yaml").write_text("kind: vendor.com/net\n")
    monkeypatch.setattr(nvidia, "_CDI", (tmp_path, tmp_path / "absent"))
    monkeypatch.setattr(procs, "find", lambda name, **_: None)
    assert nvidia.toolkit().cdi == (str(tmp_path / "nvidia.yaml"),)


class Binding(types.ModuleType):
    """The binding's functions with a machine of two GPUs behind them."""

    NVMLError = type("NVMLError", (Exception,), {})
    nvmlInit = nvmlShutdown = staticmethod(lambda: None)
    nvmlSystemGetDriverVersion = staticmethod(lambda: "535.104.05")
    nvmlSystemGetCudaDriverVersion = staticmethod(lambda: 12020)
    nvmlDeviceGetCount = staticmethod(lambda: 2)
    nvmlDeviceGetHandleByIndex = staticmethod(lambda index: index)
    nvmlDeviceGetCudaComputeCapability = staticmethod(lambda index: (6, 1) if index else (7, 5))
    nvmlDeviceGetUUID = staticmethod(lambda index: f"GPU-{index}")
    nvmlDeviceGetName = staticmethod(lambda index: f"Card {index}")
    nvmlDeviceGetMemoryInfo = staticmethod(lambda index: types.SimpleNamespace(total=11 * GB))
    nvmlDeviceGetPciInfo = staticmethod(lambda index: types.SimpleNamespace(busId=f"0000:0{index}:00.0"))


def test_the_driver_and_its_gpus_are_read_through_the_binding(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    monkeypatch.setitem(sys.modules, "pynvml", Binding("pynvml"))
    found = driver()
    assert found is not None
    assert (found.version, found.cuda) == ("535.104.05", "12.2")
    assert [(g.index, g.capability, g.pci) for g in gpus()] == [(0, "7.5", "0000:00:00.0"), (1, "6.1", "0000:01:00.0")]


def test_a_library_without_a_driver_is_no_driver(monkeypatch):
    binding = Binding("pynvml")

    def fail() -> None:
        raise Binding.NVMLError

    monkeypatch.setattr(binding, "nvmlInit", fail, raising=False)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    monkeypatch.setitem(sys.modules, "pynvml", binding)
    assert driver() is None
    assert gpus() == ()


def test_no_library_needs_no_binding(monkeypatch):
    def absent(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", absent)
    monkeypatch.setitem(sys.modules, "pynvml", None)  # importing it would fail
    assert driver() is None
    assert gpus() == ()


def card(index: int, name: str, capability: str, memory: int = 16) -> Gpu:
    return Gpu(index=index, uuid=f"GPU-{index}", name=name, capability=capability, memory_bytes=memory * GB, pci=str(index))


@pytest.fixture(scope="module")
def real():
    """The matrix that is delivered: what runs on a GPU is its knowledge."""
    return matrix.load(workspace.find())


V100, A100 = "Tesla V100-SXM2-16GB", "NVIDIA A100-SXM4-40GB"


def test_equal_gpus_are_one_set_and_the_largest_comes_first():
    cards = [card(0, A100, "8.0", 40), card(1, V100, "7.0"), card(2, V100, "7.0"), card(3, V100, "7.0", 32)]
    assert [[gpu.index for gpu in alike] for alike in fits.equal_sets(cards)] == [[1, 2], [0], [3]]


def test_what_of_the_matrix_runs_here_and_what_the_gpus_should_reach(real):
    cards = [card(0, V100, "7.0"), card(1, V100, "7.0"), card(2, A100, "8.0", 40)]
    first, second, mixed = fits.fits(real, nvidia.Driver(version="384.130", cuda="9.0"), cards)
    assert (first.title, first.status) == (f"2 x {V100}", "ok")
    assert "CUDA 9.0; nominal fp64 7.8, fp32 15.7, fp16 31.4 TFLOPS; memory 900 GB/s" in first.message
    assert (second.status, second.message.startswith("0 builds")) == ("warn", True)  # this driver knows no Ampere
    assert (mixed.id, mixed.status) == ("mixed-gpus", "warn")
    assert "one queue" in mixed.hint


def test_a_gpu_of_which_the_matrix_knows_nothing_is_not_judged(real):
    (only,) = fits.fits(real, None, [card(0, "Strange", "99.1")])
    assert (only.status, "no architecture of the matrix" in only.message) == ("info", True)


@pytest.mark.parametrize(("status", "code", "ok"), [("missing", 6, False), ("warn", 0, True)])
def test_what_building_lacks_is_the_exit_code_too(monkeypatch, capsys, status, code, ok):
    found = [doctor.Finding(id="engine", status=status, title="engine", message="told")]
    monkeypatch.setattr(doctor, "doctor", lambda *_: found)
    assert frame.run(["doctor", "--json"]) == code
    answer = json.loads(capsys.readouterr().out)
    assert (answer["ok"], answer["findings"][0]["status"]) == (ok, status)


def test_doctor_says_what_fits_only_where_there_are_gpus(monkeypatch, capsys):
    fit = doctor.Finding(id="fits", status="ok", title="1 x A", message="told")
    monkeypatch.setattr(doctor, "doctor", lambda *_: [doctor.Finding(id="python", status="ok", title="Python", message="told")])
    monkeypatch.setattr(nvidia, "driver", lambda: None)
    monkeypatch.setattr(fits, "fits", lambda *_: [fit])
    for cards, ids in (((), ["python"]), ((card(0, V100, "7.0"),), ["python", "fits"])):
        monkeypatch.setattr(nvidia, "gpus", lambda cards=cards: cards)
        assert frame.run(["doctor", "--json"]) == 0
        assert [finding["id"] for finding in json.loads(capsys.readouterr().out)["findings"]] == ids
