"""Faults planted in the real PyTorch, in its optimizer and in DistributedDataParallel: each fails and is named."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from .conftest import GUEST, INSIDE, PYTHONS, REPOSITORY, Guest

TORCH = ("torch==1.12.1", "numpy==1.23.5")  # this torch needs no other wheels
SECOND = ["fc1_w", "fc1_b", "fc2_w", "fc2_b"]
# Faults of benchmarks/faulty_pytorch.py → (the checks that must fail, the cause that must be named).
OF_TRAINING = {
    "": (set(), None),
    "lr=1.01": ({"ORACLE"}, "learning-rate"),
    "momentum=0.95": ({"ORACLE"}, "momentum"),
    "weight_decay=1e-3": ({"ORACLE"}, "weight-decay"),
    "nesterov": ({"ORACLE"}, "nesterov"),
    "label": ({"ORACLE"}, "wrong-labels"),
    "noise=1e-3": ({"ORACLE"}, "noise"),
    "fp16": ({"ORACLE"}, "gradients-in-float16"),
    "kept-fp16": ({"ORACLE"}, "weights-in-float16"),
    "by-fewer": ({"ORACLE"}, "gradients-summed"),  # divided by 1 instead of 2 ranks
    "silent-fc2_b": ({"ORACLE"}, "silent-fc2_b-rank-1"),
    "stale-rank": ({"ORACLE"}, "stale-rank-1"),
    "state-lost": ({"ORACLE", "REPLICA"}, "no-momentum-rank-1"),
    "lr-rank=1.05": ({"ORACLE", "REPLICA"}, "learning-rate-rank-1"),
    "frozen-conv1_w": ({"ORACLE", "REPLICA"}, "frozen-conv1_w-rank-1"),
}
# With this torch, Gloo cannot exchange bfloat16: test_faults.py has that fault.
OF_TIMED_STEPS = {"": None, "fp16-later": "the gradients are rounded to float16"}
OF_BUCKETS = {
    "": None,
    "not-exchanged": "bucket-not-exchanged",
    "lost": "bucket-lost",
    "late": "bucket-lost",  # in the first step with a second bucket there is no earlier gradient
    "half-precision": "bucket-rounded",
    "views-swapped": None,
}


@pytest.fixture(scope="module")
def with_torch(tmp_path_factory: pytest.TempPathFactory) -> Guest:
    """PyTorch for Python 3.10, and a copy of the guest with its adapter and the faulty one."""
    if "3.10" not in PYTHONS:
        pytest.skip("this machine has no Python 3.10")
    folder = tmp_path_factory.mktemp("torch")
    install = [PYTHONS["3.10"], "-m", "pip", "install", "--quiet", "--only-binary=:all:", "--target", str(folder), *TORCH]
    subprocess.run(install, check=True)
    guest = tmp_path_factory.mktemp("guest") / "smoke"
    shutil.copytree(GUEST, guest, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(REPOSITORY / "images/recipes/pytorch/smoke.py", guest / "adapters/pytorch.py")
    shutil.copy(INSIDE / "faulty_ddp.py", guest / "adapters/faulty_ddp.py")
    return Guest("3.10", PYTHONS["3.10"], folder, guest=guest)


@pytest.mark.prove
@pytest.mark.parametrize("fault", OF_TRAINING)
def test_a_fault_of_training_fails_and_is_named(with_torch: Guest, tmp_path: Path, fault: str) -> None:
    adapter = REPOSITORY / "benchmarks" / "faulty_pytorch.py"
    chosen = ("--adapter", adapter, "--option", f"fault={fault}", "--counts", "2", "--phases", "oracle")
    answer = with_torch.run("run", *chosen, folder=tmp_path)
    failed, cause = OF_TRAINING[fault]
    assert (answer.code, answer.failed()) == (1 if failed else 0, failed), answer.out
    assert (answer.check("ORACLE", 2)["detail"]["hypothesis"] or {}).get("id") == cause


@pytest.mark.prove
@pytest.mark.parametrize("fault", OF_TIMED_STEPS)
def test_a_fault_of_timed_steps_fails_and_is_named(with_torch: Guest, tmp_path: Path, fault: str) -> None:
    adapter = REPOSITORY / "benchmarks" / "faulty_pytorch.py"
    chosen = ("--adapter", adapter, "--option", f"fault={fault}", "--counts", "2", "--phases", "bench", "--rounds", "3")
    answer = with_torch.run("run", *chosen, folder=tmp_path)
    exchange, words = answer.check("EXCHANGE", 2), OF_TIMED_STEPS[fault]
    assert (answer.code, exchange["status"]) == ((1, "fail") if words else (0, "pass")), answer.out
    assert (words or "average the gradients of 2 devices") in exchange["message"]


@pytest.mark.prove
@pytest.mark.parametrize("fault", ["", "untrained=64"])
def test_layers_that_never_train_are_found_in_a_large_network(with_torch: Guest, tmp_path: Path, fault: str) -> None:
    """The reference network has no such layers, and their part of the whole gradient is small."""
    adapter = REPOSITORY / "benchmarks" / "faulty_pytorch.py"
    quick = ("--phases", "oracle,bench", "--batch", "8", "--rounds", "2", "--round-seconds", "0.2")
    chosen = ("--adapter", adapter, "--option", f"fault={fault}", "--counts", "2", "--workload", "cifar", "--net", "resnet20")
    answer = with_torch.run("run", *chosen, *quick, folder=tmp_path)
    exchange = answer.check("EXCHANGE", 2)
    assert answer.check("ORACLE", 2)["status"] == "pass"
    assert (answer.code, exchange["status"]) == ((1, "fail") if fault else (0, "pass")), answer.out
    assert ("in parameter " in exchange["message"]) == bool(fault)


@pytest.mark.prove
@pytest.mark.parametrize("fault", OF_BUCKETS)
def test_a_fault_of_a_later_bucket_fails_with_its_parameters(with_torch: Guest, tmp_path: Path, fault: str) -> None:
    chosen = ("--adapter", "faulty_ddp", "--option", f"fault={fault}", "--counts", "2", "--phases", "oracle,buckets")
    answer = with_torch.run("run", *chosen, folder=tmp_path)
    buckets = answer.check("BUCKETS", 2)
    assert answer.check("ORACLE", 2)["status"] == "pass"
    if not fault:
        assert (answer.code, buckets["status"]) == (0, "pass"), answer.out
        return
    assert (answer.code, answer.failed()) == (1, {"BUCKETS"}), answer.out
    assert (buckets["detail"]["hypothesis"], buckets["detail"]["wrong"]) == (OF_BUCKETS[fault], SECOND)
