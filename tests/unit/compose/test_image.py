"""The configuration of a composed image."""

from __future__ import annotations

import json

from envbuild.compose.image import image
from envbuild.compose.model import Layer

LAYERS = [(Layer(digest=c * 64, diff_id=c.upper() * 64, size=1, unpacked=2), f"layer {c}") for c in "ab"]
SETTINGS = {"User": "1000", "Env": ["A=1"], "Hostname": "x", "Image": "sha256:0", "Labels": {}, "ExposedPorts": {"80/tcp": {}}}


def test_it_holds_the_layers_in_their_order_and_no_fact_of_a_container() -> None:
    made = image(LAYERS, SETTINGS, architecture="arm64", created="2020-01-01T00:00:00Z")
    config = json.loads(made.config)
    assert config["rootfs"] == {"type": "layers", "diff_ids": [f"sha256:{'A' * 64}", f"sha256:{'B' * 64}"]}
    assert [line["created_by"] for line in config["history"]] == ["layer a", "layer b"]
    assert config["config"] == {"User": "1000", "Env": ["A=1"], "ExposedPorts": {"80/tcp": {}}}
    assert (config["architecture"], config["os"], config["created"]) == ("arm64", "linux", "2020-01-01T00:00:00Z")
    assert made.layers == tuple(layer for layer, _ in LAYERS)


def test_equal_arguments_make_equal_bytes() -> None:
    turned = dict(reversed(SETTINGS.items()))
    one = image(LAYERS, SETTINGS, architecture="amd64", created="x")
    assert one == image(LAYERS, turned, architecture="amd64", created="x")
