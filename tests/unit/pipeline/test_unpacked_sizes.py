"""The measured ratios of unpacked to packed sizes: which ratio holds for which release, and damaged files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import verify_locks

from envbuild.errors import InvalidInputError
from envbuild.model.lock import DebianPackage
from envbuild.pipeline import unpacked_sizes
from envbuild.pipeline.unpacked_sizes import UnpackedSizes

TOLD = {
    "schema": 1,
    "bases": {"bookworm": 5},
    "debian": {"bookworm": {"cmake": 3}},
    "wheels": {"widget": {"1.5": 2, "2.0": 3, "10.0": 4}, "gadget": {"7": 6}},
}


@pytest.fixture
def sizes(tmp_path: Path) -> UnpackedSizes:
    path = tmp_path / "sizes.json"
    path.write_text(json.dumps(TOLD))
    return unpacked_sizes.load(path)


@pytest.mark.parametrize(
    ("name", "version", "ratio"),
    [
        ("widget", "1.0", 2),
        ("widget", "1.5", 2),
        ("widget", "1.9.9", 2),
        ("widget", "2.0.post1", 3),
        ("widget", "9", 3),
        ("widget", "11.0+cu13", 4),
        ("widget", "no version", 4),
        ("gadget", "1", 6),
        ("unknown", "1", 4.0),
    ],
)
def test_the_ratio_of_the_newest_measured_release_that_is_not_newer_holds(sizes, name, version, ratio):
    wheel = replace(verify_locks.artifact(name, version), size=100)
    assert sizes.of_artifact(wheel, with_cuda=False) == 100 * ratio


def test_packages_of_debian_have_ratios_for_each_suite(sizes):
    package = DebianPackage(name="cmake", version="1", sha256="a" * 64, size=10)
    assert (sizes.of_package(package, "bookworm"), sizes.of_base(package, "bookworm")) == (30, 50)
    assert sizes.of_package(package, "trixie") == sizes.of_base(package, "trixie") == 43


def test_without_the_data_file_the_same_ratios_are_used_for_all(tmp_path):
    assert unpacked_sizes.load(tmp_path / "absent.json") == UnpackedSizes()


@pytest.mark.parametrize(
    "damage", [{"wheels": {"widget": {"1": 0}}}, {"wheels": {"widget": {}}}, {"bases": 1}, {"debian": {"x": {"y": "much"}}}]
)
def test_a_damaged_file_is_refused_with_its_path(tmp_path, damage):
    path = tmp_path / "sizes.json"
    path.write_text(json.dumps(TOLD | damage))
    with pytest.raises(InvalidInputError, match=r"sizes\.json cannot be read") as told:
        unpacked_sizes.load(path)
    assert told.value.code == "unpacked-sizes"
