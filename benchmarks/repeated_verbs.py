"""How much CPU time do commands take if there is nothing to do? hpccm, which renders a Dockerfile, is the comparison.

    python benchmarks/repeated_verbs.py [--rounds 9] [--hpccm PROGRAM RECIPE] [--make NAME] [NAME]

Each command is a whole process. The user and system time of the process and of its children are measured, because wall-clock
time says little on a loaded machine. Every round runs each command once, in turn. ENVBUILD_HOME must name a writable folder;
``--make`` needs an engine and an image of NAME. Exits with 1 if a command is above its limit: 1.5 times the time of hpccm for
``render NAME``, 1 s for ``render --all``, 0.3 s for ``make``. The first rendering after a change of matrix, recipes or program
takes longer. The table shows the first rendering in a separate column, and there is no limit for it.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OURS = [sys.executable, "-m", "envbuild", "--root", str(ROOT)]


def cpu_seconds(argv: list[str]) -> float:
    """Measure the user and system time of one process and its children. The process must succeed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?", default="tf-1.12.0-cuda9.0-py35-ubuntu16.04")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--hpccm", nargs=2, metavar=("PROGRAM", "RECIPE"))
    parser.add_argument("--make", metavar="NAME")
    options = parser.parse_args()
    if "ENVBUILD_HOME" not in os.environ:
        parser.error("ENVBUILD_HOME is not set")
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "python -c 'import yaml, jinja2, packaging'": [sys.executable, "-c", "import yaml, jinja2, packaging"],
        "render NAME": [*OURS, "render", "-q", options.name],
        "render --all": [*OURS, "render", "-q", "--all"],
    }
    if options.hpccm:
        commands["hpccm"] = [options.hpccm[0], "--recipe", options.hpccm[1]]
    if options.make:
        commands["make NAME"] = [*OURS, "make", "-q", options.make]
        cpu_seconds(commands["make NAME"])  # the first run stores its results, which the later runs read
    first = {name: cpu_seconds(argv) for name, argv in commands.items()}
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(options.rounds):
        for name, argv in commands.items():
            times[name].append(cpu_seconds(argv))
    medians = {name: statistics.median(values) for name, values in times.items()}
    print(f"{'median ms':>10} {'first ms':>9}   CPU time, medians of {options.rounds} interleaved rounds")
    for name, median in medians.items():
        print(f"{median * 1000:10.0f} {first[name] * 1000:9.0f}   {name}")
    limits = {"render NAME": 1.5 * medians.get("hpccm", float("inf")), "render --all": 1.0, "make NAME": 0.3}
    above = [name for name, limit in limits.items() if medians.get(name, 0.0) > limit]
    print(f"above their limits: {', '.join(above) or 'none'}")
    return 1 if above else 0


if __name__ == "__main__":
    sys.exit(main())
