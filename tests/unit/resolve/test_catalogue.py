"""The rows of `list`: one for every build, and filters."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild.errors import UnknownNameError
from envbuild.matrix.reading.loader import load_files
from envbuild.resolve.catalogue import Filters, catalogue

TOY_ENTRY = Path(__file__).parents[2] / "golden" / "toy" / "matrix.yaml"
TOY = load_files(TOY_ENTRY)


def listed(**filters: str) -> list[str]:
    return [row.name for row in catalogue(TOY, Filters(**filters))]


def test_the_catalogue_has_a_row_for_every_build() -> None:
    rows = catalogue(TOY)
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
