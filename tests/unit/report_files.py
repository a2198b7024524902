"""Real reports, written by the guest.

A pass, a failed check, a GPU image without a GPU, one run on the CPU instead, and one of several exchanges and scalings.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "data"
NAMES = ("pass", "fail", "no-gpu", "allow-cpu", "schemes")


def load(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((FOLDER / f"report-{name}.json").read_text(encoding="utf-8"))
    return content
