"""How long does envbuild take to answer after a cold start? `list` and `resolve` are compared with a bare interpreter.

    python benchmarks/cold_start.py [--rounds 21] [REQUEST]

The baseline is an interpreter that imports three libraries. Every round runs the baseline and each command once, as whole
processes and in turn, so that other load on the machine affects all alike. The CPU time (user and system) of each command is
compared with the CPU time of the baseline in the same round. Wall-clock time is not compared, because it also counts waiting
for other programs. Exits with 1 if the median ratio of a command is above its limit.
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
BASELINE = "python -c 'import yaml, jinja2, packaging'"
LIST_LIMIT, RESOLVE_LIMIT = 1.8, 1.5


def run(argv: list[str], env: dict[str, str]) -> tuple[float, float]:
    """Measure the CPU and wall-clock seconds of one process, which must succeed."""
    start = time.perf_counter()
    process = subprocess.Popen(argv, env=env, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise subprocess.CalledProcessError(process.returncode, argv)
    return usage.ru_utime + usage.ru_stime, time.perf_counter() - start


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("request", nargs="?", default="tf-1.12-cuda9")
    parser.add_argument("--rounds", type=int, default=21)
    options = parser.parse_args()
    ours = [sys.executable, "-m", "envbuild"]
    commands = {
        BASELINE: ([sys.executable, "-c", "import yaml, jinja2, packaging"], 1.0),
        "envbuild list": ([*ours, "list"], LIST_LIMIT),
        f"envbuild resolve {options.request}": ([*ours, "resolve", options.request], RESOLVE_LIMIT),
        f"envbuild resolve {options.request} --json": ([*ours, "resolve", options.request, "--json"], RESOLVE_LIMIT),
    }
    with tempfile.TemporaryDirectory() as home:
        env = {**os.environ, "ENVBUILD_HOME": home, "ENVBUILD_ROOT": str(ROOT)}
        env.pop("PYTHONDONTWRITEBYTECODE", None)  # let Python write compiled modules, as installed programs have them
        for argv, _ in commands.values():  # the first run compiles the matrix and the modules
            run(argv, env)
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
        for _ in range(options.rounds):
            for name, (argv, _) in commands.items():
                times[name].append(run(argv, env))
    print(f"{'CPU ms':>8} {'wall ms':>8} {'ratio':>6} {'limit':>6}   medians of {options.rounds} interleaved rounds")
    too_slow = False
    for name, (_, limit) in commands.items():
        cpu, wall = (statistics.median(each) for each in zip(*times[name], strict=True))
        pairs = zip(times[name], times[BASELINE], strict=True)
        ratio = statistics.median(ours[0] / baseline[0] for ours, baseline in pairs)
        too_slow |= ratio > limit
        print(f"{cpu * 1000:8.1f} {wall * 1000:8.1f} {ratio:6.2f} {limit:6.2f}   {name}")
    return 1 if too_slow else 0


if __name__ == "__main__":
    sys.exit(main())
