"""The Pythons of a build: its own list, else that of its release, else that of the series."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild.errors import InvalidInputError
from envbuild.matrix.reading.loader import compile_matrix, overlay_name, read_sources

TOY = Path(__file__).parents[3] / "golden" / "toy" / "matrix.yaml"
ROWS = """
defaults: {source: "https://example.org/", checked: "2026-11-21"}
framework: {name: whom, title: Whom, short: whom, aliases: [whom], recipe: whom}
series:
  - series: "1.0"
    %s
    variants:
      own: {package: whom, python: ["3.6"], cuda: "9.0", cuda_libraries: bundled, glibc: "2.17"}
      cpu: {package: whom, cuda_libraries: none, glibc: "2.17"}
    releases:
      - {version: "1.0.1", released: "2020-01-02", python: ["3.12"]}
      - {version: "1.0.0", released: "2020-01-01"}
"""


def pythons(series: str) -> dict[tuple[str, str], tuple[str, ...]]:
    name = overlay_name(Path("/site.yaml"))
    found = compile_matrix({**read_sources(TOY), name: (ROWS % series).encode()}, [name])
    table = next(table for table in found.frameworks if table.name == "whom")
    return {(release.version, build.name): build.python for release in table.releases for build in release.variants}


def test_the_nearest_list_holds() -> None:
    assert pythons('python: ["3.11", "3.12"]') == {
        ("1.0.1", "own"): ("3.6",),
        ("1.0.1", "cpu"): ("3.12",),
        ("1.0.0", "own"): ("3.6",),
        ("1.0.0", "cpu"): ("3.11", "3.12"),
    }


def test_a_build_without_any_list_is_a_problem() -> None:
    with pytest.raises(InvalidInputError) as caught:
        pythons("")
    assert [problem.message for problem in caught.value.problems] == ["series[0].variants.cpu: python is missing"]
