"""The driver, the GPUs and the container toolkit."""

from __future__ import annotations

import ctypes
import sys
import types

from envbuild import cdi, procs
from envbuild.host import nvidia
from envbuild.host.nvidia import driver, gpus

GB = 10**9


def test_cdi_files_that_name_nvidia_devices_count(monkeypatch, tmp_path):
    (tmp_path / "nvidia.yaml").write_text("kind: nvidia.com/gpu\n")
    (tmp_path / "other.yaml").write_text("kind: vendor.com/net\n")
    assert cdi.gpu_files((tmp_path, tmp_path / "absent")) == (str(tmp_path / "nvidia.yaml"),)
    monkeypatch.setattr(cdi, "gpu_files", lambda: ("/etc/cdi/nvidia.yaml",))
    monkeypatch.setattr(procs, "find", lambda name, **_: None)
    assert nvidia.toolkit().cdi == ("/etc/cdi/nvidia.yaml",)


class Binding(types.ModuleType):
    """The functions of the NVML binding, for a machine with two GPUs."""

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
    monkeypatch.setitem(sys.modules, "pynvml", None)  # importing pynvml now fails
    assert driver() is None
    assert gpus() == ()
