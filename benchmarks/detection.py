"""Which planted faults does the smoke test find in each framework, which cause does it name, and how long does a run take?

    python benchmarks/detection.py --install numpy,pytorch,tensorflow,jax [--fault WORDS] [--write]
    python benchmarks/detection.py --python pytorch=PYTHON …
    python benchmarks/detection.py --python horovod+mxnet=PYTHON …

Runs the smoke test on two CPU workers. There is a run for each framework and fault, and a run without a fault for each
framework. detection_adapter.py plants the fault between the guest and the framework. An add-on is written with its base
framework, as in `horovod+mxnet`. Exits with 1 if a run with a fault passed or a run without a fault failed. With --write the
runs replace earlier runs of the same frameworks and faults in docs/explanation/detection.json, and the table is written to
docs/explanation/detection.md.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import venv
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import guest

HERE = Path(__file__).resolve().parent
DOCS = guest.ROOT / "docs" / "explanation"
DATA, PAGE = DOCS / "detection.json", DOCS / "detection.md"
SCHEMA = "envbuild-detection/1"
LIMIT_S = 900
# Framework → the packages that --install installs with pip, into a separate virtual environment in the cache folder.
PACKAGES = {
    "numpy": ["numpy"],
    "pytorch": ["torch", "numpy"],
    "tensorflow": ["tensorflow-cpu"],
    "jax": ["jax"],
    "mxnet": ["mxnet"],
}
BEGIN, END = "<!-- detection.json begins -->", "<!-- detection.json ends -->"
EXCHANGE = ("--phases", "coll,oracle")
BUCKETS = ("--phases", "oracle,buckets")
TRAINING = ("--phases", "train", "--epochs", "1", "--train-images", "2048", "--test-images", "512")
SAVING = ("--phases", "save", "--epochs", "1", "--train-images", "2048", "--test-images", "512")
TIMING = ("--phases", "bench", "--rounds", "3", "--round-seconds", "0.3", "--batch", "32")
# Fault → the options of the guest that select the phases of the run with this fault.
FAULTS: dict[str, tuple[str, ...]] = {
    "none": ("--rounds", "3", "--round-seconds", "0.2"),
    "no exchange": EXCHANGE,
    "every replica reads the first shard": EXCHANGE,
    "an all-reduce is wrong by one": EXCHANGE,
    "learning rate +1 %": EXCHANGE,
    "learning rate +10 %": EXCHANGE,
    "momentum 0.95 for 0.9": EXCHANGE,
    "no momentum": EXCHANGE,
    "weight decay 1e-3": EXCHANGE,
    "weight decay 5e-3": EXCHANGE,
    "one label of 64 wrong": EXCHANGE,
    "labels shifted by one": EXCHANGE,
    "updates with noise of 1e-3": EXCHANGE,
    "one rank skips its biases": EXCHANGE,
    "no update": EXCHANGE,
    "one rank starts from another bias": EXCHANGE,
    "every 10th step has no momentum": EXCHANGE,
    "every 20th update is left out": EXCHANGE,
    "every 10th step on one rank has a learning rate of +10 %": EXCHANGE,
    "every 20th batch has one wrong label": EXCHANGE,
    "the reported loss is 1.7 times the loss": EXCHANGE,
    "the reported loss is that of the step before": EXCHANGE,
    "outputs without gradients have noise of 5 %": EXCHANGE,
    "the second bucket is not exchanged": BUCKETS,
    "the loss is not a number": TRAINING,
    "no exchange in the benchmark only": TIMING,
    "the first shard after 20 steps": TIMING,
    "learning rate +10 % after 20 steps": TIMING,
    "one label of 32 wrong after 20 steps": TIMING,
    "timed steps do nothing": TIMING,
    "timed steps leave out half of the batch": TIMING,
    "timed steps have no momentum": TIMING,
    "every 10th timed step has no momentum": TIMING,
    "every 20th timed update is left out": TIMING,
    "every 10th timed step has a learning rate of +10 %": TIMING,
    "the clock of the first rank runs at a third of its speed": TIMING,
    "saving loses a bias": SAVING,
    "the framework cannot be imported": EXCHANGE,
    "one rank is killed": EXCHANGE,
    "one rank stands still": (*EXCHANGE, "--stall", "15"),
    "one rank runs out of memory": EXCHANGE,
}
# Fault → the check that the smoke test skips for a framework that cannot have the fault. For example, a framework that trains
# in one process has no collectives.
NO_PLACE = {"an all-reduce is wrong by one": "COLL"}
NONE = "does not apply"


def run(python: str, framework: str, fault: str) -> dict[str, Any]:
    """Run the smoke test once; return its verdict, the checks that did not pass, the cause that it named, and the seconds."""
    own, _, base = framework.partition("+")
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "report.json"
        argv = [
            python,
            str(guest.complete(Path(folder))),
            "run",
            "--adapter",
            str(HERE / "detection_adapter.py"),
            "--counts",
            "2",
            *(("--option", f"framework={base}") if base else ()),
            *FAULTS[fault],
        ]
        env = {**os.environ, "DETECTION_OF": guest.adapter_of(own), "DETECTION_FAULT": "" if fault == "none" else fault}
        start = time.monotonic()
        done = subprocess.run(
            [*argv, "--workload", "mnist", "--json", str(target)],
            env=env,
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT_S,
        )
        seconds = time.monotonic() - start
        if not target.exists():
            sys.exit(f"{framework}, {fault}: no report:\n{done.stderr[-2000:]}")
        report = json.loads(target.read_text())
    bad = [check for check in report["checks"] if check["status"] in ("fail", "warn", "inconclusive")]
    named = next(filter(None, map(_cause, bad)), "")
    told = {check["status"] for check in report["checks"] if check["id"] == NO_PLACE.get(fault)}
    version = report["framework"]["version"] if report["framework"] else ""
    return {
        "fault": fault,
        "framework": framework,
        "version": version,
        "verdict": NONE if told == {"skip"} else report["status"],
        "checks": sorted({check["id"] for check in bad}),
        "named": named,
        "message": bad[0]["message"] if bad else "",
        "seconds": round(seconds, 1),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
    }


def _cause(check: dict[str, Any]) -> str:
    """Return the name of the cause that a check found, or "". The check BUCKETS stores only this name. The check ORACLE stores
    an object with the name as ``id``."""
    found = (check.get("detail") or {}).get("hypothesis") or ""
    return found if isinstance(found, str) else found.get("id") or ""


def table(runs: list[dict[str, Any]]) -> str:
    """Return the runs as a Markdown table with a row for each fault."""
    frameworks = list(dict.fromkeys(run["framework"] for run in runs))
    versions = {
        each: " and ".join(sorted({run["version"] for run in runs if run["framework"] == each} - {""})) for each in frameworks
    }
    lines = ["| planted fault | " + " | ".join(f"{each} {versions[each]}".strip() for each in frameworks) + " |"]
    lines.append("|---" * (1 + len(frameworks)) + "|")
    for fault in dict.fromkeys(run["fault"] for run in runs):
        cells = []
        for framework in frameworks:
            found = next((run for run in runs if (run["fault"], run["framework"]) == (fault, framework)), None)
            cells.append(_cell(found) if found else "not run")
        lines.append(f"| {fault} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(run: dict[str, Any]) -> str:
    if run["verdict"] == NONE:
        return NONE
    words = [run["verdict"], ", ".join(f"`{key}`" for key in run["checks"]), run["named"], f"{run['seconds']:.0f} s"]
    return ": ".join(filter(None, [words[0], ", ".join(filter(None, words[1:]))]))


def page(text: str, content: dict[str, Any]) -> str:
    """Return the page ``text`` with the table of ``content`` between the marks BEGIN and END."""
    dates = ", ".join(sorted({run["date"] for run in content["runs"]}))
    made = f"{BEGIN}\nMeasured with two CPU workers, on {dates}.\n\n{table(content['runs'])}\n{END}"
    return re.sub(f"{re.escape(BEGIN)}.*?{re.escape(END)}", lambda _: made, text, flags=re.DOTALL)


def merged(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Replace old runs by new runs of the same framework and fault; sort them by framework and fault."""
    found = {(run["framework"], run["fault"]): run for run in [*old, *new]}
    frameworks = list(dict.fromkeys(framework for framework, _ in found))
    return [found[framework, fault] for framework in frameworks for fault in FAULTS if (framework, fault) in found]


