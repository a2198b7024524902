"""How large is the error of healthy trainings against the reference, and how small a fault is found?

The limit ORACLE_PASS is based on the answers.

    python benchmarks/reference_distribution.py healthy [--adapter pytorch] [--runs 1000] [--minutes 0] [--out FILE]
    python benchmarks/reference_distribution.py faults [--runs 8] [--out FILE]
    python benchmarks/reference_distribution.py write FILE…

``healthy`` trains the reference network in single precision, in each run with other weights, images and orders of summation.
NumPy trains the network as 1, 2, 3, 4 or 8 replicas; another adapter trains it on one device, all runs in one process. Prints
quantiles of the largest error of a parameter. With --out, the error of each run is written to FILE. A later command with the
same FILE leaves out the runs that FILE already has. With --references, the weights of the reference are kept in a folder, so
that they are computed only once for several frameworks.

``write`` reads FILEs that ``healthy`` wrote, stores their results in reference_distribution.json, and writes the tables in
docs/explanation. ``faults`` simulates each kind of fault in single precision and finds the size at which the error reaches the
limit in every run. Then it asks the reference check for the cause of a fault of ten times that size.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

# The BLAS of NumPy is as fast with one thread on arrays of this size, and its idle threads take time from the framework.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import guest
import numpy as np
import reference_page

guest.load()

from envbuild_smoke import adapters, plan  # noqa: E402
from envbuild_smoke.datasets import synth  # noqa: E402
from envbuild_smoke.judging import checks, simulate  # noqa: E402
from envbuild_smoke.networks import nets, refnet  # noqa: E402
from envbuild_smoke.rank.context import Context  # noqa: E402
from envbuild_smoke.rank.group import Group  # noqa: E402

NET = nets.REFERENCE
STEPS, LR, MOMENTUM = plan.ORACLE["steps"], plan.ORACLE["lr"], plan.MOMENTUM
REPLICAS = (1, 2, 3, 4, 8)
NOISE = 1e-7  # relative noise of each gradient; another order of summation or another library causes as much noise


def case(seed, replicas):
    batch = plan.global_batch(replicas)
    images, labels = synth.digits(STEPS * batch, seed + 100)
    return simulate.Case(NET, NET.initial(seed), images, labels, STEPS, batch, replicas, LR, MOMENTUM)


def reference(one, file=None):
    """Return the weights of the reference. If ``file`` exists, they are read from it. Otherwise they are computed and written
    to it."""
    if file and file.exists():
        with np.load(str(file)) as kept:
            return {name: kept[name] for name in NET.names}
    want = refnet.train(NET, one.start, one.images, one.labels, STEPS, one.batch, LR, MOMENTUM)[0]
    if file:
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_name(f"{os.getpid()}-{file.name}")
        np.savez(str(part), **want)
        part.replace(file)
    return want


def error(got, want, one):
    return max(refnet.errors(got, want, one.start)[1].values())


def single(one, draw, lr=1.0, momentum=MOMENTUM, decay=0.0, noise=0.0, relabel=0, half=None):
    """Return the weights after a training of the case ``one`` in float32.

    ``draw`` is a random generator. With other values than the defaults, the arguments after ``draw`` plant a fault.
    """
    p = {name: array.astype("float32") for name, array in one.start.items()}
    v = {name: np.zeros_like(array) for name, array in p.items()}
    per = one.batch // one.replicas
    for step in range(STEPS):
        gradients = []
        for replica in range(one.replicas):
            order = step * one.batch + replica * per + draw.permutation(per)
            labels = one.labels[order].copy()
            if replica == 0 and step < relabel:
                labels[0] = (labels[0] + 3) % 10
            _, g = refnet.loss_and_gradient(NET, p, refnet.scaled(one.images[order], "float32"), labels)
            gradients.append({name: half(array) if half else array for name, array in g.items()})
        mean = {}
        for name in NET.names:
            total = gradients[0][name]
            for each in gradients[1:]:
                total = half(total + each[name]) if half else total + each[name]
            total = total / np.float32(one.replicas)
            total = total * (1 + (noise or NOISE) * draw.normal(0, 1, total.shape))
            mean[name] = (total + decay * p[name]).astype("float32")
        refnet.update(p, v, mean, np.float32(lr * LR), np.float32(momentum))
    return p


def half(array):
    return array.astype("float16").astype("float32")


class InProcess:
    """An adapter that trains one case after the other on one device in this process."""

    def __init__(self, name, threads):
        self.adapter = adapters.load(guest.adapter_of(name))()
        folder = tempfile.mkdtemp(prefix="reference-distribution-")
        self.adapter.setup(Context(0, 1, "cpu", [0], 1, threads, {}, 7, Group(0, 1), folder=folder))
        if hasattr(self.adapter, "prepare"):
            self.adapter.prepare(lambda: None)

    def train(self, one):
        handle = self.adapter.make(NET, one.start, LR, MOMENTUM, [0], "mean")
        for step in range(STEPS):
            part = slice(step * one.batch, (step + 1) * one.batch)
            token = self.adapter.step(handle, self.adapter.put(handle, one.images[part], one.labels[part]), LR)
            self.adapter.loss(token)
        self.adapter.drain()
        return self.adapter.weights(handle, 0)


def healthy(options):
    framework = None if options.adapter == "numpy" else InProcess(options.adapter, options.threads)
    version = framework.adapter.versions()["version"] if framework else np.__version__
    found = earlier(options.out, options.adapter, version)
    until = time.time() + 60 * (options.minutes or 1e6)
    for seed in range(options.first, options.first + options.runs):
        if str(seed) in found:
            continue
        if time.time() > until:
            break
        replicas = 1 if framework else REPLICAS[seed % len(REPLICAS)]
        one = case(seed, replicas)
        got = framework.train(one) if framework else single(one, np.random.RandomState(seed))
        file = options.references / f"{replicas}-{seed}.npz" if options.references else None
        found[str(seed)] = float(f"{error(got, reference(one, file), one):.4g}")
        if len(found) % 25 == 0:
            print(f"{len(found)} runs, largest {max(found.values()):.2e}", file=sys.stderr, flush=True)
            keep(options.out, reference_page.summary(options.adapter, version, found, checks.ORACLE_PASS))
    return reference_page.summary(options.adapter, version, found, checks.ORACLE_PASS)


def earlier(out, adapter, version):
    """Return {seed: error} of the runs in the file ``out``. The result is empty if there is no such file."""
    kept = json.loads(out.read_text()) if out and out.exists() else None
    if not kept:
        return {}
    if (kept["adapter"], kept["version"]) != (adapter, version):
        sys.exit(
            "{} has runs of {} {}, not of {} {}: name another file".format(
                out, kept["adapter"], kept["version"], adapter, version
            )
        )
    return kept["errors"]


def keep(out, content):
    if out:
        part = out.with_name(out.name + ".part")
        part.write_text(json.dumps(content) + "\n")
        part.replace(out)


# Kind of fault → (arguments of `single` for a size, a size at which the error is far above the limit).
FAULTS = {
    "learning rate higher by": (lambda size: {"lr": 1 + size}, 1e-2),
    "momentum higher by": (lambda size: {"momentum": MOMENTUM + size}, 1e-2),
    "weight decay": (lambda size: {"decay": size}, 5e-4),
    "relative noise of gradients": (lambda size: {"noise": size}, 1e-4),
}
WHOLE = {
    "one label of a batch wrong, in one step": {"relabel": 1},
    "one label of each batch wrong": {"relabel": STEPS},
    "all-reduce in float16": {"half": half},
}


def faults(options):
    rows = []
    for kind, (switches, size) in FAULTS.items():
        slopes = []
        for seed in range(options.runs):
            one = case(seed, 2)
            slopes.append(error(single(one, np.random.RandomState(seed), **switches(size)), reference(one), one) / size)
        faintest = 1.25 * checks.ORACLE_PASS / min(slopes)
        caught = 0
        for seed in range(options.runs):
            one = case(seed, 2)
            caught += (
                error(single(one, np.random.RandomState(seed), **switches(faintest)), reference(one), one) > checks.ORACLE_PASS
            )
        rows.append({"kind": kind, "faintest": float(f"{faintest:.2g}"), "caught": f"{caught} of {options.runs}",
                     "named": named(switches(10 * faintest))})  # fmt: skip
        print(rows[-1], file=sys.stderr, flush=True)
    for kind, switches in WHOLE.items():
        found = []
        for seed in range(options.runs):
            one = case(seed, 2)
            found.append(error(single(one, np.random.RandomState(seed), **switches), reference(one), one))
        rows.append({"kind": kind, "error": float(f"{min(found):.2g}"), "named": named(switches),
                     "caught": f"{sum(value > checks.ORACLE_PASS for value in found)} of {options.runs}"})  # fmt: skip
        print(rows[-1], file=sys.stderr, flush=True)
    return {"what": "faults", "runs": options.runs, "limit": checks.ORACLE_PASS, "faults": rows}


def named(switches):
    one = case(3, 2)
    weights = single(one, np.random.RandomState(3), **switches)
    made = checks.oracle(2, one, reference(one), [(0, weights), (1, weights)])[0]
    return f"{made['status']}: {(made['detail']['hypothesis'] or {}).get('id') or 'no known fault'}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["healthy", "faults", "write"])
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="for `write`: result files of `healthy`")
    parser.add_argument("--adapter", default="numpy")
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=0, help="start no new run after this many minutes")
    parser.add_argument("--references", type=Path, metavar="FOLDER", help="store the weights of the reference in FOLDER")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if bool(options.files) != (options.what == "write"):
        parser.error("`write` needs files of `healthy`; the others take none")
    if options.what == "write":
        reference_page.write([json.loads(file.read_text()) for file in options.files])
        return 0
    found = {"healthy": healthy, "faults": faults}[options.what](options)
    keep(options.out, found)
    print(json.dumps({name: value for name, value in found.items() if name != "errors"}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
