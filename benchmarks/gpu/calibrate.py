"""What does the reference check answer on one GPU (or CPU), for healthy runs and for planted faults?

    python benchmarks/gpu/calibrate.py reference|faults --adapter images/recipes/pytorch/smoke.py --json FILE

`reference` trains the guest's reference network from many seeds, with each arithmetic that a GPU may be set to. `faults` trains
it with faults that are planted in PyTorch itself, below the adapter. Both record the guest's own verdict about each run.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import guest

guest.load()
from envbuild_smoke import adapters, plan  # noqa: E402
from envbuild_smoke.datasets import synth  # noqa: E402
from envbuild_smoke.judging import checks  # noqa: E402
from envbuild_smoke.judging.simulate import Case  # noqa: E402
from envbuild_smoke.networks import nets, refnet  # noqa: E402
from envbuild_smoke.rank.context import Context  # noqa: E402

SCHEMA = "envbuild-gpu-calibration/1"
# Arithmetic that PyTorch may be set to on a GPU → the number of healthy runs with it, of 300.
SETTINGS = {"float32": 100, "tf32": 70, "bf16": 60, "cudnn.benchmark": 70}
# Arithmetic → the reduced precisions that the check must allow, each with the reason.
POSSIBLE = {"tf32": {"tf32": "it was asked for"}, "bf16": {"bf16": "it was asked for"}}
FIRST_SEED = 1000
FAULT_SEEDS = (7, 8, 9)


def case(seed: int, replicas: int = 1) -> tuple[Any, dict[str, np.ndarray]]:
    """Return the training case of ``seed`` and the weights that must result. Takes a second on one core."""
    batch, steps = plan.global_batch(replicas), plan.ORACLE["steps"]
    images, labels = synth.digits(steps * batch, seed + 100)
    start = nets.REFERENCE.initial(seed)
    made = Case(nets.REFERENCE, start, images, labels, steps, batch, replicas, plan.ORACLE["lr"], plan.MOMENTUM)
    return made, refnet.train(nets.REFERENCE, start, images, labels, steps, batch, plan.ORACLE["lr"], plan.MOMENTUM)[0]


def cases(seeds: range) -> Iterator[tuple[int, tuple[Any, dict[str, np.ndarray]]]]:
    """Compute the cases of all seeds on all cores. Call this before the process uses the GPU."""
    with ProcessPoolExecutor(max(1, len(os.sched_getaffinity(0))), mp_context=get_context("spawn")) as pool:
        yield from zip(seeds, pool.map(case, seeds, chunksize=4), strict=True)


class Trainer:
    """The adapter of a framework, set up for one device."""

    def __init__(self, path: str) -> None:
        self.adapter = adapters.load(path)()
        kind = "cuda" if _has_gpu() else "cpu"
        self.adapter.setup(Context(0, 1, kind, [0], 1, len(os.sched_getaffinity(0)), {}, 7, None))

    def train(self, made: Any) -> dict[str, np.ndarray]:
        """Return the weights after the steps of a case."""
        rate = plan.ORACLE["lr"]
        handle = self.adapter.make(nets.REFERENCE, made.start, rate, plan.MOMENTUM, [0], "mean")
        for step in range(made.steps):
            part = slice(step * made.batch, (step + 1) * made.batch)
            self.adapter.step(handle, self.adapter.put(handle, made.images[part], made.labels[part]), rate)
        self.adapter.drain()
        weights: dict[str, np.ndarray] = self.adapter.weights(handle, 0)
        return weights


def _has_gpu() -> bool:
    import torch

    return bool(torch.cuda.is_available())


def judged(made: Any, want: dict[str, np.ndarray], weights: dict[str, np.ndarray], possible: dict[str, str]) -> dict[str, Any]:
    """Return the guest's verdict in short: status, error of the worst parameter, and the fault that it names."""
    (said,) = checks.oracle(made.replicas, made, want, [(0, weights)], possible=possible)
    cause = (said["detail"] or {}).get("hypothesis") or {}
    return {
        "status": said["status"],
        "error": said["value"],
        "parameter": said["detail"]["worst_parameter"],
        "named": cause.get("id", ""),
        "message": said["message"],
    }


@contextlib.contextmanager
def arithmetic(setting: str) -> Iterator[None]:
    """Set PyTorch to the arithmetic ``setting`` inside the block."""
    import torch

    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark, cudnn.deterministic
    try:
        matmul.allow_tf32 = cudnn.allow_tf32 = setting == "tf32"
        if setting == "cudnn.benchmark":
            cudnn.benchmark, cudnn.deterministic = True, False
        with torch.autocast("cuda" if _has_gpu() else "cpu", torch.bfloat16, enabled=setting == "bf16"):
            yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark, cudnn.deterministic = before


def reference(path: str, runs: float) -> dict[str, Any]:
    """Make the healthy runs; ``runs`` is the share of the 300 runs to make."""
    wanted = [setting for setting, count in SETTINGS.items() for _ in range(max(1, round(count * runs)))]
    seeds = range(FIRST_SEED, FIRST_SEED + len(wanted))
    ready = list(cases(seeds))
    trainer, found = Trainer(path), []
    for setting, (seed, (made, want)) in zip(wanted, ready, strict=True):
        with arithmetic(setting):
            weights = trainer.train(made)
        found.append({"setting": setting, "seed": seed, **judged(made, want, weights, POSSIBLE.get(setting, {}))})
    return {"runs": found}


