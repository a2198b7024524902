"""Count environments in the matrix and in the committed evidence, and write the numbers between two marks in README.

    python docs/numbers.py [--check]

`make docs` runs this program. With --check it writes nothing, and exits with 1 if README has other numbers. Proofs that are
only on this machine and not committed do not count.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from envbuild.cli import frame

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
INCOMPLETE = "committed with an incomplete lock: the source of some files could not be reached, or publishes no hashes"
BEGIN, END = "<!-- numbers begin: made by `make docs` from the evidence -->\n", "<!-- numbers end -->"
# Kind of proof → the words for it in README.
KINDS = {
    "locked": "locked: every file pinned by its hash",
    "downloaded": "downloaded: every pinned file fetched and compared with its hash",
    "built": "built",
    "verified": "verified: the image holds what its lock says",
    "linked": "linked: the image holds every library and symbol that its programs and libraries need",
    "smoke-cpu": "trained on CPU by the smoke test",
    "smoke-gpu": "trained on GPU by the smoke test",
}


def ask(*argv: str) -> Any:
    """Run the envbuild command ``argv`` with `--json`, and return its answer."""
    with io.StringIO() as printed, contextlib.redirect_stdout(printed):
        code = frame.run([*argv, "--json", "--root", str(ROOT)])
        if code != 0:
            raise SystemExit(f"envbuild {' '.join(argv)}: exit {code}")
        return json.loads(printed.getvalue())


def table() -> str:
    """The table of numbers."""
    known = ask("list")["environments"]
    kept = ask("evidence", "--all")["environments"]
    lines = ["| environments | number |", "|---|---|"]
    lines.append(f"| in the matrix (the tables of known combinations), each with its sources | {len(known):,} |")
    lines.append(f"| committed to this repository with lock and Dockerfile | {sum(not row['orphan'] for row in kept)} |")
    locks = (json.loads(path.read_text()) for path in (ROOT / "images" / "environments").glob("*/lock.json"))
    incomplete = sum(bool(lock.get("missing")) for lock in locks)
    lines.append(f"| {INCOMPLETE} | {incomplete} |")
    lines += [f"| {words} | {sum(kind in row['kinds'] for row in kept)} |" for kind, words in KINDS.items()]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Write the table into README. With --check, only compare the table with README."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as empty:  # an empty cache folder, because proofs of this machine do not count
        os.environ["ENVBUILD_HOME"] = empty
        os.environ.pop("ENVBUILD_MATRIX", None)
        made = table()
    before, mark, rest = README.read_text().partition(BEGIN)
    old, last, after = rest.partition(END)
    if not mark or not last:
        raise SystemExit("README.md lacks the marks of the numbers")
    if options.check:
        if old != made:
            print(f"README.md: the numbers are not those of the evidence: run `make docs`. They are\n{made}")
        return int(old != made)
    if old != made:
        README.write_text(before + mark + made + last + after)
    print(f"README.md: numbers {'written' if old != made else 'unchanged'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
