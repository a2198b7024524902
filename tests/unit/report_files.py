"""Real reports that the guest wrote.

They are: a pass, a failed check, a GPU image without a GPU, a run on the CPU instead of a GPU, and a run with several schemes
and scalings.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from envbuild.smoketest import SmokeOutcome, outcome_of, read_report

FOLDER = Path(__file__).parent / "data"
NAMES = ("pass", "fail", "no-gpu", "allow-cpu", "schemes")


def load(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((FOLDER / f"report-{name}.json").read_text(encoding="utf-8"))
    return content


def stored_outcome(folder: Path) -> SmokeOutcome:
    """The outcome according to the reports in ``folder``.

    All formats must exist, and the report must be valid by its schema.
    """
    names = {"json": "report.json", "html": "report.html", "markdown": "report.md", "junit": "junit.xml"}
    paths = {kind: folder / name for kind, name in names.items()}
    assert all(path.is_file() for path in paths.values())
    content, problems = read_report(paths["json"].read_bytes())
    assert content is not None and not problems, problems
    return outcome_of(content, paths)
