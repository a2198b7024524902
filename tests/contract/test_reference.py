"""docs/reference/ agrees with the program."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

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


def test_the_numbers_of_readme_are_those_of_the_evidence() -> None:
    command = [sys.executable, str(ROOT / "docs" / "numbers.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_picture_of_readme_is_small_and_loads_nothing_from_elsewhere() -> None:
    picture = ROOT / "docs" / "pictures" / "report.svg"
    assert picture.stat().st_size <= 100_000
    root = ElementTree.fromstring(picture.read_text())
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert "PASS" in "".join(root.itertext())
    assert not re.search(r"url\((?!#)|href=|@import", picture.read_text())


def test_every_variable_that_the_program_reads_is_documented() -> None:
    told = set(re.findall(r"`(\w+)`", (PAGES / "environment-variables.md").read_text()))
    files = [path for folder in ("envbuild", "images/overlay", "images/partials") for path in (ROOT / folder).rglob("*.*")]
    used = {
        word
        for path in files
        if path.suffix in {".py", ".sh", ".j2"}
        for word in re.findall(r"(?<![A-Z_])ENVBUILD_[A-Z_]*[A-Z]", path.read_text())
    }
    assert len(used) > 5
    assert used <= told
    assert {word for word in told if word.startswith("ENVBUILD_")} <= used


def test_every_method_of_an_adapter_is_documented() -> None:
    from envbuild.smoke import adapters

    declared = {
        *re.findall(r"def (\w+)\(", adapters.__doc__ or ""),
        *re.findall(r"^    {4}(\w+) = ", adapters.__doc__ or "", re.M),
    }
    text = (PAGES / "adapter.md").read_text()
    assert len(declared) > 20
    assert {word for word in declared if not re.search(rf"^\| `{word}[`(]", text, re.M)} == set()
