"""An image composed from its wheels has the contents of its Dockerfile's image: every path, mode, owner and byte."""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from image_trees import differences, tree
from program import Program, own_program, share_bases, share_downloads

from envbuild.engine.client import Engine

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.slow]

NAME = "opencv-4.5.1.48-cpu-py39-debian11"
LONG = {
    "many packages, Python 3.11": "tf-2.21.0-cpu-py311-debian12",
    "Python 2.7": "mxnet-1.6.0-cpu-py27-debian11",
    "packages built from source": "chainer-4.3.1-cpu-py27-debian11",
    "several prefixes": "two-pythons-cpu",
    "wheels of CUDA": "jax-0.7.2-cuda12.9-py311-debian12",
}


@pytest.fixture(params=["engine", "containerd_engine"])
def engine(request: pytest.FixtureRequest, engine: Engine) -> Engine:
    """Docker with its own image store, and with containerd's."""
    found: Engine = engine if request.param == "engine" else request.getfixturevalue(request.param)
    return found


@pytest.fixture
def program(tmp_path: Path, engine: Engine) -> Program:
    share_bases(tmp_path / "home")
    share_downloads(tmp_path / "home")
    return own_program(tmp_path, {"DOCKER_HOST": engine.endpoint})


def build(program: Program, name: str, builder: str) -> dict[str, Any]:
    return program.run("build", name, "--builder", builder, "--json", timeout=3000).expect(0).document


def compare(program: Program, engine: Engine, name: str) -> None:
    program.run("lock", name, timeout=600).expect(0)
    composed = build(program, name, "compose")
    kept = composed["image"].replace("sha256:", "envbuild-test/composed:")[:60]
    engine.tag(composed["image"], kept)
    built = build(program, name, "docker")
    program.run("save", name, "--to", f"oci:{program.home}/built", timeout=600).expect(0)
    try:
        require_whole(program.home / "built", engine, built["image"])
        assert (composed["builder"], built["builder"]) == ("compose", "docker")
        assert differences(tree(engine, kept), tree(engine, built["image"])) == []
        ours, theirs = engine.settings(kept), engine.settings(built["image"])
        for setting in ("User", "Env", "Entrypoint", "Cmd", "WorkingDir", "Labels", "Shell", "ExposedPorts"):
            assert ours.get(setting) == theirs.get(setting), setting
    finally:
        for tag in {*composed["tags"], *built["tags"], kept}:
            engine.remove_image(tag)


def require_whole(layout: Path, engine: Engine, image: str) -> None:
    """Check the only image of the layout: it is the image with this id, and every blob has the expected digest.

    The id is the digest of the configuration. In containerd's image store, it is the digest of a manifest, whose layers the
    engine may have compressed in another way.
    """

    def blob(descriptor: dict[str, Any]) -> bytes:
        content = (layout / "blobs" / descriptor["digest"].replace(":", "/")).read_bytes()
        assert hashlib.sha256(content).hexdigest() == descriptor["digest"].partition(":")[2]
        assert len(content) == descriptor["size"]
        return content

    (entry,) = json.loads((layout / "index.json").read_text())["manifests"]
    manifest = json.loads(blob(entry))
    if engine.image_store != "containerd":
        assert manifest["config"]["digest"] == image
    config = json.loads(blob(manifest["config"]))
    unpacked = [hashlib.sha256(gzip.decompress(blob(layer))).hexdigest() for layer in manifest["layers"]]
    held = engine.image(image)
    assert [f"sha256:{digest}" for digest in unpacked] == config["rootfs"]["diff_ids"]
    assert held is not None and list(held.layers) == config["rootfs"]["diff_ids"]


def test_a_composed_image_equals_the_one_of_the_dockerfile(program: Program, engine: Engine) -> None:
    """The layers stay in the store, and later images that need the same layers use them."""
    compare(program, engine, NAME)
    layers = program.home / "layers"
    before = {path.name for path in (layers / "blobs/sha256").iterdir()}
    again = build(program, NAME, "compose")
    try:
        assert not again["kept"]
        assert {path.name for path in (layers / "blobs/sha256").iterdir()} == before
        assert build(program, NAME, "compose")["kept"]
        assert engine.run(again["image"], ["python", "-c", "import cv2"], network="none").code == 0
        program.run("save", NAME, "--to", f"oci:{program.home}/composed").expect(0)
        require_whole(program.home / "composed", engine, again["image"])
        placed = program.run("build", NAME, "--to", f"oci:{program.home}/placed", "--json", timeout=600).expect(0).document
        require_whole(program.home / "placed", engine, again["image"])
        (saved,) = json.loads((program.home / "composed/index.json").read_text())["manifests"]
        assert (placed["digest"], placed["made"]) == (saved["digest"], 0)
        assert again["image"] in (placed["image"], placed["digest"])
        (entry,) = json.loads((program.home / "placed/index.json").read_text())["manifests"]
        assert entry["annotations"]["org.opencontainers.image.ref.name"].endswith("-unverified")
    finally:
        for tag in again["tags"]:
            engine.remove_image(tag)


@pytest.mark.prove
@pytest.mark.parametrize("kind", LONG)
def test_every_kind_of_image(program: Program, engine: Engine, kind: str) -> None:
    compare(program, engine, LONG[kind])
