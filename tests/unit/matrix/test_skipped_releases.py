"""Releases that the matrix leaves out on purpose: how the rules are written, and which versions a rule covers."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild.errors import InvalidInputError
from envbuild.matrix.reading.loader import compile_matrix, overlay_name, read_sources
from envbuild.matrix.skipped_releases import why_left_out
from envbuild.matrix.types import LeftOut

TOY = Path(__file__).parents[2] / "golden" / "toy" / "matrix.yaml"


def rules(framework: str, overlay: str = "") -> tuple[LeftOut, ...]:
    sources = read_sources(TOY)
    overlays = [overlay_name(Path("/site.yaml"))] if overlay else []
    found = compile_matrix({**sources, **{name: overlay.encode() for name in overlays}}, overlays)
    return next(table.left_out for table in found.frameworks if table.name == framework)


@pytest.mark.parametrize(
    ("version", "note"),
    [
        ("3.1.1", "withdrew"),
        ("3.1.1.0", "withdrew"),  # the same version by PEP 440
        ("2", "nobody has looked"),
        ("2.9.post1", "nobody has looked"),
        ("2.9rc1", "nobody has looked"),  # the rule of the framework comes before the general one
        ("3.2.0.dev20250101", "pre-release"),
        ("3.3.0", None),
        ("<2", None),
    ],
)
def test_the_first_rule_that_covers_a_version(version: str, note: str | None) -> None:
    found = why_left_out(rules("gizmo"), version)
    assert (found is None) if note is None else (found is not None and note in found.origin.note)
    assert found is None or (found.origin.source and found.origin.checked == "2026-11-21")


def test_a_rule_without_a_framework_is_said_of_all() -> None:
    assert [rule.releases for rule in rules("widget")] == [("prereleases",)]


def test_an_overlay_may_add_rules() -> None:
    overlay = """
framework: {name: widget}
left_out: [{releases: ["==9.*"], note: "not for our cluster", source: "https://wiki.example.org", checked: "2026-11-21"}]
series: []
"""
    found = why_left_out(rules("widget", overlay), "9.1")
    assert found is not None and found.origin.overlaid


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ('{releases: ["1.4"], note: "x"}', "'1.4' is not a condition on versions: write it as <1.4, or write prereleases"),
        ('{releases: ["<1.4"]}', "needs a `note` with the reason"),
        ('{note: "x"}', "releases"),
        ('{releases: ["<1.4"], note: "x", version: "1.3"}', "version"),
    ],
)
def test_a_rule_that_cannot_be_read(row: str, message: str) -> None:
    sources = {name: content.decode() for name, content in read_sources(TOY).items()}
    name = "matrix/frameworks/gizmo.yaml"
    sources[name] = sources[name].replace("left_out:\n", f"left_out:\n  - {row}\n")
    with pytest.raises(InvalidInputError) as caught:
        compile_matrix({name: text.encode() for name, text in sources.items()})
    assert any(message in problem.message and problem.where == name for problem in caught.value.problems)
