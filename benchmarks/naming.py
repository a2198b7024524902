"""How often does the reference check name the right cause of a fault, a wrong cause, or none?

    python benchmarks/naming.py [--runs 300] [--first 0] [--batch 64] [--jobs 2] [--minutes 0] [--fault WORDS] [--write]

Trains the reference network in single precision on two replicas and asks the reference check for the cause of its error. Each
run plants a fault of random size in this file's own training loop, with other weights, images and labels than the other runs.
The check has a name for most of the faults. For the remaining faults, and for a healthy run, every name is wrong. Each run is
checked twice. First, no reduced precision is allowed: healthy runs must pass, and all other runs must fail. Then bfloat16 is
allowed: healthy runs and runs in bfloat16 without another fault must pass, and all other runs must fail. Exits with 1 if a
check gives another result. With --write the counts are written to
docs/explanation/naming.json, and the table to docs/explanation/detection.md.
"""

# Methods of the healthy training have arguments that only its subclasses, the faults, use.
# ruff: noqa: ARG002

from __future__ import annotations

import argparse
import collections
import json
import multiprocessing
import sys
from datetime import UTC, datetime
from typing import Any

import guest
import numpy as np
from naming_page import ALLOWED_PASSED, DATA, NONE, OTHER, PAGE, PASSED, RIGHT, SCHEMA, page, table

guest.load()

from envbuild_smoke import plan  # noqa: E402
from envbuild_smoke.datasets import synth  # noqa: E402
from envbuild_smoke.judging import checks, diagnose, fitting, simulate  # noqa: E402
from envbuild_smoke.networks import nets, refnet, rounding  # noqa: E402

NET, STEPS, LR, MOMENTUM = nets.REFERENCE, plan.ORACLE["steps"], plan.ORACLE["lr"], plan.MOMENTUM
NOISE = 1e-7  # relative noise of each gradient; another order of summation or another library causes as much noise
ALLOWED = {"bf16": "leave out the option precision to compute in single precision"}
Weights = dict[str, Any]
Result = tuple[str, str, str, bool]


class Training:
    """Two replicas in float32. A fault overrides one method; each run draws its own `size` with its own generator `draw`."""

    name = ""  # the name that the check should give; '' if it has none for this fault
    low, high = 0.0, 0.0  # exponents of ten: the size of the fault is drawn between the two powers

    def __init__(self, case: simulate.Case, draw: np.random.RandomState) -> None:
        self.case, self.draw = case, draw
        self.size = float(10 ** draw.uniform(self.low, self.high))
        self.kept: dict[Any, Any] = {}

    def data(self, replica: int, step: int) -> tuple[Any, Any]:
        """Return the images of a replica, as numbers from 0 to 1, and their labels."""
        per = self.case.batch // self.case.replicas
        order = step * self.case.batch + replica * per + self.draw.permutation(per)
        return refnet.scaled(self.case.images[order], "float32"), self.case.labels[order]

    def gradient(self, replica: int, step: int, p: Weights) -> Weights:
        found: Weights = refnet.loss_and_gradient(NET, p, *self.data(replica, step))[1]
        return found

    def exchanged(self, name: str, gradients: list[Any], replica: int) -> Any:
        """Return the gradient that a replica applies to one parameter. Without a fault, both replicas apply the same gradient.

        ``gradients`` has the gradient of each replica.
        """
        return sum(gradients) / np.float32(len(gradients))

    def update(self, replica: int, step: int, p: Weights, v: Weights, g: Weights) -> None:
        refnet.update(p, v, g, np.float32(LR), np.float32(MOMENTUM))

    def run(self) -> list[tuple[int, Weights]]:
        replicas = range(self.case.replicas)
        p = [{name: a.astype("float32") for name, a in self.case.start.items()} for _ in replicas]
        v = [{name: np.zeros_like(a) for name, a in each.items()} for each in p]
        for step in range(STEPS):
            gradients = [self.gradient(replica, step, p[replica]) for replica in replicas]
            noise = {name: 1 + NOISE * self.draw.normal(0, 1, a.shape) for name, a in p[0].items()}
            for replica in replicas:
                mean = {
                    name: self.exchanged(name, [each[name] for each in gradients], replica) * noise[name] for name in NET.names
                }
                self.update(replica, step, p[replica], v[replica], {name: a.astype("float32") for name, a in mean.items()})
        return list(enumerate(p))


class Healthy(Training):
    pass


class Rate(Training):
    name, low, high = "learning-rate", -3, -0.7

    def update(self, replica: int, step: int, p: Weights, v: Weights, g: Weights) -> None:
        refnet.update(p, v, g, np.float32(LR * (1 + self.size)), np.float32(MOMENTUM))


