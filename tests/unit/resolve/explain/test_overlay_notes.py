"""Facts from the user's overlay are marked wherever they appear: in answers, refusals and rejected candidates."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild.cli.session import describe
from envbuild.errors import ConflictError
from envbuild.matrix.reading.loader import load_files
from envbuild.matrix.types import Matrix
from envbuild.resolve.explanation import explain, explanation_json
from envbuild.resolve.request.parser import parse
from envbuild.resolve.resolution import resolve

TOY = Path(__file__).parents[3] / "golden" / "toy"
HEAD = 'defaults: {source: "https://example.org/mine", checked: "2026-11-21"}\n'
BAD = HEAD + (
    "framework: {name: widget}\n"
    "series:\n"
    '  - series: "1.12"\n'
    "    releases:\n"
    '      - {version: "1.12.3", released: "2019-06-21", status: known-bad, note: "not on our machines"}\n'
)
OLD_GPU = HEAD + 'architectures:\n  - {name: Bee, capabilities: ["6.0", "6.1"], first_cuda: "8.0", last_cuda: "8.0"}\n'


def laid_over(folder: Path, text: str, entry: str = "matrix.yaml") -> Matrix:
    (folder / "site.yaml").write_text(text)
    return load_files(TOY / entry, [folder / "site.yaml"])


def refused(found: Matrix, *words: str, **options: str) -> ConflictError:
    with pytest.raises(ConflictError) as caught:
        resolve(found, parse(words, matrix=found, **options))
    return caught.value


def test_a_refusal_says_which_facts_are_the_users(tmp_path: Path) -> None:
    error = refused(laid_over(tmp_path, BAD), "wd-1.12.3-cuda9")
    place = f"{tmp_path}/site.yaml:6"
    assert [(each.row, each.overlaid) for each in error.conflicts] == [("widget 1.12.3 gpu", place)]
    assert error.to_json()["conflicts"][0]["overlaid"] == place
    assert f"[https://example.org/mine] (from your overlay: {place})" in describe(error)


def test_only_the_facts_that_are_the_users_are_called_that(tmp_path: Path) -> None:
    error = refused(laid_over(tmp_path, OLD_GPU), "wd-1.12-cuda9", gpu="sm_60")
    marks = {each.row: each.overlaid for each in error.conflicts}
    assert marks["architecture Bee (6.0, 6.1)"] == f"{tmp_path}/site.yaml:3"
    assert marks["widget 1.12.3 gpu"] == ""
    assert not any(each.overlaid for each in refused(load_files(TOY / "matrix.yaml"), "wd-1.12-cuda8").conflicts)


def test_what_was_passed_over_says_it_too(tmp_path: Path) -> None:
    found = laid_over(tmp_path, BAD)
    explanation = explain(found, parse(["wd-1.12-cuda9"], matrix=found))
    marks = {each.row: each.overlaid for each in explanation.passed_over}
    assert (marks["widget 1.12.4 gpu"], marks["widget 1.12.3 gpu"]) == ("", f"{tmp_path}/site.yaml:6")
    told = {each["row"]: each["overlaid"] for each in explanation_json(explanation)["passed_over"]}
    assert told == marks


def test_a_row_beneath_another_counts(tmp_path: Path) -> None:
    found = laid_over(tmp_path, BAD.replace(', status: known-bad, note: "not on our machines"', ""), "several.yaml")
    resolution = resolve(found, parse(["shade-2.2.4"], matrix=found))
    assert resolution.overlaid == (f"widget 1.12.3 ({tmp_path}/site.yaml:6)",)
