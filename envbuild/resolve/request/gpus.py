"""Finds the GPUs that a request names."""

from __future__ import annotations

import unicodedata

from envbuild.errors import UsageError
from envbuild.matrix.gpu_names import find_architecture, find_board, read_capability
from envbuild.matrix.types import Matrix
from envbuild.resolve.request.model import GpuWanted


def find_gpu(matrix: Matrix, text: str) -> tuple[GpuWanted, list[str]]:
    """Find a GPU by its board name or compute capability (``sm_61``, ``6.1``). If the matrix does not know the capability, the
    second value has warnings that say what cannot be checked.

    Raises :class:`UnknownNameError` for a name that the matrix does not have, that different GPUs share, or that belongs to
    another vendor's GPU.
    """
    word = unicodedata.normalize("NFKC", text).strip()
    if not word:
        raise UsageError(
            "The name of a GPU is empty.",
            code="bad-gpu",
            hint='Name a GPU such as "GTX 1080 Ti", or a capability such as sm_61.',
        )
    if capability := read_capability(word):
        return _by_capability(matrix, word, capability)
    board = find_board(matrix, word)
    architecture = find_architecture(matrix, board.capability)
    return GpuWanted(text=board.name, capability=board.capability, board=board, architecture=architecture), []


def _by_capability(matrix: Matrix, word: str, capability: str) -> tuple[GpuWanted, list[str]]:
    architecture = find_architecture(matrix, capability)
    wanted = GpuWanted(text=word, capability=capability, board=None, architecture=architecture)
    if architecture is not None:
        return wanted, []
    return wanted, [
        f"GPU {word}: the matrix has no architecture of compute capability {capability}. Only the GPU code of the "
        "framework was compared; whether CUDA and the driver support this GPU was not checked."
    ]
