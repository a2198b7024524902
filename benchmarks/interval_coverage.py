"""How often does the interval of the smoke test hold the true value, where the rounds depend on each other?

    python benchmarks/interval_coverage.py [--runs 10000]

Draws the rounds of many runs from a process of known median in which each round resembles the one before it (autoregressive, of
first order), with normal noise and with skewed noise (lognormal, above a least time), and asks the interval of
stats.interval() whether the true median lies in it. Beside it stands what the interval for independent rounds would give.
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
SETTLING = 20  # rounds that are drawn first and thrown away, so that the process has forgotten its start
SHAPES: dict[str, Callable[[float], float]] = {"normal": lambda x: 100 + x, "skewed": lambda x: 10 + math.exp(x)}
MEDIANS = {"normal": 100.0, "skewed": 11.0}


def rounds(draw: random.Random, count: int, rho: float, shape: str) -> list[float]:
    """One run: values whose true median is ``MEDIANS[shape]``."""
    out, last = [], draw.gauss(0, 1)
    for number in range(SETTLING + count):
        last = rho * last + math.sqrt(1 - rho * rho) * draw.gauss(0, 1)
        if number >= SETTLING:
            out.append(SHAPES[shape](last))
    return out


def coverage(count: int, rho: float, shape: str, runs: int, seed: int = 1) -> dict[str, float]:
    """How often the true median lies in the interval: as it is, and without widening; and by how much it was widened."""
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
