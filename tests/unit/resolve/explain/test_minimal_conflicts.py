"""Explanations: unknown is called unknown; the named parts are enough for the refusal, and each of them is needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild.errors import ConflictError
from envbuild.matrix.reading.loader import compile_matrix, read_sources
from envbuild.matrix.types import Matrix
from envbuild.resolve.explain.minimal_conflicts import asked, cores, restricted
from envbuild.resolve.explanation import explain
from envbuild.resolve.request.model import BASE, Request
from envbuild.resolve.request.parser import parse
from envbuild.resolve.resolution import resolve
from envbuild.resolve.search.lookup import lookup_of
from envbuild.resolve.search.search import Search

SOURCES = read_sources(Path(__file__).parents[3] / "golden" / "toy" / "matrix.yaml")
TOY = compile_matrix(SOURCES)


def refused(found: Matrix, *words: str, **options: str) -> ConflictError:
    with pytest.raises(ConflictError) as caught:
        resolve(found, parse(words, matrix=found, **options))
    return caught.value


def test_what_an_image_carries_is_unknown_where_no_row_says() -> None:
    name = "matrix/cuda.yaml"
    text = SOURCES[name].decode()
    assert ', nccl: "2.5.6"' in text
    silent = compile_matrix({**SOURCES, name: text.replace(', nccl: "2.5.6"', "", 1).encode()})
    (image, need) = refused(silent, "wd-1.12", base="tag").conflicts
    assert "no source says" in image.reason and "none" not in image.reason and "deleted upstream" in image.reason
    assert need.reason == "needs NCCL 2.3.7"


def test_an_unknown_row_is_chosen_and_a_bad_one_is_not() -> None:
    explanation = explain(TOY, parse(["gizmo"], matrix=TOY))
    assert explanation.resolution is not None and explanation.error is None
    assert any("has not been tested" in warning for warning in explanation.resolution.warnings)
    (first, *_) = explain(TOY, parse(["wd-1.12"], matrix=TOY)).passed_over
    assert (first.row, first.reason) == ("widget 1.12.4 gpu", "known not to work: crashes at import")


@pytest.mark.parametrize(
    ("words", "options", "parts"),
    [
        (["wd-1.12-cuda9"], {"gpu": "sm_86", "driver": "470.57"}, {("cuda", "gpu"), ("version", "gpu")}),
        (["wd-1.12-py311"], {"driver": "470.57"}, {("version", "python"), ("python", "driver")}),
        (["wd-1.12-cpu-py311"], {"gpu": "sm_86"}, {("version", "python")}),
        (["wd-2.5-cuda11"], {}, {("version", "cuda")}),
        (["wd-1.12.4"], {}, {("version",)}),
        (["wd-1.12"], {"base": "tag"}, {("version", "base")}),
    ],
)
def test_the_parts_that_conflict(words: list[str], options: dict[str, str], parts: set[tuple[str, ...]]) -> None:
    search = Search(lookup_of(TOY), parse(words, matrix=TOY, **options))
    found = cores(search)
    assert {tuple(part.kind for part in core) for core in found} == parts
    for core in found:
        with pytest.raises(ConflictError):
            resolve(TOY, restricted(search.request, {*core, BASE}))
        for part in core:
            rest = set(core) - {part}
            assert any(_solved(restricted(search.request, rest | more)) for more in (set(), {BASE})), (core, part)
    assert set().union(*map(set, found)) <= set(asked(search.request))


def _solved(request: Request) -> bool:
    try:
        resolve(TOY, request)
    except ConflictError:
        return False
    return True
