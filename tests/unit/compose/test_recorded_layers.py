"""The file with the digests of the layers of huge wheels."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from envbuild import workspace
from envbuild.compose import downloads, layer_plan, recorded_layers
from envbuild.compose.model import Layer
from envbuild.errors import InvalidInputError
from envbuild.lock import lock_file

KEY = "a" * 64
LAYER = Layer(digest="1" * 64, diff_id="2" * 64, size=3, unpacked=4, files="5" * 64)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    recorded_layers.write(tmp_path, {KEY: ("torch-2.0", LAYER), "b" * 64: ("jax", LAYER)})
    assert recorded_layers.load(tmp_path) == {KEY: LAYER, "b" * 64: LAYER}
    assert [line[1:2] for line in (tmp_path / recorded_layers.FILE).read_text().splitlines()[1:-1]] == ["b", "a"], (
        "sorted by title"
    )


def test_no_file_means_no_recorded_layer(tmp_path: Path) -> None:
    assert recorded_layers.load(tmp_path) == {}


@pytest.mark.parametrize(
    "damage",
    [{"schema": 2}, {"layers": 1}, *({"layers": {KEY: asdict(LAYER) | row}} for row in (
        {"digest": "x"}, {"diff_id": 1}, {"files": ""}, {"size": "3"}, {"unpacked": -1}))],
)  # fmt: skip
def test_a_damaged_file_is_refused_with_its_path(tmp_path: Path, damage: dict[str, Any]) -> None:
    (tmp_path / recorded_layers.FILE).write_text(json.dumps({"schema": 1, "layers": {KEY: asdict(LAYER)}} | damage))
    with pytest.raises(InvalidInputError, match=r"layers\.json cannot be read") as told:
        recorded_layers.load(tmp_path)
    assert told.value.code == "recorded-layers"


def test_the_committed_file_has_the_layers_of_this_version() -> None:
    """If this fails: the rules for layers have changed. Run `python benchmarks/recorded_layers.py`, which records them anew."""
    here = workspace.find()
    (prefix,) = lock_file.read(here.lock_file("tf-2.21.0-cpu-py311-debian12")).prefixes
    wheels = [downloads.wheel(artifact) for artifact in prefix.artifacts]
    huge = [layer for layer in layer_plan.wheel_layers(prefix, wheels, "") if layer.holds == "files"]
    assert huge and {layer.key for layer in huge} <= recorded_layers.load(here.images).keys()