def _every_gradient(change: Callable[[Any, int], None]) -> Callable[[Any], None]:
    """Return a function that calls ``change`` with each gradient and its number before an optimizer step."""

    def patch(optimizer: Any) -> None:
        number = 0
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                change(parameter.grad, number)
                number += 1

    return patch


def _group(**settings: Callable[[float], float]) -> Callable[[Any], None]:
    """Return a function that changes settings of the optimizer before each step, by one function for each setting."""

    def patch(optimizer: Any) -> None:
        for group in optimizer.param_groups:
            for name, change in settings.items():
                group[name] = change(group[name])

    return patch


def faults() -> dict[str, tuple[str, Callable[[Any], None] | None]]:
    """Return twelve faults of PyTorch: name → (the cause that the judge ought to name, what to call before each optimizer
    step).

    `planted` plants the last three faults in the loss function.
    """
    import torch

    kept: list[Any] = []

    def noise(gradient: Any, _: int) -> None:
        gradient.mul_(1 + 1e-3 * torch.randn_like(gradient))

    def halves(gradient: Any, _: int) -> None:
        gradient.copy_(gradient.half().float())

    def no_bias(gradient: Any, number: int) -> None:
        if number == 1:
            gradient.zero_()

    def late(optimizer: Any) -> None:
        gradients = [parameter.grad for group in optimizer.param_groups for parameter in group["params"]]
        now = [gradient.clone() for gradient in gradients]
        for gradient, old in zip(gradients, kept or [torch.zeros_like(each) for each in now], strict=True):
            gradient.copy_(old)
        kept[:] = now

    late.fresh = kept.clear  # type: ignore[attr-defined]
    return {
        "learning rate +1 %": ("learning-rate", _group(lr=lambda rate: rate * 1.01)),
        "momentum 0.95": ("momentum", _group(momentum=lambda _: 0.95)),
        "no momentum": ("no-momentum", _group(momentum=lambda _: 0.0)),
        "Nesterov": ("nesterov", _group(nesterov=lambda _: True)),
        "weight decay 1e-3": ("weight-decay", _group(weight_decay=lambda _: 1e-3)),
        "gradients with noise of 1e-3": ("noise", _every_gradient(noise)),
        "gradients as fp16": ("gradients-in-float16", _every_gradient(halves)),
        "a bias without a gradient": ("frozen-conv1_b", _every_gradient(no_bias)),
        "late gradients": ("late-gradients", late),
        "one label of 64 wrong": ("wrong-labels", None),
        "loss summed": ("loss-summed", None),
        "one image of 64 twice": ("", None),
    }


@contextlib.contextmanager
def planted(name: str, before: Callable[[Any], None] | None) -> Iterator[None]:
    """Plant a fault in PyTorch inside the block."""
    import torch

    sgd, functional = torch.optim.SGD, torch.nn.functional
    step, entropy = sgd.step, functional.cross_entropy
    if hasattr(before, "fresh"):
        before.fresh()  # type: ignore[union-attr]

    def faulty_step(self: Any, *rest: Any, **more: Any) -> Any:
        if before is not None:
            before(self)
        return step(self, *rest, **more)

    def faulty_entropy(logits: Any, labels: Any, *rest: Any, **more: Any) -> Any:
        if name == "one label of 64 wrong":
            labels = labels.clone()
            labels[0] = (labels[0] + 1) % 10
        if name == "one image of 64 twice":
            order = torch.arange(len(labels), device=labels.device)
            order[1] = 0
            logits, labels = logits[order], labels[order]
        if name == "loss summed":
            more["reduction"] = "sum"
        return entropy(logits, labels, *rest, **more)

    try:
        sgd.step, functional.cross_entropy = faulty_step, faulty_entropy
        yield
    finally:
        sgd.step, functional.cross_entropy = step, entropy


def planted_faults(path: str) -> dict[str, Any]:
    """Train with each fault from several seeds, and from the same seeds without a fault."""
    ready = [(seed, case(seed)) for seed in FAULT_SEEDS]
    trainer, found = Trainer(path), []
    for name, (expected, before) in {"none": ("", None), **faults()}.items():
        for seed, (made, want) in ready:
            start = time.perf_counter()
            with planted(name, before):
                weights = trainer.train(made)
            said = judged(made, want, weights, {})
            found.append({"fault": name, "expected": expected, "seed": seed, "seconds": time.perf_counter() - start, **said})
    return {"runs": found}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("reference", "faults"))
    parser.add_argument("--adapter", required=True)
    parser.add_argument("--json", required=True, type=Path)
    parser.add_argument(
        "--runs", type=float, default=1.0, metavar="SHARE", help="the share of the healthy runs to do (default: all 300)"
    )
    options = parser.parse_args()
    os.environ.pop("NVIDIA_TF32_OVERRIDE", None)  # it would override the setting `tf32`
    work = {"reference": functools.partial(reference, runs=options.runs), "faults": planted_faults}
    start = time.perf_counter()
    answer = work[options.what](options.adapter)
    import torch

    device = torch.cuda.get_device_name(0) if _has_gpu() else "cpu"
    framework = {"name": "pytorch", "version": torch.__version__, "cuda": torch.version.cuda}
    facts = {"schema": SCHEMA, "device": device, "framework": framework, "seconds": time.perf_counter() - start}
    options.json.write_text(json.dumps({**facts, **answer}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
