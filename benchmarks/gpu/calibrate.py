"""What does the reference check answer on one GPU (or CPU), for healthy runs and for planted faults?

    python benchmarks/gpu/calibrate.py reference|faults --adapter images/recipes/pytorch/smoke.py --json FILE

`reference` trains the guest's reference network from many seeds, with each arithmetic to which PyTorch can be set on a GPU.
`faults` trains the network with faults that are planted in PyTorch itself, below the adapter. Both record the guest's own
verdict about each run.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import guest

guest.load()
from envbuild_smoke import adapters, plan  # noqa: E402
from envbuild_smoke.datasets import synth  # noqa: E402
from envbuild_smoke.judging import checks, later_steps  # noqa: E402
from envbuild_smoke.judging.simulate import Case  # noqa: E402
from envbuild_smoke.networks import nets, refnet  # noqa: E402
from envbuild_smoke.rank.context import Context  # noqa: E402

SCHEMA = "envbuild-gpu-calibration/1"
# Arithmetic that PyTorch may be set to on a GPU → the number of healthy runs with it, of 300.
SETTINGS = {"float32": 120, "tf32": 50, "bf16": 40, "cudnn.benchmark": 90}
# Arithmetic → the reduced precisions that the check must allow, each with the reason.
POSSIBLE = {"tf32": {"tf32": "it was asked for"}, "bf16": {"bf16": "it was asked for"}}
STEP_RUNS = 15  # number of runs with each arithmetic in which each step is also judged alone
FIRST_SEED = 1000
FAULT_SEEDS = (7, 8, 9)


def start_of(seed: int) -> Case:
    """Return the training case of ``seed`` on one device."""
    batch, steps = plan.global_batch(1), plan.ORACLE["steps"]
    images, labels = synth.digits(steps * batch, seed + 100)
    return Case(nets.REFERENCE, nets.REFERENCE.initial(seed), images, labels, steps, batch, 1, plan.ORACLE["lr"], plan.MOMENTUM)


def case(seed: int) -> tuple[Case, dict[str, np.ndarray]]:
    """Return the training case of ``seed``, and the weights that the training must give. This takes a second on one core."""
    made = start_of(seed)
    return made, refnet.train(made.net, made.start, made.images, made.labels, made.steps, made.batch, made.lr, made.momentum)[0]


@contextlib.contextmanager
def workers() -> Iterator[ProcessPoolExecutor]:
    """Start a pool for work in NumPy: one process for each core, each with one thread."""
    os.environ.update(
        dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    )  # the settings of the new processes
    with ProcessPoolExecutor(max(1, len(os.sched_getaffinity(0))), mp_context=get_context("spawn")) as pool:
        yield pool


class Trainer:
    """The adapter of a framework, set up for one device."""

    def __init__(self, path: str) -> None:
        self.adapter = adapters.load(path)()
        self.kind = "cuda" if _has_gpu() else "cpu"
        self.adapter.setup(Context(0, 1, self.kind, [0], 1, len(os.sched_getaffinity(0)), {}, 7, None))

    def train(self, made: Any, more: int = 0, exact: bool = True) -> list[dict[str, np.ndarray]]:
        """Return the weights after each step of a case, and after ``more`` steps on the same batches.

        If not ``exact``, cuDNN may choose other algorithms than those of the reference phase.
        """
        rate, every = plan.ORACLE["lr"], []
        self.adapter.exact(exact)
        handle = self.adapter.make(nets.REFERENCE, made.start, rate, plan.MOMENTUM, [0], "mean")
        for step in range(made.steps + more):
            low = step % made.steps * made.batch
            part = slice(low, low + made.batch)
            self.adapter.step(handle, self.adapter.put(handle, made.images[part], made.labels[part]), rate)
            every.append(self.adapter.weights(handle, 0))
        return every


def _has_gpu() -> bool:
    import torch

    return bool(torch.cuda.is_available())


def judged(seed: int, every: list[dict[str, np.ndarray]], possible: dict[str, str], kind: str) -> dict[str, Any]:
    """Return the guest's verdict in short: its status, the error of each parameter, and the fault that it names.

    ``every`` has the weights after each step. If there are more steps than the check compares, the result has the errors of
    each single step in `steps`.
    """
    made, want = case(seed)
    (said,) = checks.oracle(made.replicas, made, want, [(0, every[made.steps - 1])], possible=possible, kind=kind)
    found, message = {"status": said["status"]}, said["message"]
    if len(every) > made.steps:
        with tempfile.NamedTemporaryFile(suffix=".npz") as file:
            np.savez(file, **{name: np.stack([weights[name] for weights in every]) for name in want})
            file.flush()
            steps = later_steps.measure(made, file.name)
        found["steps"] = [step.errors for step in steps]
        if said["status"] != "fail":
            limits = later_steps.limits_of(made.net, kind, reduced=said["status"] == "warn")
            last = later_steps.judge(said, steps, made.steps, limits)
            found["status"], message = last["status"], last["message"]
    cause = (said["detail"] or {}).get("hypothesis") or {}
    return {
        **found,
        "error": said["value"],
        "parameter": said["detail"]["worst_parameter"],
        "parameters": said["detail"]["parameters"],
        "named": cause.get("id", ""),
        "message": message,
    }


@contextlib.contextmanager
def arithmetic(setting: str) -> Iterator[None]:
    """Set PyTorch to the arithmetic ``setting`` inside the block."""
    import torch

    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32
    try:
        matmul.allow_tf32 = cudnn.allow_tf32 = setting == "tf32"
        with torch.autocast("cuda" if _has_gpu() else "cpu", torch.bfloat16, setting == "bf16", cache_enabled=False):
            yield  # with its cache, autocast would keep the first rounded weights until the block ends
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = before


def reference(path: str, runs: float) -> Iterator[dict[str, Any]]:
    """Make the healthy runs. Repeatedly yield all runs that are judged so far. ``runs`` is the share of the runs to make."""
    wanted = [(setting, number) for setting, count in SETTINGS.items() for number in range(max(1, round(count * runs)))]
    with workers() as pool:
        seeds = range(FIRST_SEED, FIRST_SEED + len(wanted))
        starts = pool.map(start_of, seeds, chunksize=4)
        trainer, found = Trainer(path), []
        for seed, start, (setting, number) in zip(seeds, starts, wanted, strict=True):
            with arithmetic(setting):
                more = plan.ORACLE["more"] if number < STEP_RUNS else 0
                every = trainer.train(start, more, exact=setting != "cudnn.benchmark")
            verdict = pool.submit(judged, seed, every, POSSIBLE.get(setting, {}), trainer.kind)
            found.append(({"setting": setting, "seed": seed}, verdict))
        yield from _as_judged(found)


def _as_judged(found: list[tuple[dict[str, Any], Future[dict[str, Any]]]]) -> Iterator[dict[str, Any]]:
    """After every 30 runs and at the end, yield all runs that are judged so far."""
    ready = []
    for number, (run, verdict) in enumerate(found, 1):
        ready.append({**run, **verdict.result()})
        if number % 30 == 0 or number == len(found):
            yield {"runs": ready}


def _every_gradient(change: Callable[[Any, int], None]) -> Callable[[Any], None]:
    """Return a function to call before an optimizer step. It calls ``change`` with each gradient and the gradient's number."""

    def patch(optimizer: Any) -> None:
        number = 0
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                change(parameter.grad, number)
                number += 1

    return patch


