"""How long does it take to resolve every name of the matrix in one process?

    python benchmarks/every_name.py [--rounds 3]

The time is compared with the time of an interpreter that imports three libraries; loading the matrix does not count. Each name
must resolve to itself. If some names do not, they are printed and the exit code is 1.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

from cold_start import BASELINE, seconds

from envbuild.matrix.reading.loader import load_files
from envbuild.resolve.build_list import list_builds
from envbuild.resolve.request.parser import parse
from envbuild.resolve.resolution import resolve

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    facts = load_files(ROOT / "matrix.yaml")
    names = [row.name for row in list_builds(facts) if row.name]
    baseline, ours = [], []
    for _ in range(options.rounds):
        baseline.append(seconds(BASELINE, {}))
        start = time.perf_counter()
        answers = [resolve(facts, parse([name], matrix=facts)).environment.name for name in names]
        ours.append(time.perf_counter() - start)
    wrong = [(name, answer) for name, answer in zip(names, answers, strict=True) if name != answer]
    for name, answer in wrong:
        print(f"{name} resolves to {answer}")
    whole = statistics.median(ours)
    print(f"{len(names)} names in {whole:.2f} s, {whole / len(names) * 1000:.2f} ms each")
    print(f"{whole / statistics.median(baseline):.1f} times {' '.join(BASELINE[1:])}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
