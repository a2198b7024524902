"""How long the first answer takes, as whole processes: `list` and `resolve` beside an interpreter that imports three libraries.

    python benchmarks/cold_start.py [--rounds 21] [--limit 2.5] [REQUEST]

Every round runs each command once, in turn, so that whatever else the machine does meets all of them alike. The medians are
compared in one run, since times of different runs or machines say nothing about each other. Exits with 1 above the limit.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BASELINE = [sys.executable, "-c", "import yaml, jinja2, packaging"]


def seconds(argv: list[str], env: dict[str, str]) -> float:
    """Wall-clock time of one process that has to succeed."""
    start = time.perf_counter()
    subprocess.run(argv, env=env, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("request", nargs="?", default="tf-1.12-cuda9")
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--limit", type=float, default=2.5, help="the highest ratio that passes")
    options = parser.parse_args()
    ours = [sys.executable, "-m", "envbuild"]
    commands = {
        "python -c 'import yaml, jinja2, packaging'": BASELINE,
        "envbuild list": [*ours, "list"],
        f"envbuild resolve {options.request}": [*ours, "resolve", options.request],
        f"envbuild resolve {options.request} --json": [*ours, "resolve", options.request, "--json"],
    }
    with tempfile.TemporaryDirectory() as home:
        env = {**os.environ, "ENVBUILD_HOME": home, "ENVBUILD_ROOT": str(ROOT)}
        first = {name: seconds(argv, env) for name, argv in commands.items()}  # compiles the matrix and the modules
        times: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(options.rounds):
            for name, argv in commands.items():
                times[name].append(seconds(argv, env))
    medians = {name: statistics.median(values) for name, values in times.items()}
    baseline = next(iter(medians.values()))
    print(f"{'median ms':>10} {'ratio':>6} {'first ms':>9}   medians of {options.rounds} interleaved rounds")
    for name, median in medians.items():
        print(f"{median * 1000:10.1f} {median / baseline:6.2f} {first[name] * 1000:9.1f}   {name}")
    worst = max(medians.values()) / baseline
    print(f"worst ratio {worst:.2f}, limit {options.limit}")
    return 0 if worst <= options.limit else 1


if __name__ == "__main__":
    sys.exit(main())
