"""Detect the NVIDIA driver and GPUs of this machine, and the toolkit that gives containers access to them."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from envbuild import cdi, procs

_LIBRARY = "libnvidia-ml.so.1"


@dataclass(frozen=True, kw_only=True, slots=True)
class InstalledDriver:
    """The driver's version, and the newest CUDA that it supports."""

    version: str
    cuda: str


@dataclass(frozen=True, kw_only=True, slots=True)
class InstalledGpu:
    """One GPU as the driver describes it. ``capability`` is X.Y."""

    index: int
    uuid: str
    name: str
    capability: str
    memory_bytes: int
    pci: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Toolkit:
    """The parts of the container toolkit: program paths (empty if absent), and the CDI files that name NVIDIA devices."""

    cli: str
    runtime: str
    hook: str
    version: str
    cdi: tuple[str, ...]


def driver() -> InstalledDriver | None:
    """Return the NVIDIA driver, or None if no driver works."""
    with _nvml() as nvml:
        if nvml is None:
            return None
        number = int(nvml.nvmlSystemGetCudaDriverVersion())
        return InstalledDriver(version=str(nvml.nvmlSystemGetDriverVersion()), cuda=f"{number // 1000}.{number % 1000 // 10}")


def gpus() -> tuple[InstalledGpu, ...]:
    """Return the GPUs in the driver's order. Without a driver this takes only milliseconds."""
    with _nvml() as nvml:
        if nvml is None:
            return ()
        return tuple(_gpu(nvml, index) for index in range(int(nvml.nvmlDeviceGetCount())))


def toolkit() -> Toolkit:
    """Return the installed parts of the NVIDIA container toolkit."""
    cli = procs.find("nvidia-container-cli") or ""
    version = procs.run([cli, "--version"], timeout_s=10).output.splitlines() if cli else []
    return Toolkit(
        cli=cli,
        runtime=procs.find("nvidia-container-runtime") or "",
        hook=procs.find("nvidia-container-runtime-hook") or "",
        version=next((line.partition(":")[2].strip() for line in version if line.startswith("cli-version")), ""),
        cdi=cdi.gpu_files(),
    )


@contextlib.contextmanager
def _nvml() -> Iterator[Any]:
    try:
        ctypes.CDLL(_LIBRARY)  # check this first, because importing the Python binding takes longer
    except OSError:
        yield None
        return
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:  # the library is installed, but the kernel module is not loaded
        yield None
        return
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()


def _gpu(nvml: Any, index: int) -> InstalledGpu:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    return InstalledGpu(
        index=index,
        uuid=str(nvml.nvmlDeviceGetUUID(handle)),
        name=str(nvml.nvmlDeviceGetName(handle)),
        capability=f"{major}.{minor}",
        memory_bytes=int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
        pci=str(nvml.nvmlDeviceGetPciInfo(handle).busId),
    )
