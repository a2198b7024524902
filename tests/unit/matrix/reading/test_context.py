"""Sources of single fields: they are inherited together with the sources of the row, and replaced together with them."""

from __future__ import annotations

from pathlib import Path

from envbuild.matrix.reading.loader import compile_matrix, overlay_name, read_sources
from envbuild.matrix.types import Variant

TOY = Path(__file__).parents[3] / "golden" / "toy" / "matrix.yaml"
ROWS = b"""
defaults: {source: "https://example.org/build", checked: "2026-11-21"}
framework: {name: whence, title: Whence, short: whence, aliases: [whence], recipe: whence}
series:
  - series: "1.0"
    field_source: {python: "https://example.org/wheels"}
    python: ["3.11"]
    variants:
      cpu: {package: whence, cuda_libraries: none, glibc: "2.17"}
    releases:
      - {version: "1.0.1", released: "2020-01-02", source: "https://example.org/news"}
      - {version: "1.0.0", released: "2020-01-01", field_source: {glibc: "https://example.org/scan"}}
"""


def builds() -> dict[str, Variant]:
    name = overlay_name(Path("/site.yaml"))
    found = compile_matrix({**read_sources(TOY), name: ROWS}, [name])
    table = next(table for table in found.frameworks if table.name == "whence")
    return {release.version: release.variants[0] for release in table.releases}


def test_they_are_handed_down() -> None:
    origin = builds()["1.0.0"].origin
    assert origin.source == "https://example.org/build"
    assert origin.source_of("python") == "https://example.org/wheels"
    assert origin.source_of("glibc") == "https://example.org/scan"


def test_a_row_with_documents_of_its_own_has_none_of_them() -> None:
    assert builds()["1.0.1"].origin.source_of("python") == "https://example.org/news"
