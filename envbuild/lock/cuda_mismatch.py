"""Find pinned CUDA libraries that belong to another CUDA release than the environment. The functions are pure (no network,
files or clock).

Frameworks accept ranges of versions of NVIDIA's wheels. So a lock can contain cuBLAS of CUDA 12.9 in an environment of CUDA
12.5.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from envbuild.model.lock import Artifact, Lock

# NVIDIA's wheels that have the same version numbers as the CUDA toolkit. cuFFT, cuRAND, cuSOLVER, cuSPARSE, cuDNN and NCCL have
# other numbers. cuBLAS has the toolkit's numbers only for CUDA 12:
# https://docs.nvidia.com/cuda/cuda-toolkit-release-notes/index.html
_NUMBERED = r"nvidia-(?:(?:cuda-(?:runtime|nvrtc|cupti|nvcc)|nvjitlink|nvtx)(?:-cu\d+)?|cublas-cu12)"


def is_possible(content: bytes) -> bool:
    """Whether the text of a lock names a wheel with the version numbers of CUDA. Most locks name no such wheel, so they need
    not be decoded."""
    return re.search(f'"{_NUMBERED}"'.encode(), content) is not None


def other_cuda(lock: Lock) -> tuple[str, ...]:
    """Return a line for each prefix with libraries of another CUDA release than the environment's."""
    environment = lock.environment
    cuda = environment.base.libraries_cuda or environment.cuda
    if cuda is None:
        return ()
    lines = []
    for prefix in lock.prefixes:
        found = [f"{each.name} {each.version}" for each in _others(prefix.artifacts, cuda)]
        if found:
            where = f" ({prefix.name})" if environment.prefixes else ""
            lines.append(
                f"The lock{where} contains libraries of another release than CUDA {cuda}, because the packages that require "
                f"them allow this: {', '.join(found)}."
            )
    return tuple(lines)


def _others(artifacts: tuple[Artifact, ...], cuda: str) -> Iterator[Artifact]:
    for artifact in artifacts:
        if re.fullmatch(_NUMBERED, artifact.name) and ".".join(artifact.version.split(".")[:2]) != cuda:
            yield artifact
