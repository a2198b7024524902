"""Finds drivers and GPUs on which a build runs. Messages suggest them instead of the requested drivers and GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from envbuild.matrix.gpu_code import code_for
from envbuild.matrix.gpu_rows import Gpu
from envbuild.matrix.libraries import drops
from envbuild.matrix.types import Variant
from envbuild.matrix.versions import numbers
from envbuild.resolve.request.model import GpuWanted, Request
from envbuild.resolve.search.build import Build
from envbuild.resolve.search.hardware import hardware_objections, last_branch, newer_or_equal, older_than
from envbuild.resolve.search.lookup import Lookup
from envbuild.resolve.search.placement import Offer


def by_ptx(build: Build, gpus: Sequence[GpuWanted]) -> Iterator[GpuWanted]:
    """The GPUs for which a build has PTX but no native code, so that the driver has to compile the PTX."""
    if build.variant.cuda:
        yield from (gpu for gpu in gpus if gpu.capability and code_for(build.variant, gpu.capability) == "ptx")


def uneasy(build: Build, gpus: Sequence[GpuWanted]) -> tuple[bool, bool]:
    """Return a sort key of two values. The first says whether the driver must compile a build's PTX for one of the GPUs. The
    second says whether such a GPU is newer than the build's CUDA. For such a GPU, the driver must compile the PTX of the CUDA
    libraries, too."""
    compiled = list(by_ptx(build, gpus))
    return bool(compiled), any(older_than(build.variant, gpu) for gpu in compiled)


def driver_window(lookup: Lookup, request: Request, variant: Variant, any_gpu: bool) -> str | None:
    """Describe the drivers that run ``variant`` on the requested GPUs, or with ``any_gpu`` on any GPU; None if no driver
    does."""
    row = lookup.cuda.get(variant.cuda)
    if row is None:
        return None
    gpus = [] if any_gpu else [gpu for gpu in request.gpus if gpu.capability]
    rule = lookup.native_rule(row)
    native = all(code_for(variant, gpu.capability) == "native" for gpu in gpus)
    low, note = row.driver_min, ""
    if rule is not None and native and rule.driver_min != low:
        low, note = (
            rule.driver_min,
            f" (by minor-version compatibility; the driver that comes with CUDA {row.version} is {low})",
        )
    firsts = [lookup.first_branch(gpu.architecture) for gpu in gpus if gpu.architecture]
    first = max((branch for branch in firsts if branch), key=int, default="")
    if first and int(first) > numbers(low)[0]:
        low, note = first, ""
    lasts = [gpu.architecture.last_driver_branch for gpu in gpus if gpu.architecture and gpu.architecture.last_driver_branch]
    lasts += [branch for branch in (last_branch(lookup, variant),) if branch]
    if not lasts:
        return f"driver {low} or newer{note}"
    last = min(lasts, key=numbers)
    return f"driver {low} to {last}.*{note}" if newer_or_equal(last, low) else None


def nearest_board(lookup: Lookup, request: Request, row: str, variant: Variant, offer: Offer) -> Gpu | None:
    """The board on which the build runs and whose compute capability is nearest to that of the requested GPUs.

    The requested driver and the libraries of ``offer`` support this board. The build has native code for it, or the matrix does
    not say for which GPUs the build has code.
    """
    wanted = [numbers(gpu.capability) for gpu in request.gpus if gpu.capability]
    known = {item.name: item for item in lookup.matrix.architectures}
    best: tuple[int, Gpu] | None = None
    for board in lookup.matrix.gpus:
        architecture = next(
            (item for item in lookup.matrix.architectures if board.capability in item.capabilities),
            known.get(board.architecture),
        )
        gpu = GpuWanted(text=board.name, capability=board.capability, board=board, architecture=architecture)
        if code_for(variant, board.capability) not in ("native", "unknown"):
            continue
        if hardware_objections(lookup, request._replace(gpus=(gpu,)), row, variant):
            continue
        if any(library and library.row and drops(library.row, board.capability) for library in (offer.cudnn, offer.nccl)):
            continue
        away = min((_distance(numbers(board.capability), other) for other in wanted), default=0)
        if best is None or away < best[0]:
            best = (away, board)
    return best[1] if best else None


def _distance(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    (major, minor), (their_major, their_minor) = (*one, 0)[:2], (*other, 0)[:2]
    return abs(major * 10 + minor - their_major * 10 - their_minor)
