"""The HTML page of a report: problems come first, tables can be stacked, and colours are readable."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from report_files import NAMES, load

from envbuild.report import html_page

CSS = (Path(html_page.__file__).parent / "page" / "page.css").read_text(encoding="utf-8")


class _Cells(HTMLParser):
    """Collects the cells of tables that are stacked on narrow screens, and whether a label or a row heading names each."""

    def __init__(self) -> None:
        super().__init__()
        self.tables: list[str] = []
        self.nameless: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        classes = (given.get("class") or "").split()
        if tag == "table":
            self.tables.append(" ".join(classes))
        elif tag == "td" and "checks" not in self.tables[-1] and not given.get("data-label"):
            self.nameless.append(str(attrs))


@pytest.mark.parametrize("name", NAMES)
def test_every_table_can_be_stacked_and_every_figure_has_a_name_then(name: str) -> None:
    cells = _Cells()
    cells.feed(html_page.html(load(name)))
    assert cells.tables and all("stack" in classes for classes in cells.tables)
    assert cells.nameless == []


def test_topology_is_named_by_both_gpus() -> None:
    content = load("schemes")
    content["devices"] = [{"index": n, "name": "NVIDIA H200"} for n in range(8)]
    content["topology"] = {"gpus": list(range(8)), "links": [["NV18"] * 8] * 8}
    text = html_page.html(content)
    assert text.count('data-label="GPU 7 NVIDIA H200"') == 8


def test_what_failed_comes_first_with_what_to_do() -> None:
    content = load("fail")
    text = html_page.html(content)
    at = text.index("What went wrong")
    section = text[at : text.index("</section>", at)]
    assert at < min(text.index(f"<h2>{word}") for word in ("Results", "Plots", "Checks"))
    assert "not met" in section and "The network learns" in section
    assert "1 worker: 98.9 % of 2048 test images are right" in section and "2 workers: 98.9 %" in section
    assert section.count("What to do:") == 1  # one finding for both numbers of workers
    assert "See ORACLE" in section
    assert text.index("<h2>Checks") < text.index("<h2>Results") < text.index("<h2>Plots")


def test_an_inconclusive_report_says_why_and_what_to_do() -> None:
    text = html_page.html(load("no-gpu"))
    assert "Why there is no verdict" in text and "not decided" in text and "--gpus all" in text


def test_a_pass_has_no_section_of_findings_but_for_warnings() -> None:
    content = load("pass")
    assert 'class="findings"' not in html_page.html(content)
    content["checks"][0].update(status="warn", message="the clock is slow", next_step="Let it follow a time server.")
    text = html_page.html(content)
    assert "<h2>Warnings" in text and text.index("the clock is slow") < text.index("<h2>Results")


@pytest.mark.parametrize("logs", [{}, {"rank 0": "Killed"}])
def test_a_report_without_a_failed_check_still_says_what_to_do(logs: dict[str, str]) -> None:
    broken: dict[str, Any] = {"status": "error", "reason": "the container ended with status 137", "logs": logs}
    text = html_page.html(broken)
    at = text.index("What went wrong")
    assert "The container ended with status 137" in text[at:]
    assert ("Read the log below." if logs else "Look at the output of the run") in text[at:]
    if logs:
        assert text.index("<h2>Logs") < text.index("<h2>Checks")


def _colours(css: str) -> dict[str, str]:
    return dict(re.findall(r"--([a-z0-9-]+): (#[0-9a-f]{6})", css))


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _contrast(one: str, other: str) -> float:
    lighter, darker = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_can_be_read_on_every_ground(scheme: str) -> None:
    light, dark = re.findall(r":root \{(.*?)\n\s*\}", CSS, re.DOTALL)[:2]
    colours = _colours(light) if scheme == "light" else _colours(light) | _colours(dark)
    grounds = [("ink", "card"), ("ink", "paper"), ("soft", "card"), ("soft", "paper"), ("ink", "track")]
    grounds += [(word, f"{word}-tint") for word in ("pass", "fail", "warn", "skip")]
    grounds += [("ink", f"{word}-tint") for word in ("pass", "fail", "warn", "skip")]
    weak = {pair: _contrast(colours[pair[0]], colours[pair[1]]) for pair in grounds}
    assert {pair: round(value, 1) for pair, value in weak.items() if value < 4.5} == {}


def test_no_rule_asks_for_more_width_than_a_narrow_screen_has() -> None:
    narrow = re.sub(r"@media screen and \(min-width.*?\} \}", "", CSS)
    minimums = [int(each) for each in re.findall(r"(?:minmax\(|min-width: |columns: )(\d+)px", narrow)]
    assert minimums and max(minimums) <= 340
    assert "overflow-wrap: anywhere" in CSS and "white-space: pre-wrap" in CSS
