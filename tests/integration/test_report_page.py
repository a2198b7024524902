"""The HTML page of a report in a real browser: on a narrow screen nothing has to be scrolled sideways."""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import judges
import pytest

from envbuild.report import html_page

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "unit"))
from report_files import NAMES, load

BROWSER = judges.path_of("chromium")
# Finds elements that are wider than the screen or than their box. Visually hidden elements are one pixel wide.
MEASURE = """
const page = document.getElementById("page").contentDocument;
const wide = [];
for (const each of page.querySelectorAll("body *")) {
  const style = getComputedStyle(each);
  const scrolls = each.clientWidth > 1 && style.overflowX !== "visible" && each.scrollWidth > each.clientWidth + 1;
  const hidden = each.closest("thead") && getComputedStyle(each.closest("thead")).position === "absolute";
  if (!hidden && !each.closest("svg") && (scrolls || each.getBoundingClientRect().right > WIDTH + 1))
    wide.push(each.tagName + "." + each.className);
}
document.getElementById("said").textContent = JSON.stringify({width: page.documentElement.scrollWidth, wide: wide.slice(0, 9)});
"""
LONG = "x" * 300


def _worst() -> dict[str, Any]:
    """A failing report in which everything is long: words, logs, 16 GPUs, several frameworks."""
    content = load("schemes")
    content.update(status="fail", reason=LONG, notes=[LONG, "many words " * 40], logs={LONG: LONG * 5})
    content["environment"]["name"] = LONG
    content["devices"] = [{"index": n, "name": "NVIDIA H200 NVL 141GB HBM3e"} for n in range(16)]
    content["topology"] = {"gpus": list(range(16)), "links": [["NODE"] * 16] * 16}
    for check in content["checks"]:
        check.update(status="fail", message=LONG, next_step=LONG, detail={LONG: LONG, "a": "b"}, unit="differing replicas")
    own = {key: value for key, value in content.items() if key != "parts"}
    content["parts"] = [{"framework": LONG, "version": "1", "status": "fail", "reason": LONG, "report": own}]
    return content


def _measured(text: str, width: int, folder: Path) -> dict[str, Any]:
    # A frame as wide as a telephone, because the window of a browser cannot be made so narrow.
    frame = (
        f'<iframe id="page" style="width:{width}px;height:900px;border:0" srcdoc="{html.escape(text, quote=True)}"></iframe>'
    )
    script = f"document.getElementById('page').onload = () => {{ {MEASURE.replace('WIDTH', str(width))} }};"
    file = folder / "measure.html"
    file.write_text(f'<!doctype html><meta charset="utf-8">{frame}<pre id="said"></pre><script>{script}</script>')
    argv = [str(BROWSER), "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}"]
    argv += ["--virtual-time-budget=5000", "--dump-dom", file.as_uri()]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    said = re.search(r'<pre id="said">(\{.*?\})</pre>', done.stdout, re.DOTALL)
    assert said, done.stderr[-2000:] + done.stdout[-500:]
    answer: dict[str, Any] = json.loads(html.unescape(said[1]))
    return answer


@pytest.mark.judges("chromium")
@pytest.mark.parametrize("width", [400, *(pytest.param(width, marks=pytest.mark.prove) for width in (320, 700, 760))])
def test_no_report_needs_sideways_scrolling(width: int, tmp_path: Path) -> None:
    for name, content in [*((name, load(name)) for name in NAMES), ("worst", _worst())]:
        found = _measured(html_page.html(content), width, tmp_path)
        assert found["width"] <= width, (name, found)
        assert found["wide"] == [], (name, found)


@pytest.mark.judges("chromium")
def test_the_measurement_finds_a_table_that_is_too_wide(tmp_path: Path) -> None:
    text = html_page.html(load("fail")).replace('class="checks stack"', 'class="checks"')
    assert any("scroll" in each or "checks" in each for each in _measured(text, 400, tmp_path)["wide"])
