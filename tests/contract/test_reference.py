"""docs/reference/ says what the program says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "reference"


def test_the_pages_are_what_the_program_says_today() -> None:
    command = [sys.executable, str(ROOT / "docs" / "generate.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_links_within_a_page_lead_somewhere() -> None:
    for page in PAGES.glob("*.md"):
        text = page.read_text()
        headings = {heading.lower().replace(" ", "-") for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}
        assert set(re.findall(r"\]\(#([^)]*)\)", text)) <= headings, page.name


def test_every_verb_and_exit_code_has_its_place() -> None:
    from envbuild.cli import frame

    commands, errors = (PAGES / "commands.md").read_text(), (PAGES / "errors.md").read_text()
    assert [verb for verb in frame.VERBS if f"## envbuild {verb}\n" not in commands] == []
    assert re.findall(r"^\| (\d+) \|", errors, re.MULTILINE)[:3] == ["2", "3", "4"]
