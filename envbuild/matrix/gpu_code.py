"""Decide which GPU code runs on which GPU, and which CUDA toolkits support a GPU.

Native code runs on GPUs of its own compute capability and of later capabilities with the same major version. PTX runs on GPUs
of its own capability and of any later one. Neither runs on an earlier capability. A toolkit older than the GPU has no libraries
for this GPU. Native code from such a toolkit still runs if it is for an earlier GPU of the same major version. PTX from such a
toolkit runs if the toolkit is not older than :func:`oldest_for_ptx`. PTX from older toolkits is known to take an hour to
compile, or to fail.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence

from envbuild.matrix.gpu_rows import Architecture
from envbuild.matrix.platform import CudaRow
from envbuild.matrix.types import Variant
from envbuild.matrix.versions import numbers
from envbuild.model.resolution import Details


def code_for(variant: Variant, capability: str) -> str:
    """Return which code of a build runs on a GPU: ``native``, ``ptx`` (the driver compiles the PTX), ``none``, or ``unknown``
    if the row lists no GPU code.

    Native code runs on its own capability, and on later capabilities of the same major version. PTX runs on its own capability
    and on any later capability.
    """
    return runs(variant.sass, variant.ptx, variant.only_ptx, capability)


def runs(sass: Iterable[str], ptx: Iterable[str], only_ptx: Iterable[str], capability: str) -> str:
    """Return which of this code runs on a GPU, in the words of :func:`code_for`."""
    if not sass and not ptx and not only_ptx:
        return "unknown"
    major, minor = _capability(capability)
    if any(m == major and n <= minor for m, n in map(_capability, sass)):
        return "native"
    if any(m == major and n <= minor for m, n in map(_capability, only_ptx)):
        return "ptx"
    return "ptx" if any(_capability(entry) <= (major, minor) for entry in ptx) else "none"


def only_by_ptx(details: Iterable[Details]) -> tuple[str, ...]:
    """Return the GPUs on which all builds of an environment run, but an add-on only by PTX."""
    codes = [each.compute_capability for each in details if each.compute_capability is not None]
    listed = sorted({capability for code in codes for capability in code.only_ptx}, key=numbers)
    return tuple(each for each in listed if all(runs(code.sass, code.ptx, code.only_ptx, each) != "none" for code in codes))


@functools.lru_cache(maxsize=1024)
def _capability(text: str) -> tuple[int, int]:
    parts = [int(part) for part in text.split(".")]
    return parts[0], parts[1] if len(parts) > 1 else 0


def oldest_for_ptx(architecture: Architecture) -> str:
    """Return the oldest CUDA whose PTX works on an architecture."""
    return architecture.ptx_from or f"{numbers(architecture.first_cuda)[0]}.0"


def supports(architecture: Architecture, cuda: str) -> bool:
    """Whether a CUDA toolkit compiles for an architecture and has libraries for it."""
    last = architecture.last_cuda
    return numbers(architecture.first_cuda) <= numbers(cuda) and not (last and numbers(cuda) > numbers(last))


def older_cuda(architectures: Iterable[Architecture], architecture: Architecture, rows: Sequence[CudaRow]) -> list[str]:
    """Return the CUDA toolkits that are older than an architecture, but whose builds still run on it.

    Builds for these toolkits have native code for an earlier GPU of the same major version, or PTX that is not too old.
    """
    major = {_capability(capability)[0] for capability in architecture.capabilities}
    native = [
        row.first_cuda for row in architectures if any(_capability(capability)[0] in major for capability in row.capabilities)
    ]
    oldest = min([oldest_for_ptx(architecture), *native], key=numbers)
    return [row.version for row in rows if numbers(oldest) <= numbers(row.version) < numbers(architecture.first_cuda)]
