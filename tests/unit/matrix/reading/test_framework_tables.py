"""What a build takes from its release, its series and its framework; of two statuses, the worse one counts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from envbuild.errors import InvalidInputError
from envbuild.matrix.reading.loader import compile_matrix, read_sources
from envbuild.matrix.types import Variant

TOY = Path(__file__).parents[3] / "golden" / "toy" / "matrix.yaml"
SERIES = """
defaults: {source: ["https://example.org/thing"], checked: "2026-11-21", status: ok}
framework: {name: thing, title: Thing, short: thing, aliases: [thing], recipe: thing}
series:
  - series: "1.0"
    variants:
      cpu: {package: thing, python: ["3.6"], cuda_libraries: none, glibc: "2.17", status: %s, note: "of the series"}
    releases:
      - {version: "1.0.0", released: "2019-12-05"%s}
"""


def build(series: str, release: str) -> Variant:
    sources = read_sources(TOY)
    sources["thing.yaml"] = (SERIES % (series, release)).encode()
    table = next(row for row in compile_matrix(sources).frameworks if row.name == "thing")
    return table.releases[0].variants[0]


@pytest.mark.parametrize(
    ("series", "release", "status", "note"),
    [
        ("unknown", "", "unknown", "of the series"),
        ("unknown", ', status: known-bad, note: "withdrawn"', "known-bad", "withdrawn"),
        ("known-bad", ", status: unknown", "known-bad", "of the series"),
        ("unknown", ", status: ok", "unknown", "of the series"),
        ("unknown", ', variants: {cpu: {status: ok, note: "tried"}}', "ok", "tried"),
        ("known-bad", ', status: known-bad, note: "withdrawn", variants: {cpu: {status: ok, note: "works"}}', "ok", "works"),
    ],
)
def test_the_worse_of_release_and_series_holds_unless_the_release_speaks_of_the_build(
    series: str, release: str, status: str, note: str
) -> None:
    found = build(series, release).origin
    assert (found.status, found.note) == (status, note)


LEVELS = """
defaults: {source: ["https://example.org/thing"], checked: "2026-11-21", status: ok}
framework: {name: thing, title: Thing, short: thing, aliases: [thing], recipe: thing, python: ["3.6"]%s}
series:
  - series: "1.0"
    variants:
      cpu: {package: thing, cuda_libraries: none, glibc: "2.17"}
    releases:
      - {version: "1.0.0", released: "2019-12-05"%s}
%s"""


@pytest.mark.parametrize("nearest", [1, 2, 3])
def test_a_build_takes_its_lists_from_the_nearest_level_that_has_them(nearest: int) -> None:
    said = [{"requirements": [f"own-{n}"], "constraints": [f"numpy<{n}"], "asks": [f"six<{n}"]} for n in range(1, nearest + 1)]
    framework, series, release = [*said, {}, {}][:3]
    inline = ["".join(f", {key}: {json.dumps(value)}" for key, value in each.items()) for each in (framework, release)]
    lines = "".join(f"    {key}: {json.dumps(value)}\n" for key, value in series.items())
    sources = read_sources(TOY)
    sources["thing.yaml"] = (LEVELS % (*inline, lines)).encode()
    found = next(row for row in compile_matrix(sources).frameworks if row.name == "thing").releases[0].variants[0]
    got = [each.requirement for each in (*found.requirements, *found.constraints, *found.asks)]
    assert got == [f"own-{nearest}", f"numpy<{nearest}", f"six<{nearest}"]
    assert found.python == ("3.6",)


@pytest.mark.parametrize("key", ["requirements", "constraints", "asks"])
def test_what_is_no_requirement_is_named_with_its_line(key: str) -> None:
    sources = read_sources(TOY)
    sources["thing.yaml"] = (LEVELS % ("", "", f'    {key}: ["numpy<<2"]\n')).encode()
    with pytest.raises(InvalidInputError, match=r"thing.yaml:\d+: .*'numpy<<2' is not a requirement"):
        compile_matrix(sources)
