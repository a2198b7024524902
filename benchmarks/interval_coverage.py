"""How often does the interval of the smoke test contain the true value if the rounds depend on each other?

    python benchmarks/interval_coverage.py [--runs 10000]

Draws the rounds of many runs from a process with a known median in which each round depends on the one before it
(autoregressive, first order). The noise is normal or skewed (lognormal, above a minimum time). For each run the benchmark
checks whether the interval of stats.interval() contains the true median. For comparison, the interval that is right for
independent rounds is checked in the same way.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
from collections.abc import Callable

import guest

ROUNDS = (6, 9, 12, 15, 18, 24, 30)
AUTOCORRELATIONS = (0.0, 0.3, 0.5, 0.7)
SETTLING = 20  # the first rounds are thrown away, so that the process's start has no effect on the others
SHAPES: dict[str, Callable[[float], float]] = {"normal": lambda x: 100 + x, "skewed": lambda x: 10 + math.exp(x)}
MEDIANS = {"normal": 100.0, "skewed": 11.0}


def rounds(draw: random.Random, count: int, rho: float, shape: str) -> list[float]:
    """Draw one run: ``count`` values whose true median is ``MEDIANS[shape]``."""
    out, last = [], draw.gauss(0, 1)
    for number in range(SETTLING + count):
        last = rho * last + math.sqrt(1 - rho * rho) * draw.gauss(0, 1)
        if number >= SETTLING:
            out.append(SHAPES[shape](last))
    return out


def coverage(count: int, rho: float, shape: str, runs: int, seed: int = 1) -> dict[str, float]:
    """Return the share of runs whose interval contains the true median.

    ``held`` is the share for stats.interval(), which widens the interval if rounds depend on each other. ``without`` is the
    share for the interval without widening. ``wider`` is the median ratio of the widths of the two intervals.
    """
    from envbuild_smoke import stats

    draw, held, bare, ratio = random.Random(seed), 0, 0, []
    for _ in range(runs):
        values = rounds(draw, count, rho, shape)
        found, (low, high, _level) = stats.interval(values), stats.median_interval(values)
        held += found["lo"] <= MEDIANS[shape] <= found["hi"]
        bare += low <= MEDIANS[shape] <= high
        ratio.append((found["hi"] - found["lo"]) / (high - low))
    return {"held": held / runs, "without": bare / runs, "wider": sorted(ratio)[runs // 2]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10000)
    options = parser.parse_args()
    guest.load()
    from envbuild_smoke import stats

    print("| noise | rounds | states | " + " | ".join(f"r = {rho}" for rho in AUTOCORRELATIONS) + " |")
    print("|---|---|---|" + "---|" * len(AUTOCORRELATIONS))
    for shape in SHAPES:
        for count in ROUNDS:
            found = [coverage(count, rho, shape, options.runs) for rho in AUTOCORRELATIONS]
            level = stats.median_interval(list(range(count)))[2]
            cells = [f"{100 * each['held']:.1f} % (without {100 * each['without']:.1f} %)" for each in found]
            print(f"| {shape} | {count} | {100 * level:.1f} % | " + " | ".join(cells) + " |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
