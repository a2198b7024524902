"""`matrix show` and `resolve` agree about which CUDA supports which GPU, for all GPUs and all builds of the matrix."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from real_matrix import FACTS

from envbuild.errors import ConflictError
from envbuild.matrix.gpu_code import code_for
from envbuild.matrix.gpu_names import find_architecture
from envbuild.matrix.queries import window
from envbuild.matrix.types import Matrix, Release, Variant
from envbuild.resolve.request.gpus import find_gpu
from envbuild.resolve.request.parser import parse
from envbuild.resolve.resolution import resolve
from envbuild.resolve.search.hardware import hardware_objections
from envbuild.resolve.search.lookup import lookup_of
from envbuild.resolve.search.release_order import in_order_of_choice, wider_patch


@pytest.fixture(scope="module")
def facts() -> Matrix:
    return FACTS


def builds(facts: Matrix) -> Iterator[tuple[str, Variant]]:
    """GPU builds: one of each group of builds that all GPU rules treat in the same way."""
    found = {}
    for table in facts.frameworks:
        for release in table.releases:
            for variant in release.variants:
                if variant.cuda:
                    key = (variant.cuda, variant.sass, variant.ptx, variant.bad_capabilities)
                    found.setdefault(key, (f"{table.name} {release.version} {variant.name}", variant))
    return iter(found.values())


def test_show_and_resolve_agree_on_every_gpu_and_cuda(facts: Matrix) -> None:
    boards = {row.capability: row for row in facts.gpus if not row.host}
    request = parse(["tf"], matrix=facts, gpu="K80")
    look_up = lookup_of(facts)
    wrong = []
    for capability, board in boards.items():
        gpu, _ = find_gpu(facts, board.name)
        architecture = find_architecture(facts, capability)
        assert architecture is not None
        shown = window(facts, architecture)
        served = {*shown["cuda"], *shown["cuda_by_code_for_earlier_gpus"]}
        for row, variant in builds(facts):
            against = hardware_objections(look_up, request._replace(gpus=(gpu,)), row, variant)
            if not against and variant.cuda not in served:
                wrong.append(f"{row} (CUDA {variant.cuda}) is accepted for {board.name}, whose CUDA are {sorted(served)}")
            code = code_for(variant, capability)
            if not against and code == "none":
                wrong.append(f"{row} has no code for {board.name}")
            if (
                not against
                and code != "native"
                and architecture.ptx_from
                and float(variant.cuda) < float(architecture.ptx_from)
            ):
                wrong.append(f"{row} is accepted by its PTX for {board.name}")
    assert not wrong, wrong[:5]


@pytest.mark.parametrize(("gpu", "cuda"), [("B200", "12.2"), ("RTX 5090", "12.6"), ("RTX PRO 4000 Blackwell", "12.1")])
def test_blackwell_takes_no_cuda_before_its_own(facts: Matrix, gpu: str, cuda: str) -> None:
    board = find_gpu(facts, gpu)[0]
    assert board.architecture is not None
    shown = window(facts, board.architecture)
    assert cuda not in (*shown["cuda"], *shown["cuda_by_code_for_earlier_gpus"])


def test_ptx_runs_on_its_own_and_later_capabilities_only(facts: Matrix) -> None:
    release = _release(facts, "pytorch", "1.3.1")
    for variant in release.variants:
        if variant.cuda:
            assert variant.ptx == ("3.7",)
            assert [code_for(variant, capability) for capability in ("3.5", "3.7", "8.0")] == ["none", "native", "ptx"]


def test_the_patches_that_are_put_behind_are_those_of_the_decision(facts: Matrix) -> None:
    """If this fails for a new patch release, decide whether its place is right and add it to the decision in docs/decisions."""
    narrowed = {
        f"{table.name} {release.version}": found.version
        for table in facts.frameworks
        for release in table.releases
        if (found := wider_patch(release, table.releases)) is not None
    }
    assert narrowed == {
        "tensorflow 1.12.3": "1.12.0",
        "tensorflow 1.12.2": "1.12.0",
        "mxnet 1.0.0.post4": "1.0.0.post2",
    }


def test_the_order_of_choice_keeps_all_else(facts: Matrix) -> None:
    for table in facts.frameworks:
        ordered = [release.version for release in in_order_of_choice(table.releases)]
        usual = [release.version for release in table.releases]
        assert sorted(ordered) == sorted(usual)
        if table.name not in {"tensorflow", "mxnet"}:
            assert ordered == usual


def test_a_named_patch_and_the_cpu_keep_the_newest(facts: Matrix) -> None:
    for words, version in (
        ("tf-1.12-cuda9", "1.12.0"),
        ("tf-1.12", "1.12.0"),
        ("tf-1.12.3", "1.12.3"),
        ("tf-1.12-cpu", "1.12.3"),
    ):
        found = resolve(facts, parse([words], matrix=facts))
        assert found.environment.frameworks[0].version == version
    because = resolve(facts, parse(["tf-1.12-cuda9"], matrix=facts)).reasons[0].because
    assert "1.12.3 and 1.12.2 have native code only for compute capability 3.7" in because


def test_an_older_cuda_that_the_request_names_too_is_told(facts: Matrix) -> None:
    reasons = resolve(facts, parse(["pytorch-0.4.1-cuda9"], matrix=facts)).reasons
    assert any("builds for CUDA 9.0 exist too: to get one, ask for cuda9.0" in reason.because for reason in reasons)


def test_a_cudnn_that_dropped_the_gpu_is_not_chosen(facts: Matrix) -> None:
    newest = {row.version: row.capability_min for row in facts.cudnn}
    for gpu in ("K80", "GTX 980", "V100", "T4"):
        capability = find_gpu(facts, gpu)[0].capability
        for words in ("tf-2.10", "tf-2.11", "tf-2.12", "tf-2.13"):
            found = resolve(facts, parse([words], matrix=facts, gpu=gpu)).environment
            assert float(newest[found.cudnn or ""] or 0) <= float(capability), found.name


def _release(facts: Matrix, name: str, version: str) -> Release:
    table = next(table for table in facts.frameworks if table.name == name)
    return next(release for release in table.releases if release.version == version)


@pytest.mark.parametrize(
    ("request_text", "gpu"),
    [
        ("caffe-1.0.0-cuda8.0", "GeForce GTX 560 Ti"),
        ("mxnet-1.9.1-cuda10.2", "GeForce GTX 560 Ti"),
        ("tf-1.4-cuda8.0", "Tesla V100"),
        ("pytorch-2.6", "GeForce RTX 5090"),
    ],
)
def test_a_gpu_that_is_offered_instead_is_served(facts: Matrix, request_text: str, gpu: str) -> None:
    with pytest.raises(ConflictError) as caught:
        resolve(facts, parse([request_text], matrix=facts, gpu=gpu))
    offers = [
        (item.name, found[1]) for item in caught.value.alternatives if (found := re.match(r"on the GPU (.+) \(", item.changes))
    ]
    for name, board in offers:
        resolve(facts, parse([name], matrix=facts, gpu=board))
    assert offers
