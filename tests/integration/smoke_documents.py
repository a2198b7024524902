"""Makes smoke reports for tests: a real report, changed so that it is about an environment of this checkout."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

from envbuild import files
from envbuild.pipeline import stored_locks

ROOT = Path(__file__).parents[2]


def smoke_report(name: str, status: str = "pass", **changed: Any) -> dict[str, Any]:
    """Return a report about the environment ``name``, with the ``changed`` fields.

    With the ``status`` fail, the check ACC fails, so the report stays free of contradictions.
    """
    report = json.loads((ROOT / "tests/unit/data/report-pass.json").read_text(encoding="utf-8"))
    lock = ROOT / f"images/environments/{name}/lock.json"
    report["environment"] |= {"name": name, "lock": files.sha256_of(lock)}
    report["framework"]["version"] = stored_locks.read_lock(lock).environment.frameworks[0].version
    report["status"] = status
    if status == "fail":
        next(each for each in report["checks"] if each["id"] == "ACC")["status"] = "fail"
    return {**report, **copy.deepcopy(changed)}