class RateOfOne(Training):
    name, low, high = "learning-rate-rank-1", -2.5, -0.7

    def update(self, replica: int, step: int, p: Weights, v: Weights, g: Weights) -> None:
        refnet.update(p, v, g, np.float32(LR * (1 + self.size * replica)), np.float32(MOMENTUM))


class Momentum(Training):
    name, low, high = "momentum", -3, -1.2

    def update(self, replica: int, step: int, p: Weights, v: Weights, g: Weights) -> None:
        refnet.update(p, v, g, np.float32(LR), np.float32(MOMENTUM - self.size))


class Decay(Training):
    name, low, high = "weight-decay", -4.5, -2.3

    def update(self, replica: int, step: int, p: Weights, v: Weights, g: Weights) -> None:
        refnet.update(p, v, {name: g[name] + self.size * p[name] for name in g}, np.float32(LR), np.float32(MOMENTUM))


class StateLost(Training):
    name = "no-momentum-rank-1"

    def update(self, replica: int, step: int, p: Weights, v: Weights, g: Weights) -> None:
        refnet.update(p, v, g, np.float32(LR), np.float32(0 if replica else MOMENTUM))


class BiasesOfOne(Training):
    name = "frozen-biases-rank-1"

    def update(self, replica: int, step: int, p: Weights, v: Weights, g: Weights) -> None:
        before = {name: p[name].copy() for name in p if name.endswith("_b")}
        super().update(replica, step, p, v, g)
        p.update(before if replica else {})


class Stale(Training):
    name = "stale-rank-1"

    def gradient(self, replica: int, step: int, p: Weights) -> Weights:
        fresh = super().gradient(replica, step, p)
        if not replica:
            return fresh
        before = self.kept.get("before") or {name: np.zeros_like(a) for name, a in fresh.items()}
        self.kept["before"] = fresh
        return before


class Noise(Training):
    name, low, high = "noise", -3.7, -1.7

    def exchanged(self, name: str, gradients: list[Any], replica: int) -> Any:
        mean = super().exchanged(name, gradients, replica)
        if not replica:
            self.kept[name] = self.draw.normal(0, 1, mean.shape)
        return mean * (1 + self.size * self.kept[name])


class HalfGradients(Training):
    name = "gradients-in-float16"

    def exchanged(self, name: str, gradients: list[Any], replica: int) -> Any:
        parts = [each.astype("float16") for each in gradients]
        return sum(parts[1:], parts[0]).astype("float32") / np.float32(len(parts))


class HalfWeights(Training):
    name = "weights-in-float16"

    def update(self, replica: int, step: int, p: Weights, v: Weights, g: Weights) -> None:
        super().update(replica, step, p, v, g)
        p.update({name: a.astype("float16").astype("float32") for name, a in p.items()})


class BFloat16(Training):
    name = "reduced-bf16"
    numbers = rounding.Reduced("bf16")

    def gradient(self, replica: int, step: int, p: Weights) -> Weights:
        found: Weights = refnet.loss_and_gradient(NET, p, *self.data(replica, step), self.numbers)[1]
        return {name: np.asarray(a, "float32") for name, a in found.items()}


class Tf32(BFloat16):
    name = "reduced-tf32"
    numbers = rounding.Reduced("tf32")


class BFloat16AndRate(BFloat16):
    """Layers compute in bfloat16, and the learning rate is too high. The allowed precision must not hide the other fault."""

    name, low, high = "learning-rate", -1.7, -0.7

    def update(self, replica: int, step: int, p: Weights, v: Weights, g: Weights) -> None:
        refnet.update(p, v, g, np.float32(LR * (1 + self.size)), np.float32(MOMENTUM))


class Labels(Training):
    name = "wrong-labels"

    def data(self, replica: int, step: int) -> tuple[Any, Any]:
        images, labels = super().data(replica, step)
        if not replica:
            labels = np.concatenate([(labels[:1] + self.draw.randint(1, 10)) % 10, labels[1:]])
        return images, labels


class Smoothed(Training):
    name, low, high = "label-smoothing", -2.5, -0.7

    def gradient(self, replica: int, step: int, p: Weights) -> Weights:
        images, labels = self.data(replica, step)
        found: Weights = refnet.loss_and_gradient(NET, p, images, labels)[1]
        others = [refnet.loss_and_gradient(NET, p, images, np.full_like(labels, k))[1] for k in range(10)]
        return {
            name: ((1 - self.size) * a + self.size / 10 * sum(each[name] for each in others)).astype("float32")
            for name, a in found.items()
        }


class Dampened(Training):
    """From the second step on, gradients are multiplied by a factor below 1."""

    name, low, high = "dampening", -2.5, -0.7

    def update(self, replica: int, step: int, p: Weights, v: Weights, g: Weights) -> None:
        super().update(replica, step, p, v, {name: a * np.float32(1 - self.size * (step > 0)) for name, a in g.items()})