def _group(**settings: Callable[[float], float]) -> Callable[[Any], None]:
    """Return a function to call before an optimizer step. It changes settings of the optimizer.

    ``settings`` maps the name of a setting to a function that computes the new value from the old value.
    """

    def patch(optimizer: Any) -> None:
        for group in optimizer.param_groups:
            for name, change in settings.items():
                group[name] = change(group[name])

    return patch


def faults() -> dict[str, tuple[str, Callable[[Any], None] | None]]:
    """Return twelve faults of PyTorch: name → (cause, function).

    The check ought to name this cause. The function is to be called before each optimizer step. It is None for the last three
    faults, which `planted` plants in the loss function.
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
    """Plant the fault ``name`` in PyTorch inside the block. ``before`` is called before each optimizer step."""
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


def planted_faults(path: str) -> Iterator[dict[str, Any]]:
    """Train with each fault from several seeds, and from the same seeds without a fault.

    Repeatedly yield all runs that are judged so far.
    """
    with workers() as pool:
        trainer, found = Trainer(path), []
        for name, (expected, before) in {"none": ("", None), **faults()}.items():
            for seed in FAULT_SEEDS:
                with planted(name, before):
                    every = trainer.train(start_of(seed))
                verdict = pool.submit(judged, seed, every, {}, trainer.kind)
                found.append(({"fault": name, "expected": expected, "seed": seed}, verdict))
        yield from _as_judged(found)


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
    import torch

    start = time.perf_counter()
    device = torch.cuda.get_device_name(0) if _has_gpu() else "cpu"
    framework = {"name": "pytorch", "version": torch.__version__, "cuda": torch.version.cuda}
    for answer in work[options.what](options.adapter):  # if the time runs out, the last written file is kept
        facts = {"schema": SCHEMA, "device": device, "framework": framework, "seconds": time.perf_counter() - start}
        part = options.json.with_suffix(".part")
        part.write_text(json.dumps({**facts, **answer}, indent=1) + "\n")
        part.replace(options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
