"""Real reports, written by the guest: a pass, a failed check, a GPU image without a GPU, and one run on the CPU instead."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "data"
NAMES = ("pass", "fail", "no-gpu", "allow-cpu")


def load(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((FOLDER / f"report-{name}.json").read_text(encoding="utf-8"))
    return content
