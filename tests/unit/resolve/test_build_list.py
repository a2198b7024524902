"""The rows of `list`: one for every build, and filters."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from envbuild.cli import frame
from envbuild.errors import UnknownNameError, UsageError
from envbuild.matrix.reading.loader import compile_matrix, load_files, read_sources
from envbuild.resolve.build_list import Filters, list_builds

TOY_ENTRY = Path(__file__).parents[2] / "golden" / "toy" / "matrix.yaml"
TOY = load_files(TOY_ENTRY)


def listed(**filters: str) -> list[str]:
    return [row.name for row in list_builds(TOY, Filters(**filters))]


def test_the_catalogue_has_a_row_for_every_build() -> None:
    rows = list_builds(TOY)
    builds = sum(len(release.variants) for table in TOY.frameworks for release in table.releases)
    assert len(rows) == builds
    states = {(row.version, row.variant): (row.name, row.status) for row in rows}
    assert states["1.12.4", "gpu"] == ("", "known-bad")
    assert states["1.4.0", "gpu"] == ("", "unserved")  # its image was deleted, so only a request that names it gets it
    assert states["3.2.0", "cu128"] == ("gizmo-3.2.0-cuda12.8-py312-marble12", "unknown")
    assert states["2.5", "cpu"] == ("wd-2.5-cpu-py311-marble12", "ok")


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"framework": "gz", "cuda": "12.4"}, ["gizmo-3.1.0-cuda12.4"]),
        ({"framework": "widget", "cuda": "cuda11"}, ["wd-2.0.0.post1-cuda11.0", "wd-2.0.0-cuda11.0"]),
        ({"framework": "gizmo-3.1", "cuda": "cpu"}, ["gizmo-3.1.0-cpu"]),
        ({"driver": "384.130", "python": "2.7"}, ["wd-1.12.3-cuda9.0", "wd-1.12.0-cuda9.0"]),
        ({"gpu": "sm_120"}, ["gizmo-3.2.0-cuda12.8", "gizmo-3.1.0-cuda12.4", "gizmo-3.1.0-cuda12.8"]),
        ({"system": "granite16.04", "cuda": "cpu"}, ["wd-1.12.3-cpu", "wd-1.12.0-cpu"]),
        ({"status": ("unknown",)}, ["gizmo-3.2.0-cuda12.8"]),
    ],
)
def test_the_catalogue_is_filtered(filters: dict[str, str], expected: list[str]) -> None:
    found = listed(**filters)
    assert [name.split("-py")[0] for name in found] == expected
    if "python" in filters:
        assert all("-py27-" in name for name in found)


def test_a_filter_that_names_nothing_is_refused() -> None:
    with pytest.raises(UnknownNameError):
        listed(framework="wigdet")
    with pytest.raises(UnknownNameError):
        listed(system="windows")


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"base": "tag", "cuda": "11.0", "framework": "widget-2.0.0"}, ["wd-2.0.0-cuda11.0-py36-marble10-tag"]),
        ({"base": "conda", "framework": "widget-1.12.3"}, ["wd-1.12.3-cuda9.0-py35-granite16.04-conda"]),
        ({"base": "apt", "framework": "widget-1.12.3"}, ["wd-1.12.3-cuda9.0-py35-granite16.04"]),
    ],
)
def test_a_base_that_is_not_the_usual_one_is_found(filters: dict[str, str], expected: list[str]) -> None:
    found = listed(**filters)
    assert found[: len(expected)] == expected
    rows = list_builds(TOY, Filters(**filters))
    assert {row.provider for row in rows} == {filters["base"]} and all(row.name for row in rows)


def test_a_base_may_be_an_image() -> None:
    found = listed(framework="widget-1.12.3", base="my/x:1", system="granite16.04", python="3.6")
    assert found and all(name.endswith("-py36-granite16.04-my_x-1") for name in found)
    with pytest.raises(UsageError) as caught:
        listed(base="my/x:1")
    assert caught.value.code == "base-needs-os"


def test_a_python_from_another_supply_than_the_usual_one_is_found() -> None:
    sources = read_sources(TOY_ENTRY)
    text = sources["matrix/systems.yaml"].decode()
    supply = 'from: [{by: uv, glibc: "2.28", executable: /opt/python3.11}]'
    more = text.replace('{version: "3.11", preference', f'{{version: "3.11", {supply}, preference')
    assert more != text
    matrix = compile_matrix({**sources, "matrix/systems.yaml": more.encode()})
    found = [row.name for row in list_builds(matrix, Filters(python_from="uv", python="3.11"))]
    assert found and all("-py311uv-" in name for name in found)


@pytest.mark.parametrize("text", ["abc", "9.0.x", "11 2", "cu>=11", ">=abc"])
def test_a_cuda_that_cannot_be_read_names_the_option(text: str) -> None:
    with pytest.raises(UsageError, match="--cuda must be a CUDA version") as caught:
        listed(cuda=text)
    assert caught.value.code == "bad-cuda"


@pytest.mark.parametrize("text", ["cuda", "11", "cuda11", "cu110", "11.0", ">=11, <12", "cuda>=11,<12"])
def test_a_cuda_may_be_written_as_in_a_request(text: str) -> None:
    assert "wd-2.0.0-cuda11.0" in {name.split("-py")[0] for name in listed(cuda=text)}


@pytest.mark.parametrize("words", [["--base", "tag"], ["widget", "--base", "conda"]])
def test_the_verb_passes_the_base_on(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert frame.run(["list", *words, "--root", str(TOY_ENTRY.parent), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["environments"]
    assert rows and {row["provider"] for row in rows} == {words[-1]}
