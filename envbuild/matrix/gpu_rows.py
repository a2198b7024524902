"""The rows about GPUs and their vendors. Rows cannot be changed, as in ``matrix.types``."""

from __future__ import annotations

from typing import NamedTuple

from envbuild.matrix.platform import Provenance


class Architecture(NamedTuple):
    """A GPU generation, or a part of a generation, with the CUDA toolkits and driver branches that support it.

    ``ptx_from`` is the oldest CUDA whose PTX is known to run on this architecture. ``ptx_from`` is empty if PTX of every CUDA
    with the major version of ``first_cuda`` runs.
    """

    name: str
    capabilities: tuple[str, ...]
    first_cuda: str
    last_cuda: str
    last_driver_branch: str
    origin: Provenance
    ptx_from: str = ""

    @property
    def key(self) -> str:
        """The row's name in messages."""
        return f"architecture {self.name} ({', '.join(self.capabilities)})"


class Gpu(NamedTuple):
    """A GPU board. A number is None if no source states it.

    The numbers are for one GPU, even if the board has several GPUs. Only ``power_w`` is for the whole board. ``host`` is the
    processor that is built together with the GPU, if images do not support that processor. It is empty for ordinary boards.
    """

    name: str
    aliases: tuple[str, ...]
    architecture: str
    capability: str
    kind: str
    host: str
    memory_gb: float | None
    memory_bandwidth_gb_s: float | None
    fp32_gflops: float | None
    fp64_gflops: float | None
    fp16_gflops: float | None
    tensor_gflops: float | None
    power_w: float | None
    gpus_per_board: int
    nvlink: bool
    released: str
    origin: Provenance

    @property
    def key(self) -> str:
        """The row's name in messages."""
        return f"gpu {self.name}"


class GpuVendor(NamedTuple):
    """A vendor whose GPUs or accelerators CUDA does not run on.

    ``names`` are regular expressions for the names that people use for these devices. ``needs`` is the software that the
    devices need instead of CUDA.
    """

    vendor: str
    needs: str
    names: tuple[str, ...]
    origin: Provenance

    @property
    def key(self) -> str:
        """The row's name in messages."""
        return f"gpu vendor {self.vendor}"
