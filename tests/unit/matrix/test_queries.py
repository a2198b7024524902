"""Queries of the matrix: rows by any of their names, related rows, and the text of the answer."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
from cuda_rows import ROWS
from overlay_files import HEAD, PACKAGE_SETS, overlay

from envbuild.cli import frame
from envbuild.errors import InvalidInputError, UnknownNameError
from envbuild.matrix.queries import TABLES, find_row, find_table, listing, related
from envbuild.matrix.reading.loader import compile_matrix, read_sources
from envbuild.resolve.build_list import newest_environments

TOY = Path(__file__).parents[2] / "golden" / "toy"
SOURCES = read_sources(TOY / "matrix.yaml")
MATRIX = compile_matrix(SOURCES)


def go(table: str, row: str) -> dict[str, object]:
    return related(MATRIX, find_row(MATRIX, table, row), partial(newest_environments, MATRIX))


@pytest.mark.parametrize(
    ("table", "text", "key", "value"),
    [
        ("drivers", "470", "branch", "470"),
        ("drivers", "R470", "branch", "470"),
        ("drivers", "470.57.02", "branch", "470"),
        ("cuda", "9.0", "version", "9.0"),
        ("cuda", "9.0.103", "version", "9.0"),
        ("cudnn", "7.4.2.24", "version", "7.4.2"),
        ("gpus", "twin k80", "name", "Twin K80"),
        ("gpus", "1080ti", "name", "ForceG GTX 1080 Ti"),
        ("architectures", "6.1", "name", "Bee"),
        ("architectures", "bee", "name", "Bee"),
        ("systems", "granite:16.04", "name", "granite16.04"),
        ("frameworks", "wd", "name", "widget"),
    ],
)
def test_a_row_answers_to_all_its_names(table: str, text: str, key: str, value: str) -> None:
    assert getattr(find_row(MATRIX, table, text), key) == value


@pytest.mark.parametrize("table", ["gpu", "GPUS", "driver", "systems", "repository", "cuda"])
def test_a_table_answers_to_its_singular(table: str) -> None:
    assert find_table(table) in TABLES


@pytest.mark.parametrize(
    ("table", "text", "near"),
    [("drivers", "471", "470"), ("cuda", "12.5", "12.4"), ("gpus", "twin k90", "Twin K80"), ("systems", "granit16", "granite")],
)
def test_an_unknown_row_names_the_nearest(table: str, text: str, near: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        find_row(MATRIX, table, text)
    assert (caught.value.exit_code, caught.value.code) == (4, "unknown-row")
    assert near in (caught.value.hint or "")


def test_an_unknown_table_names_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="no table 'gpuz'") as caught:
        find_table("gpuz")
    assert "Did you mean gpus?" in (caught.value.hint or "")


def test_every_row_of_every_table_can_be_found_and_has_what_goes_with_it() -> None:
    for name, table in TABLES.items():
        assert len(listing(MATRIX, name)) == len(table.rows(MATRIX))
        for row in table.rows(MATRIX):
            first = table.names(row)[0]
            assert find_row(MATRIX, name, first) == row
            related(MATRIX, row, partial(newest_environments, MATRIX))


def test_a_driver_tells_natively_by_minor_version_and_by_forward_compatibility() -> None:
    found = go("drivers", "470")
    assert found["cuda"] == ["11.4", "11.0", "9.0", "8.0"]
    assert go("drivers", "525")["cuda_by_minor_version_compatibility"] == ["12.8", "12.4"]
    assert go("drivers", "410")["cuda_by_forward_compatibility"] == ["11.0"]
    assert go("drivers", "525")["dropped_architectures"] == ["Ant (3.5, 3.7)"]


def test_a_gpu_tells_its_window_and_the_newest_environment_of_each_framework() -> None:
    found = go("gpus", "k80")
    assert (found["first_cuda"], found["last_cuda"], found["last_driver_branch"]) == ("5.0", "11.4", "470")
    assert found["cuda"] == ["11.4", "11.0", "9.0", "8.0"]
    assert found["drivers"] == ["470", "450", "410", "384", "375"]
    assert isinstance(found["frameworks"], dict)


def test_a_cuda_tells_who_is_built_for_it() -> None:
    found = go("cuda", "11.0")
    assert found["driver_min_by_minor_version_compatibility"] == "450.80.02"
    assert found["systems"] == ["marble10"] and found["cudnn"] == ["8.0.5"]
    assert found["frameworks"] == {"gizmo": ["3.0.0"], "widget": ["2.0.0.post1", "2.0.0"]}


def test_releases_of_a_cuda_are_read_with_what_the_newest_says() -> None:
    row = find_row(MATRIX, "cuda", "9.0")
    assert [(item.version, item.driver_min, item.installer_driver) for item in row.releases] == [
        ("9.0.176", "384.81", "384.90"),
        ("9.0.103", "384.59", "384.59"),
    ]
    assert (row.release, row.released) == ("9.0.176", "")
    (only,) = find_row(MATRIX, "cuda", "8.0").releases
    assert (only.version, only.driver_min) == ("8.0.61", "375.26")


def test_a_release_of_another_minor_is_refused() -> None:
    name = "matrix/cuda.yaml"
    text = SOURCES[name].decode().replace('version: "9.0.103"', 'version: "9.1.103"')
    with pytest.raises(InvalidInputError, match=r"9\.1\.103 is not a release of 9\.0"):
        compile_matrix({**SOURCES, name: text.encode()})


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = frame.run(["matrix", "show", *words, "--root", str(TOY)])
    told = capsys.readouterr()
    return code, told.out, told.err


def test_the_verb_lists_tables_rows_and_fields(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys)[1].splitlines()[0].split() == ["drivers", "8", "rows"]
    code, out, _ = shown(capsys, "drivers")
    assert code == 0 and out.splitlines()[0].split()[:3] == ["BRANCH", "MAX", "CUDA"] and len(out.splitlines()) == 9
    _, out, _ = shown(capsys, "cuda", "11.0")
    for words in ("forward compat", "source of forward_compat  https://example.org/compat", "suitable for this row"):
        assert words in out


def test_the_verb_answers_in_json_too(capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(shown(capsys, "gpus", "k80", "--json")[1])
    assert document["row"]["gpus_per_board"] == 2 and document["goes_with"]["last_cuda"] == "11.4"
    assert {"drivers", "gpus", "cuda"} <= set(json.loads(shown(capsys, "--json")[1])["tables"])
    rows = json.loads(shown(capsys, "frameworks", "--json")[1])["rows"]
    assert rows[0]["releases"]


ON_MARBLE = "      - {provider: debian, package_set: marble12}\n      - {provider: wheels, wheels: eleven, preference: 5}\n"


@pytest.fixture
def cuda_sets(tmp_path: Path) -> Path:
    """An overlay with CUDA from wheels and from Debian's packages."""
    assert "      - {provider: wheels, wheels: eleven, preference: 5}\n" in ROWS
    rows = ROWS.replace("      - {provider: wheels, wheels: eleven, preference: 5}\n", ON_MARBLE)
    return overlay(tmp_path, HEAD + rows + PACKAGE_SETS + '    source: "https://example.org/packages"\n')


