"""Does the smoke test measure the same speeds again? Compares the results of repeated runs of the whole smoke test.

    python benchmarks/smoke_repeat.py [--python PYTHON] [--adapter pytorch] [--times 5] [--limit 0.10] [ARGUMENT OF THE GUEST…]

Prints the speeds and the speedup of every run. Then prints for each of these values by how much the most distant run differs
from the median of all runs. Exits with 1 if such a difference is above the limit.
"""

from __future__ import annotations

import argparse
import statistics
import sys

import guest


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="a Python that has the framework and NumPy")
    parser.add_argument("--adapter", default="pytorch")
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--limit", type=float, default=0.10)
    options, further = parser.parse_known_args()
    seen: dict[str, list[float]] = {}
    for number in range(options.times):
        report = guest.run(
            options.python, guest.adapter_of(options.adapter), ["--workload", "mnist", "--counts", "2", *further]
        )
        (run,) = report["runs"]
        figures = {"images/s, 1 device": run["images_per_s"]["solo"], "images/s, 2 devices": run["images_per_s"]["dp"]}
        for name, value in {**figures, "speedup": run["speedup"]["median"]}.items():
            seen.setdefault(name, []).append(value)
        print(f"run {number + 1}: " + ", ".join(f"{name} {values[-1]:.4g}" for name, values in seen.items()), flush=True)
    furthest = {name: max(abs(value / statistics.median(values) - 1) for value in values) for name, values in seen.items()}
    for name, apart in furthest.items():
        print(f"{name}: the largest distance from the median is {100 * apart:.1f} %, limit {100 * options.limit:.0f} %")
    return int(max(furthest.values()) > options.limit)


if __name__ == "__main__":
    sys.exit(main())
