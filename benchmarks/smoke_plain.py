"""Does the smoke test report the same speed (images per second) as a plain loop?

    python benchmarks/smoke_plain.py --python PYTHON_WITH_TORCH [--times 5] [--limit 0.05]

The smoke test reports two speeds of one device: with the allocator settings that it gives its ranks, and without them
(`plain_runs`). plain_loop.py, a training loop without code of the smoke test, is timed with these settings and without them.
All measurements take turns, so that other load on the machine affects all alike. The laps of the loop have as many steps as the
laps of the smoke test. The loop runs in its own session, as ranks do. Some kernels share the processor among sessions
(/proc/sys/kernel/sched_autogroup_enabled); with such a kernel, a loop in a shell's session would get another share of the
processor. Prints the medians of the ratios, and exits with 1 if one of the two speeds differs from the loop's speed by more
than the limit.

Without allocator settings, the speed of a loop depends on what its process did before: glibc returns memory to the system in
every step until the process has freed a block of some megabytes once. The number of page faults per step shows whether the
process of the smoke test has freed such a block. So two loops are timed, one that frees 8 MB first and one that frees nothing,
and the smoke test is compared with the loop that behaves like it.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import guest

HERE = Path(__file__).resolve().parent
THREADS = 1
FREED = 8_000_000
KEEPS = 50  # page faults per step; a process that returns memory to the system in every step has hundreds of page faults


def data(python: str, target: Path) -> None:
    """Write the training data for the plain loop: the first 512 images of the smoke test and its starting weights."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import guest; guest.load(); import numpy\n"
        "from envbuild_smoke.datasets import synth; from envbuild_smoke.networks import nets\n"
        "images, labels = synth.digits(512, 407)\n"
        "numpy.savez(sys.argv[2], images=images, labels=labels, **nets.LENET.initial(7))"
    )
    subprocess.run([python, "-c", code, str(HERE), str(target)], check=True)


def loop(python: str, target: Path, settings: dict[str, str], steps: int, freed: int = 0) -> float:
    """Run the plain loop with ``steps`` steps per lap, and return its images per second."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("MALLOC_")}
    kept |= {"OMP_NUM_THREADS": str(THREADS), "MKL_NUM_THREADS": str(THREADS)}
    argv = [python, str(HERE / "plain_loop.py"), str(target), "--threads", str(THREADS), "--freed", str(freed)]
    argv += ["--steps", str(steps)]
    done = subprocess.run(argv, env={**kept, **settings}, capture_output=True, text=True, check=True, start_new_session=True)
    return float(done.stdout)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="a Python that has PyTorch and NumPy")
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--limit", type=float, default=0.05)
    options = parser.parse_args()
    guest.load()
    from envbuild_smoke.plain import KEPT_MEMORY

    seen: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "data.npz"
        data(options.python, target)
        for number in range(options.times):
            report = guest.run(
                options.python,
                guest.adapter_of("pytorch"),
                ["--workload", "mnist", "--counts", "1", "--threads", str(THREADS)],
            )
            steps = report["runs"][0]["steps_per_round"]
            (plain,) = report["plain_runs"]
            kinds = {
                "keeps memory": loop(options.python, target, {}, steps, FREED),
                "gives it back": loop(options.python, target, {}, steps),
            }
            faults = plain["page_faults_per_step"]
            kind = "keeps memory" if faults < KEEPS else "gives it back"
            print(f"without settings the smoke test's process {kind}: {faults:.0f} page faults a step")
            figures = {
                "with the settings: smoke test": report["runs"][0]["images_per_s"]["solo"],
                "with the settings: plain loop": loop(options.python, target, KEPT_MEMORY, steps),
                "without: smoke test": plain["images_per_s"]["solo"],
                "without: plain loop": kinds[kind],
                **{f"without: plain loop that {name}": value for name, value in kinds.items()},
            }
            for name, value in figures.items():
                seen.setdefault(name, []).append(value)
            print(f"{number + 1}: " + ", ".join(f"{name} {value:.0f}" for name, value in figures.items()), flush=True)
    code = 0
    for what in ("with the settings", "without"):
        ratios = [a / b for a, b in zip(seen[f"{what}: smoke test"], seen[f"{what}: plain loop"], strict=True)]
        apart = statistics.median(ratios) - 1
        print(f"{what}: the smoke test reports {100 * apart:+.1f} % of the loop's images per second (median of {len(ratios)})")
        code |= abs(apart) > options.limit
    return code


if __name__ == "__main__":
    sys.exit(main())
