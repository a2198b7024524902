"""Write the table of naming.py into detection.md, from the counts in naming.json."""

from __future__ import annotations

import re
from typing import Any

import guest

DOCS = guest.ROOT / "docs" / "explanation"
DATA, PAGE = DOCS / "naming.json", DOCS / "detection.md"
SCHEMA = "envbuild-naming/1"
BEGIN, END = "<!-- naming.json begins -->", "<!-- naming.json ends -->"
RIGHT, OTHER, NONE, PASSED = "named right", "named otherwise", "failed without a name", "passed"
ALLOWED_PASSED = "passed where bfloat16 is allowed"


def table(content: dict[str, Any]) -> str:
    """Return the counts as a Markdown table with a row for each fault."""
    lines = [f"| fault | runs | named right | without a name | named otherwise | passed | {ALLOWED_PASSED} |", "|---" * 7 + "|"]
    for fault, entry in content["faults"].items():
        has_name = entry["has_name"]
        others = ", ".join(f"`{name}` {count}" for name, count in entry["names"].items())
        cells = [entry["runs"], _share(entry, RIGHT) if has_name else "has no name", _share(entry, NONE)]
        cells += [
            _share(entry, OTHER) + (f": {others}" if others else ""),
            *(_share(entry, key) for key in (PASSED, ALLOWED_PASSED)),
        ]
        lines.append("| " + " | ".join(map(str, [fault, *cells])) + " |")
    return "\n".join(lines)


def _share(entry: dict[str, Any], key: str) -> str:
    return f"{100 * entry[key] / entry['runs']:.3g} %"


def page(text: str, content: dict[str, Any]) -> str:
    """Return the page ``text`` with the table of ``content`` between the marks BEGIN and END."""
    words = f"Measured on {content['date']}, {content['batch']} images in each of the four batches, two replicas."
    made = f"{BEGIN}\n{words}\n\n{table(content)}\n{END}"
    return re.sub(f"{re.escape(BEGIN)}.*?{re.escape(END)}", lambda _: made, text, flags=re.DOTALL)
