"""Draw the picture of README: a stored smoke report as `envbuild report` prints it.

    python docs/picture.py REPORT.json

This writes docs/pictures/report.svg. REPORT.json is the report of a real run. `envbuild make` prints the path of such a report
at its end.
"""

from __future__ import annotations

import contextlib
import io
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

from envbuild.cli import frame

TARGET = Path(__file__).resolve().parent / "pictures" / "report.svg"
LIMIT = 100_000  # bytes: the picture is on the first screen of README
COLUMNS = 118
# Rich's own template loads fonts from another host, which pages that show the picture forbid.
TEMPLATE = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="A smoke report">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: {char_height}px;
  line-height: {line_height}px; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/></clipPath>
{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}<g class="{unique_id}-matrix">{matrix}</g></g>
</svg>
"""


def text_of(report: Path) -> str:
    """Return the text that `envbuild report` prints for a report."""
    with io.StringIO() as printed, contextlib.redirect_stdout(printed):
        code = frame.run(["report", str(report)])
        if code != 0:
            raise SystemExit(f"{report} cannot be shown: exit {code}")
        return printed.getvalue().rstrip()


def draw(text: str) -> str:
    """Return an SVG picture of a terminal that shows the text."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text("$ envbuild report tf-2.21-cpu", style="dim"))
    shown = Text(text)
    shown.highlight_regex(r"\b(PASS|pass)\b", "bold green")
    console.print(shown)
    return console.export_svg(title="envbuild", code_format=TEMPLATE, unique_id="report")


def main(argv: list[str]) -> int:
    """Write the picture of the report that the command line names."""
    if len(argv) != 1:
        print(__doc__)
        return 2
    picture = draw(text_of(Path(argv[0])))
    if len(picture.encode()) > LIMIT:
        raise SystemExit(f"the picture has {len(picture.encode())} bytes, more than {LIMIT}")
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(picture)
    print(f"{TARGET}: {len(picture.encode())} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
