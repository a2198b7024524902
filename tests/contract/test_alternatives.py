"""Refusals of the real matrix whose alternatives were once hard to put into words."""

from __future__ import annotations

import pytest
from real_matrix import FACTS

from envbuild.errors import ConflictError
from envbuild.resolve.request.parser import parse
from envbuild.resolve.resolution import resolve


def test_where_driver_cudnn_and_nccl_all_have_to_go_the_cpu_is_what_is_left() -> None:
    words = ["lasagne-0.1+opencv-3.4", "cudnn~=8.6.0", "nccl>2.12.12"]
    with pytest.raises(ConflictError) as refused:
        resolve(FACTS, parse(words, matrix=FACTS, driver="440.130"))
    told = {each.name: each.changes for each in refused.value.alternatives}
    assert any("CPU instead of a GPU" in changes for name, changes in told.items() if "-cpu-" in name), told


# A driver, a GPU and a CUDA with which no GPU build works.
REFUSED = {"driver": ("", {"driver": "300.1"}), "gpu": ("", {"gpu": "sm_13"}), "cuda": ("-cuda7.0", {})}


def releases_for_both() -> list[str]:
    """The newest release of each framework that has builds for GPUs and for CPUs."""
    found = []
    for table in FACTS.frameworks:
        for release in table.releases:
            usable = [variant for variant in release.variants if variant.origin.status != "known-bad"]
            if len({bool(variant.cuda) for variant in usable}) == 2 and not any("7.0" in variant.cuda for variant in usable):
                found.append(f"{table.short}-{release.version}")
                break
    return found


@pytest.mark.parametrize("reason", REFUSED)
@pytest.mark.parametrize("name", releases_for_both())
def test_each_refusal_of_a_gpu_offers_the_same_release_on_the_cpu(name: str, reason: str) -> None:
    words, options = REFUSED[reason]
    on_cpu = resolve(FACTS, parse([f"{name}-cpu"], matrix=FACTS)).environment.name
    with pytest.raises(ConflictError) as refused:
        resolve(FACTS, parse([name + words], matrix=FACTS, **options))
    assert on_cpu in [each.name for each in refused.value.alternatives]
