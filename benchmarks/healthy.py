"""Does the smoke test ever fail although nothing is wrong? Whole runs of healthy frameworks, each with its own seed.

    python benchmarks/healthy.py --install numpy,pytorch [--net lenet] [--runs 200] [--first 0] [--minutes 0] [--reports FOLDER]
                                 [--write]
    python benchmarks/healthy.py --python pytorch=PYTHON …

Runs the smoke test with all its phases on one and two CPU workers, for one framework after the other. With another network than
LeNet, only the check of the reference and the measurement of speed run, on two workers. Other load on the machine is a part of
this experiment, so the load is recorded. Also recorded are the largest error of a single step (ORACLE) and the largest error of
the timed steps (EXCHANGE), with an exchange and, beside NumPy, on one device. Prints a line for each run, and exits with 1 if a
run did not pass. With --write the runs are added to the runs in docs/explanation/healthy.json, and the table is written to
docs/explanation/detection.md.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import guest
from detection import DOCS, PACKAGES, PAGE, installed

DATA = DOCS / "healthy.json"
SCHEMA = "envbuild-healthy/1"
BEGIN, END = "<!-- healthy.json begins -->", "<!-- healthy.json ends -->"
BRIEF = ("--rounds", "2", "--round-seconds", "0.2")
SPEED = ("--counts", "2", "--workload", "cifar", "--phases", "oracle,bench", "--batch", "8")
# Network → the options of its runs.
SHORT = {
    "lenet": ("--counts", "1,2", "--workload", "mnist", *BRIEF),
    "resnet20": (*SPEED, "--net", "resnet20", *BRIEF),
    "vgg19_bn": (*SPEED, "--net", "vgg19_bn", *BRIEF),
}
TITLES = {"lenet": "LeNet", "resnet20": "ResNet-20", "vgg19_bn": "VGG19"}
LIMIT_S = 1800


def run(python: str, framework: str, seed: int, reports: Path | None = None, net: str = "lenet") -> dict[str, Any]:
    """Run the smoke test once; return its verdict, the checks that did not pass, the seconds, and the load at its end.

    If the run did not pass, its report and its messages are kept in the folder ``reports``.
    """
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "report.json"
        argv = [python, str(guest.GUEST), "run", "--adapter", guest.adapter_of(framework), "--seed", str(seed), *SHORT[net]]
        start = time.monotonic()
        done = subprocess.run([*argv, "--json", str(target)], capture_output=True, text=True, check=False, timeout=LIMIT_S)
        report = json.loads(target.read_text()) if target.exists() else {"status": "no report", "checks": [], "framework": None}
    bad = [f"{each['id']}: {each['message']}" for each in report["checks"] if each["status"] in ("fail", "inconclusive")]
    if reports and report["status"] != "pass":
        reports.mkdir(parents=True, exist_ok=True)
        (reports / f"{framework}-{net}-{seed}.json").write_text(json.dumps(report, indent=1) + "\n")
        (reports / f"{framework}-{net}-{seed}.txt").write_text(done.stderr)
    return {
        "framework": framework,
        "net": net,
        "step": _largest(
            error for each in report["checks"] if each["id"] == "ORACLE" for error in each["detail"].get("steps", ())
        ),
        "exchange": _largest(each["value"] for each in report["checks"] if each["id"] == "EXCHANGE"),
        "single": _largest(each["detail"].get("single") for each in report["checks"] if each["id"] == "EXCHANGE"),
        "version": report["framework"]["version"] if report["framework"] else "",
        "seed": seed,
        "verdict": report["status"],
        "code": done.returncode,
        "bad": bad or ([] if report["status"] == "pass" else [done.stderr[-500:]]),
        "seconds": round(time.monotonic() - start, 1),
        "load": round(os.getloadavg()[0], 1),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
    }


def _largest(values: Iterable[float | None]) -> float | None:
    """Return the largest of the numbers, with two digits; None if there are none."""
    return max((float(f"{each:.2g}") for each in values if each is not None), default=None)


def table(runs: list[dict[str, Any]]) -> str:
    """Return a Markdown table with a row for each framework, network, and day."""
    lines = [
        "| framework | network | date | runs | passed | largest error of a step | of the timed steps "
        "| of one device beside NumPy | seconds | load of the machine | did not pass |",
        "|---" * 11 + "|",
    ]
    groups: dict[tuple[str, str, str, str], list[dict[str, Any]]] = collections.defaultdict(list)
    for each in runs:
        groups[each["framework"], each["version"], each.get("net", "lenet"), each["date"]].append(each)
    for (framework, version, net, date), mine in groups.items():
        passed = [each for each in mine if each["verdict"] == "pass"]
        wrong = "; ".join(f"seed {each['seed']}: {each['bad'][0]}" for each in mine if each["verdict"] != "pass") or "none"
        seconds, loads = ([each[key] for each in mine] for key in ("seconds", "load"))
        cells = [f"{framework} {version}", TITLES[net], date, len(mine), len(passed)]
        errors = [_largest(each.get(key) for each in mine) for key in ("step", "exchange", "single")]
        cells += ["not recorded" if each is None else f"{each:.1e}" for each in errors]
        cells += [f"{min(seconds):.0f} to {max(seconds):.0f}"]
        cells += [f"{min(loads):.0f} to {max(loads):.0f}, median {statistics.median(loads):.0f}"]
        lines.append("| " + " | ".join(map(str, [*cells, wrong])) + " |")
    return "\n".join(lines)


def bound(runs: list[dict[str, Any]]) -> str:
    """Return a sentence about the number of runs that passed. If all runs passed, the sentence bounds the rate of false alarms,
    by the rule of three."""
    failed = sum(each["verdict"] != "pass" for each in runs)
    if failed:
        return f"{failed} of {len(runs)} runs did not pass."
    return f"All {len(runs)} runs passed. With 95 % confidence, the rate of false alarms is at most {300 / len(runs):.2g} %."


def page(text: str, content: dict[str, Any]) -> str:
    """Return the page ``text`` with the table of ``content`` between the marks BEGIN and END."""
    made = f"{BEGIN}\n{table(content['runs'])}\n\n{bound(content['runs'])}\n{END}"
    return re.sub(f"{re.escape(BEGIN)}.*?{re.escape(END)}", lambda _: made, text, flags=re.DOTALL)


def keep(new: list[dict[str, Any]]) -> None:
    """Add the runs to healthy.json, and write their table to the page.

    Of two runs with the same framework, network and seed, the newer one counts.
    """
    old = json.loads(DATA.read_text())["runs"] if DATA.exists() else []
    found = {(each["framework"], each.get("net", "lenet"), each["seed"]): each for each in [*old, *new]}
    content = {"schema": SCHEMA, "runs": list(found.values())}
    DATA.write_text(json.dumps(content, indent=1) + "\n")
    PAGE.write_text(page(PAGE.read_text(), content))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--python",
        action="append",
        default=[],
        metavar="FRAMEWORK=PYTHON",
        help="run this framework with this Python; may be repeated",
    )
    parser.add_argument("--install", default="", metavar="FRAMEWORK,…", help="frameworks to install and run")
    parser.add_argument("--net", choices=SHORT, default="lenet", help="the network of the timed steps (default: lenet)")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--minutes", type=float, default=0, help="start no new run of a framework after this many minutes")
    parser.add_argument(
        "--reports", type=Path, metavar="FOLDER", help="write the reports of runs that did not pass into FOLDER"
    )
    parser.add_argument("--write", action="store_true", help="write the result into the documentation")
    options = parser.parse_args()
    wanted = [word for word in options.install.split(",") if word]
    if unknown := sorted(set(wanted) - PACKAGES.keys()):
        parser.error(f"--install knows {', '.join(PACKAGES)}, not {unknown[0]}; name its Python with --python")
    chosen = {word: installed(word) for word in wanted} | dict(word.split("=", 1) for word in options.python)
    if not chosen:
        parser.error("name frameworks with --install or --python")
    runs = []
    for framework, python in chosen.items():
        until = time.monotonic() + 60 * (options.minutes or 1e6)
        for seed in range(options.first, options.first + options.runs):
            if time.monotonic() > until:
                break
            runs.append(run(python, framework, seed, options.reports, options.net))
            print(json.dumps(runs[-1]), flush=True)
            if options.write:
                keep(runs)
    return int(any(each["verdict"] != "pass" for each in runs))


if __name__ == "__main__":
    sys.exit(main())
