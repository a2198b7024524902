"""The environments of the matrix that run on a machine's GPUs."""

from __future__ import annotations

import pytest

from envbuild import workspace
from envbuild.host import gpu_sets, nvidia
from envbuild.host.nvidia import InstalledGpu
from envbuild.matrix import cache

GB = 10**9


def card(index: int, name: str, capability: str, memory: int = 16) -> InstalledGpu:
    return InstalledGpu(
        index=index, uuid=f"GPU-{index}", name=name, capability=capability, memory_bytes=memory * GB, pci=str(index)
    )


@pytest.fixture(scope="module")
def real():
    """The real matrix, because these tests need real GPUs and builds."""
    return cache.load(workspace.find())


V100, A100 = "Tesla V100-SXM2-16GB", "NVIDIA A100-SXM4-40GB"


def test_equal_gpus_are_one_set_and_the_largest_comes_first():
    cards = [card(0, A100, "8.0", 40), card(1, V100, "7.0"), card(2, V100, "7.0"), card(3, V100, "7.0", 32)]
    assert [[gpu.index for gpu in alike] for alike in gpu_sets.equal_sets(cards)] == [[1, 2], [0], [3]]


def test_what_of_the_matrix_runs_here_and_what_the_gpus_should_reach(real):
    cards = [card(0, V100, "7.0"), card(1, V100, "7.0"), card(2, A100, "8.0", 40)]
    first, second, mixed = gpu_sets.judge_sets(real, nvidia.InstalledDriver(version="384.130", cuda="9.0"), cards)
    assert (first.title, first.status) == (f"2 x {V100}", "ok")
    assert "CUDA 9.0; nominal fp64 7.8, fp32 15.7, fp16 31.4 TFLOPS; memory 900 GB/s" in first.message
    assert (second.status, second.message.startswith("0 builds")) == ("warn", True)  # this driver does not support Ampere
    assert (mixed.id, mixed.status) == ("mixed-gpus", "warn")
    assert "one queue" in mixed.hint


def test_a_gpu_of_which_the_matrix_knows_nothing_is_not_judged(real):
    (only,) = gpu_sets.judge_sets(real, None, [card(0, "Strange", "99.1")])
    assert (only.status, "the matrix has no architecture" in only.message) == ("info", True)