def installed(framework: str) -> str:
    """Return the Python of a virtual environment with the framework; make the virtual environment if there is none."""
    home = os.environ.get("ENVBUILD_HOME") or Path.home() / ".cache" / "envbuild"
    folder = Path(home) / "detection" / framework
    python = folder / "bin" / "python"
    if not (folder / "complete").exists():
        venv.create(folder, clear=True, with_pip=True)
        command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES[framework]]
        subprocess.run(command, check=True)
        (folder / "complete").touch()
    return str(python)


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
    parser.add_argument("--fault", action="append", default=[], metavar="WORDS", help="run only this fault; may be repeated")
    parser.add_argument("--write", action="store_true", help="write the result into the documentation")
    options = parser.parse_args()
    wanted = [word for word in options.install.split(",") if word]
    if unknown := sorted(set(wanted) - PACKAGES.keys()):
        parser.error(f"--install knows {', '.join(PACKAGES)}, not {unknown[0]}; name its Python with --python")
    chosen = {word: installed(word) for word in wanted} | dict(word.split("=", 1) for word in options.python)
    if not chosen:
        parser.error("name frameworks with --install or --python")
    strangers = set(options.fault) - FAULTS.keys()
    if strangers:
        parser.error(f"there is no fault {sorted(strangers)[0]!r}; there are: {'; '.join(FAULTS)}")
    runs = []
    for framework, python in chosen.items():
        for fault in options.fault or FAULTS:
            runs.append(run(python, framework, fault))
            print(f"{framework}: {fault}: {_cell(runs[-1])}", flush=True)
    wrong = [run for run in runs if run["verdict"] not in ("pass" if run["fault"] == "none" else "fail", NONE)]
    for each in wrong:
        print(f"WRONG: {each['framework']}: {each['fault']}: {each['verdict']}: {each['message']}")
    if options.write:
        others = json.loads(DATA.read_text())["runs"] if DATA.exists() else []
        content = {"schema": SCHEMA, "runs": merged(others, runs)}
        DATA.write_text(json.dumps(content, indent=1) + "\n")
        PAGE.write_text(page(PAGE.read_text(), content))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
