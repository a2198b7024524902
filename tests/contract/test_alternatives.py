"""Refusals of the real matrix whose alternatives were once hard to put into words."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild import matrix, resolve
from envbuild.errors import ConflictError

ROOT = Path(__file__).parents[2]


def test_where_driver_cudnn_and_nccl_all_have_to_go_the_cpu_is_what_is_left() -> None:
    facts = matrix.load_files(ROOT / "matrix.yaml")
    words = ["lasagne-0.1+opencv-3.4", "cudnn~=8.6.0", "nccl>2.12.12"]
    with pytest.raises(ConflictError) as refused:
        resolve.resolve(facts, resolve.parse(words, matrix=facts, driver="440.130"))
    told = {each.name: each.changes for each in refused.value.alternatives}
    assert any("CPU instead of a GPU" in changes for name, changes in told.items() if "-cpu-" in name), told
