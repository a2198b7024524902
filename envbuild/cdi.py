"""The Container Device Interface (CDI): files that name devices, and say how a container engine gives them to a container.

NVIDIA's toolkit writes such a file with `nvidia-ctk cdi generate`. Its devices are `all`, and each GPU by index and UUID:
https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/cdi-support.html
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

FOLDERS = (Path("/etc/cdi"), Path("/var/run/cdi"))  # the engines' default folders
_GPU = "nvidia.com/gpu"


def gpu_names(gpus: Sequence[str]) -> tuple[str, ...]:
    """Return the CDI names of ``gpus``, each of which is ``all``, an index or a UUID."""
    return tuple(f"{_GPU}={gpu}" for gpu in gpus)


def is_gpu(name: str) -> bool:
    """Whether the CDI name ``name`` is the name of an NVIDIA GPU."""
    return name.startswith(f"{_GPU}=")


def gpu_files(folders: Iterable[Path] = FOLDERS) -> tuple[str, ...]:
    """Return the paths of the CDI files in ``folders`` that describe NVIDIA GPUs, sorted within each folder."""
    files = [path for folder in folders if folder.is_dir() for path in sorted(folder.iterdir())]
    return tuple(str(path) for path in files if _describes_gpus(path))


def _describes_gpus(path: Path) -> bool:
    try:
        return _GPU in path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