def test_the_verb_shows_what_the_provider_debian_installs(cuda_sets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, "package_sets", "--matrix", str(cuda_sets))[1].splitlines()[1].split()[:2] == ["marble12"] * 2
    code, out, _ = shown(capsys, "package_set", "marble12", "--matrix", str(cuda_sets))
    assert code == 0
    for text in ("libcudart11, libcublas11", "cuda-toolkit", "quarry", "https://example.org/packages", "11.4 on marble12"):
        assert text in out, text
    row = json.loads(shown(capsys, "package_sets", "marble12", "--json", "--matrix", str(cuda_sets))[1])["row"]
    assert row["packages"] == ["libcudart11", "libcublas11"] and row["origin"]["sources"] == ["https://example.org/packages"]
    _, out, _ = shown(capsys, "cuda", "11.4", "--matrix", str(cuda_sets))
    assert "package set marble12" in out and "wheels eleven" in out


def test_the_verb_shows_the_wheels_of_a_set(cuda_sets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = shown(capsys, "wheel_sets", "eleven", "--matrix", str(cuda_sets))
    assert code == 0 and "requirement vendor-runtime-cu11==11.4.1, folder vendor/runtime/lib" in out
    assert "bin: vendor/nvcc/bin" in out


def test_a_framework_has_its_recipe_and_the_releases_without_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    table = next(table for table in MATRIX.frameworks if table.left_out)
    row = json.loads(shown(capsys, "frameworks", table.name, "--json")[1])["row"]
    assert {"recipe", "hints", "left_out", "instead_of", "beside", "origin"} <= set(row) and row["recipe"] == table.recipe
    assert row["releases"] == [release.version for release in table.releases]
    out = shown(capsys, "frameworks", table.name)[1]
    assert "recipe" in out and f"releases {table.left_out[0].releases[0]}" in out
    assert table.left_out[0].origin.note in out


def test_long_lists_of_a_row_are_complete(cuda_sets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = [f"libcuda-part-{number}" for number in range(40)]
    cuda_sets.write_text(cuda_sets.read_text().replace("[libcudart11, libcublas11]", f"[{', '.join(names)}]"))
    out = shown(capsys, "package_sets", "marble12", "--matrix", str(cuda_sets))[1]
    assert [word for word in out.replace(",", " ").split() if word.startswith("libcuda-part-")] == names
    assert max(map(len, out.partition("\nstatus")[0].splitlines())) < 120


def test_a_misspelt_row_is_an_unknown_name(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, told = shown(capsys, "gpus", "Twin K90")
    assert code == 4 and "Twin K80" in told
