"""List the sets of equal GPUs of this machine, with the CUDA versions, builds and peak performance for each set."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from envbuild.errors import EnvbuildError
from envbuild.host.doctor import HostFinding
from envbuild.host.nvidia import InstalledDriver, InstalledGpu
from envbuild.matrix.types import Matrix
from envbuild.resolve.build_list import Filters, list_builds
from envbuild.resolve.request.gpus import find_gpu

_GB = 10**9


def equal_sets(gpus: Sequence[InstalledGpu]) -> list[tuple[InstalledGpu, ...]]:
    """Group GPUs of the same model, memory and capability; the largest set first."""
    found: dict[tuple[str, str, int], list[InstalledGpu]] = {}
    for gpu in gpus:
        found.setdefault((gpu.name, gpu.capability, round(gpu.memory_bytes / _GB)), []).append(gpu)
    return sorted((tuple(alike) for alike in found.values()), key=lambda alike: (-len(alike), alike[0].index))


def judge_sets(matrix: Matrix, driver: InstalledDriver | None, gpus: Sequence[InstalledGpu]) -> list[HostFinding]:
    """Return one finding for each set of equal GPUs, and one more finding if there are several sets.

    The list is empty if there is no GPU.
    """
    sets = equal_sets(gpus)
    found = [_fits(matrix, driver, alike) for alike in sets]
    if len(sets) > 1:
        words = ", ".join(f"{len(alike)} x {alike[0].name} (GPU {_numbers(alike)})" for alike in sets)
        hint = (
            "Put equal GPUs into one queue: a job on different GPUs waits for the slowest. The smoke test uses the largest set "
            "of equal GPUs."
        )
        found.append(HostFinding(id="mixed-gpus", status="warn", title="unlike GPUs", message=words, hint=hint))
    return found


def _numbers(gpus: Sequence[InstalledGpu]) -> str:
    return ", ".join(str(gpu.index) for gpu in gpus)


def _fits(matrix: Matrix, driver: InstalledDriver | None, alike: Sequence[InstalledGpu]) -> HostFinding:
    gpu = alike[0]
    capability = f"sm_{gpu.capability.replace('.', '')}"
    title = f"{len(alike)} x {gpu.name}"
    known, doubts = find_gpu(matrix, capability)
    if known.architecture is None:
        return HostFinding(id="fits", status="info", title=title, message=" ".join(doubts))
    here = Filters(gpu=capability, driver=driver.version if driver else "")
    rows = [row for row in list_builds(matrix, here) if row.cuda is not None and row.name]
    parts = [f"{len(rows)} builds of the matrix run on this GPU", *_window([row.cuda for row in rows if row.cuda])]
    words = "; ".join([*parts, *_nominal(matrix, gpu)])
    if not rows:
        return HostFinding(
            id="fits",
            status="warn",
            title=title,
            message=words,
            hint=f"With a newer driver, more may run: envbuild list --gpu {capability}",
        )
    asked = f" --driver {driver.version}" if driver else ""
    return HostFinding(
        id="fits", status="ok", title=title, message=words, hint=f"`envbuild list --gpu {capability}{asked}` lists them."
    )


def _window(versions: Sequence[str]) -> Iterator[str]:
    ordered = sorted(set(versions), key=lambda version: [int(part) for part in version.split(".")])
    if ordered:
        yield f"CUDA {ordered[0]} to {ordered[-1]}" if len(ordered) > 1 else f"CUDA {ordered[0]}"


def _nominal(matrix: Matrix, gpu: InstalledGpu) -> Iterator[str]:
    """Return the peak performance of a GPU from the matrix, for comparison with the figures that ``envbuild-smoke probe
    --measure`` prints."""
    try:
        board = find_gpu(matrix, gpu.name)[0].board
    except EnvbuildError:  # several boards share this name
        return
    if board is None:
        return
    rates = (("fp64", board.fp64_gflops), ("fp32", board.fp32_gflops), ("fp16", board.fp16_gflops))
    known = [f"{name} {value / 1000:.1f}" for name, value in rates if value is not None]
    if known:
        yield f"nominal {', '.join(known)} TFLOPS"
    if board.memory_bandwidth_gb_s is not None:
        yield f"memory {board.memory_bandwidth_gb_s:.0f} GB/s"
    if board.power_w is not None:
        yield f"{board.power_w:.0f} W" + (f" a board of {board.gpus_per_board}" if board.gpus_per_board > 1 else "")