class DampenedOne(Dampened):
    name = "dampening-rank-1"

    def update(self, replica: int, step: int, p: Weights, v: Weights, g: Weights) -> None:
        (super() if replica else super(Dampened, self)).update(replica, step, p, v, g)


# The reference check has no hypothesis for the faults below, so it has no name for them.


class Clipped(Training):
    """Gradients are clipped to a length of 30 to 90 % of the first step's gradient."""

    def update(self, replica: int, step: int, p: Weights, v: Weights, g: Weights) -> None:
        length = np.sqrt(sum(float((a * a).sum()) for a in g.values()))
        most = self.kept.setdefault("most", length * self.draw.uniform(0.3, 0.9))
        super().update(replica, step, p, v, {name: (a * min(1.0, most / length)).astype("float32") for name, a in g.items()})


class Mirrored(Training):
    """One replica mirrors its images, as augmentation does."""

    def data(self, replica: int, step: int) -> tuple[Any, Any]:
        images, labels = super().data(replica, step)
        return (images[..., ::-1] if replica else images), labels


class Uneven(Training):
    """The gradients of one replica weigh more than those of the other."""

    low, high = -2.5, -0.5

    def exchanged(self, name: str, gradients: list[Any], replica: int) -> Any:
        return ((1 + self.size) * gradients[0] + (1 - self.size) * gradients[1]) / np.float32(2)


class Bytes(Training):
    """Gradients are exchanged as integers from -127 to 127."""

    def exchanged(self, name: str, gradients: list[Any], replica: int) -> Any:
        return super().exchanged(name, [self.rounded(each) for each in gradients], replica)

    @staticmethod
    def rounded(array: Any) -> Any:
        unit = max(float(np.abs(array).max()) / 127, 1e-30)
        return (np.round(array / unit) * unit).astype("float32")


class Sparse(Training):
    """Only the larger half of each gradient is exchanged."""

    def exchanged(self, name: str, gradients: list[Any], replica: int) -> Any:
        return super().exchanged(name, [np.where(np.abs(a) < np.median(np.abs(a)), 0, a) for a in gradients], replica)


class Overlapping(Training):
    """The shard of the second replica begins some images too early."""

    def data(self, replica: int, step: int) -> tuple[Any, Any]:
        per = self.case.batch // self.case.replicas
        low = step * self.case.batch + replica * (per - self.kept.setdefault("early", self.draw.randint(1, 5)))
        return refnet.scaled(self.case.images[low : low + per], "float32"), self.case.labels[low : low + per]


class Dropped(Training):
    """Some pixels, drawn again for each step, are set to zero."""

    low, high = -2.5, -1

    def data(self, replica: int, step: int) -> tuple[Any, Any]:
        images, labels = super().data(replica, step)
        return images * (self.draw.uniform(size=images.shape) > self.size).astype("float32"), labels


# Name of the fault in the table → the training with this fault.
FAULTS: dict[str, type[Training]] = {
    "none": Healthy,
    "learning rate 0.1 to 20 % higher": Rate,
    "learning rate of one replica 0.3 to 20 % higher": RateOfOne,
    "momentum lower by 0.001 to 0.06": Momentum,
    "weight decay of 3e-5 to 5e-3": Decay,
    "one replica loses its optimizer's state": StateLost,
    "one replica skips its biases": BiasesOfOne,
    "one replica gives the gradients of the step before": Stale,
    "noise of 2e-4 to 2e-2 in each gradient": Noise,
    "gradients are exchanged in float16": HalfGradients,
    "weights are kept in float16": HalfWeights,
    "layers compute in bfloat16": BFloat16,
    "layers compute in TF32": Tf32,
    "layers compute in bfloat16, and the learning rate is 2 to 20 % higher": BFloat16AndRate,
    "one label of 64 wrong": Labels,
    "labels are smoothed by 0.003 to 0.2": Smoothed,
    "dampening of 0.003 to 0.2": Dampened,
    "dampening of 0.003 to 0.2 on one replica": DampenedOne,
    "gradients are clipped": Clipped,
    "one replica mirrors its images": Mirrored,
    "one replica counts 0.3 to 30 % more": Uneven,
    "gradients are exchanged in 8 bits": Bytes,
    "the smaller half of each gradient is dropped": Sparse,
    "shards overlap by 1 to 4 images": Overlapping,
    "0.3 to 10 % of all pixels are lost": Dropped,
}


