"""Does the smoke test report the speedup that an independent stopwatch measures?

    python benchmarks/smoke_stopwatch.py [--python PYTHON] [--adapter pytorch] [--rounds 15] [--limit 0.03]

The guest measures as usual. The adapter stopwatch_adapter.py records with another clock when each rank began the first step of
a lap, and when the rank's devices had finished the last step. From these times alone this program computes the laps and the
speedup again. Exits with 1 if the two speedups differ by more than the limit.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

import guest

HERE = Path(__file__).resolve().parent


def laps(folder: Path, order: list[list[str]]) -> list[dict[str, float]]:
    """Return a dict for each round: mode → seconds from the moment when the first rank began until the last rank had finished.

    ``order`` has the modes of each round in the order in which they were measured.
    """
    times: list[dict[str, list[tuple[float, float]]]] = [{} for _ in order]
    for path in sorted(folder.glob("rank-*.json")):
        content = json.loads(path.read_text())
        mine = [
            (number, mode) for number, modes in enumerate(order) for mode in modes if mode != "solo" or content["rank"] == 0
        ]
        # The last laps are the measured ones: the warm-up's laps come first, and no steps follow the measured laps.
        for (number, mode), seen in zip(mine, content["laps"][-len(mine) :], strict=True):
            times[number].setdefault(mode, []).append(seen)
    return [{mode: max(e for _, e in seen) - min(s for s, _ in seen) for mode, seen in each.items()} for each in times]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="a Python that has the framework and NumPy")
    parser.add_argument("--adapter", default="pytorch")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--limit", type=float, default=0.03)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report = guest.run(
            options.python,
            str(HERE / "stopwatch_adapter.py"),
            ["--workload", "mnist", "--counts", "2", "--rounds", str(options.rounds)],
            STOPWATCH_OF=guest.adapter_of(options.adapter),
            STOPWATCH_TO=folder,
        )
        (run,) = report["runs"]
        seen = laps(Path(folder), [entry["order"].split(",") for entry in run["rounds"]])
    apart = [mode[f"{name}_s"] / other[name] - 1 for mode, other in zip(run["rounds"], seen, strict=True) for name in other]
    speedup = statistics.median(2 * each["solo"] / each["dp"] for each in seen)
    reported = run["speedup"]["median"]
    longer = f"{100 * statistics.median(apart):.2f} %"
    print(f"{len(apart)} laps: reported times are {longer} longer (median), because they include the barriers")
    print(f"speedup: reported {reported:.4f}, by the stopwatch {speedup:.4f}, {100 * (reported / speedup - 1):+.2f} %")
    return int(abs(reported / speedup - 1) > options.limit)


if __name__ == "__main__":
    sys.exit(main())