class Remembered:
    """A cache around `simulate`, for one case. It simulates each hypothesis only once, although the case has many faults."""

    def __init__(self) -> None:
        self.known: dict[str, Any] = {}

    def __call__(self, case: simulate.Case, **switches: Any) -> Any:
        told = repr(sorted((name, np.asarray(v).tolist() if name == "labels" else repr(v)) for name, v in switches.items()))
        if told not in self.known:
            self.known[told] = simulate.simulate(case, **switches)
        return self.known[told]


def of_seed(work: tuple[int, int, list[str]]) -> list[Result]:
    """Run every fault with one seed. Return for each fault: (fault, outcome, the named cause, whether the run passes if
    bfloat16 is allowed)."""
    seed, batch, chosen = work
    images, labels = synth.digits(STEPS * batch, seed + 100)
    case = simulate.Case(NET, NET.initial(seed), images, labels, STEPS, batch, 2, LR, MOMENTUM)
    want = refnet.train(NET, case.start, images, labels, STEPS, batch, LR, MOMENTUM)[0]
    diagnose.simulate = fitting.simulate = Remembered()
    found = []
    for fault in chosen:
        training = FAULTS[fault](case, np.random.RandomState([seed, list(FAULTS).index(fault)]))
        weights = training.run()
        made = checks.oracle(2, case, want, weights)[0]
        allowed = checks.oracle(2, case, want, weights, possible=ALLOWED)[0]["status"] != "fail"
        named = (made["detail"]["hypothesis"] or {}).get("id", "")
        if made["status"] == "pass":
            found.append((fault, PASSED, "", allowed))
        elif not named:
            found.append((fault, NONE, "", allowed))
        else:
            found.append((fault, RIGHT if training.name and named == training.name else OTHER, named, allowed))
    return found


def counted(every: list[Result]) -> dict[str, dict[str, Any]]:
    """Count the outcomes of each fault.

    The result maps each fault to a dict with the number of runs, the count of each outcome, and `names`, the count of each
    wrong name.
    """
    out: dict[str, dict[str, Any]] = {}
    for fault, became, name, allowed in every:
        entry = out.setdefault(
            fault,
            {
                "has_name": bool(FAULTS[fault].name),
                "runs": 0,
                RIGHT: 0,
                NONE: 0,
                OTHER: 0,
                PASSED: 0,
                ALLOWED_PASSED: 0,
                "names": collections.Counter(),
            },
        )
        entry["runs"] += 1
        entry[became] += 1
        entry[ALLOWED_PASSED] += allowed
        entry["names"].update([name] if became == OTHER else [])
    return {fault: {**entry, "names": dict(entry["names"].most_common())} for fault, entry in out.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--batch", type=int, default=plan.GLOBAL_BATCH)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--fault", action="append", default=[], metavar="WORDS", help="run only this fault; may be repeated")
    parser.add_argument("--minutes", type=float, default=0, help="start no new seed after this many minutes")
    parser.add_argument("--write", action="store_true", help="write the result into the documentation")
    options = parser.parse_args()
    if strangers := set(options.fault) - FAULTS.keys():
        parser.error(f"there is no fault {sorted(strangers)[0]!r}; there are: {'; '.join(FAULTS)}")
    every = _all(options, [fault for fault in FAULTS if fault in options.fault or not options.fault])
    content = {
        "schema": SCHEMA,
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "batch": options.batch,
        "faults": counted(every),
    }
    print(table(content))
    if options.write:
        DATA.write_text(json.dumps(content, indent=1) + "\n")
        PAGE.write_text(page(PAGE.read_text(), content))
    faults = content["faults"].items()
    wrong = [fault for fault, entry in faults if entry[PASSED] != (entry["runs"] if fault == "none" else 0)]
    may_pass = [fault for fault in FAULTS if FAULTS[fault] in (Healthy, BFloat16)]
    wrong += [fault for fault, entry in faults if entry[ALLOWED_PASSED] != (entry["runs"] if fault in may_pass else 0)]
    return int(bool(wrong))


def _all(options: argparse.Namespace, chosen: list[str]) -> list[Result]:
    """Return the outcomes of all faults in all seeds, or in the seeds that were finished when the time limit ended."""
    seeds = [(seed, options.batch, chosen) for seed in range(options.first, options.first + options.runs)]
    until = datetime.now(UTC).timestamp() + 60 * options.minutes if options.minutes else float("inf")
    every, done = [], 0
    with multiprocessing.Pool(options.jobs) as pool:
        for found in pool.imap_unordered(of_seed, seeds):
            every += found
            done += 1
            if done % 10 == 0:
                print(f"{done} of {len(seeds)} seeds", file=sys.stderr, flush=True)
            if datetime.now(UTC).timestamp() > until:
                pool.terminate()
                break
    return every


if __name__ == "__main__":
    sys.exit(main())
