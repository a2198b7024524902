"""`envbuild push` and `envbuild pull` as a user runs them, without an engine: small images, and a registry on loopback."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import composed
import pytest
from program import Program, own_program
from stand_in_registry import Registry, serve

from envbuild import codec, files
from envbuild.build import BaseRecord, BuildRecord
from envbuild.compose import engine_image
from envbuild.compose.model import ComposedImage
from envbuild.compose.store import LayerStore
from envbuild.workspace import Workspace

NAME = "opencv-5.0.0.93-cpu-py311-debian12"
LOCK, INPUTS = "a" * 64, "b" * 64
FIXED = f"{NAME}-aaaaaaaa-bbbbbbbb"


@pytest.fixture
def registry() -> Iterator[Registry]:
    with serve(Registry()) as served:
        yield served


@pytest.fixture
def program(tmp_path: Path) -> Program:
    nowhere = {"DOCKER_HOST": "unix:///nowhere.sock", "DOCKER_CONFIG": str(tmp_path), "NO_PROXY": "127.0.0.1"}
    return own_program(tmp_path, nowhere)


@pytest.fixture
def space(program: Program) -> Workspace:
    return Workspace(root=program.root, output=program.root / "images", home=program.home)


@pytest.fixture
def image(space: Workspace) -> ComposedImage:
    """An image that was composed on this machine: its layers, its remembered description, and the record of the build."""
    store = LayerStore(space.layers)
    made = composed.image([composed.add(store, word) for word in ("base", "wheels")])
    engine_image.remember(space.composed_images, made, composed.id_of(made))
    base = BaseRecord(reference="b", image="sha256:b", how="pulled", digest="", notes=())
    record = BuildRecord(
        name=NAME, lock=LOCK, inputs=INPUTS, image=composed.id_of(made),
        tags=(f"envbuild:{NAME}", f"envbuild:{NAME}-aaaaaaaa", f"envbuild:{FIXED}"), base=base, engine="e", built_at="t",
        seconds=1.0, steps=2, cached=0, size=1, kept=False, builder="compose",
    )  # fmt: skip
    files.write_atomic(space.build_record(NAME), codec.dumps(record))
    return made


def test_an_image_is_pushed_on_without_its_layers_and_pulled_as_files(program, space, image, registry, tmp_path):
    """The registry has every layer. So a push to another repository needs neither wheels nor layers on this machine."""
    (told,) = program.run("push", NAME, "--to", f"{registry.host}/lab/one", "--json").expect(0).document["images"]
    assert (told["present"], told["mounted"], told["tags"][-1]) == (0, 0, FIXED)
    program.run("cache", "prune", "--keep", "0").expect(0)
    store = LayerStore(space.layers)
    assert not any(store.has(layer) for layer in image.layers)
    (again,) = program.run("push", NAME, "--to", f"{registry.host}/lab/two", "--json").expect(0).document["images"]
    assert (again["sent_bytes"], again["mounted"], again["digest"]) == (0, 2, told["digest"])
    target = tmp_path / "layout"
    argv = ["pull", NAME, "--from", f"{registry.host}/lab/two", "--tag", FIXED, "--to", f"oci:{target}", "--json"]
    (pulled,) = program.run(*argv).expect(0).document["images"]
    assert (pulled["digest"], pulled["tag"], pulled["present"]) == (told["digest"], FIXED, 0)
    assert pulled["received_bytes"] == sum(layer.size for layer in image.layers) and not pulled["same_inputs"]
    for layer in image.layers:
        assert hashlib.sha256((target / "blobs/sha256" / layer.digest).read_bytes()).hexdigest() == layer.digest
    (kept,) = program.run(*argv).expect(0).document["images"]
    assert (kept["received_bytes"], kept["present"]) == (0, 2)


def test_an_image_is_pushed_by_zstd_and_pushed_on_without_its_layers(program, space, image, registry):
    (told,) = (
        program.run("push", NAME, "--to", f"{registry.host}/lab/one", "--compression", "zstd", "--json")
        .expect(0)
        .document["images"]
    )
    sent = json.loads(registry.manifests[f"lab/one:{FIXED}"])
    assert {layer["mediaType"] for layer in sent["layers"]} == {"application/vnd.oci.image.layer.v1.tar+zstd"}
    program.run("cache", "prune", "--keep", "0").expect(0)
    argv = ["push", NAME, "--to", f"{registry.host}/lab/two", "--compression", "zstd", "--json"]
    (again,) = program.run(*argv).expect(0).document["images"]
    assert (again["sent_bytes"], again["digest"]) == (0, told["digest"])


@pytest.mark.parametrize("kind", ["zstd", "none"])
def test_an_image_is_saved_in_any_compression(program, space, image, tmp_path, kind):
    program.run("save", NAME, "--to", f"oci:{tmp_path}/out", "--compression", kind).expect(0)
    sizes = {path.name: path.stat().st_size for path in (tmp_path / "out/blobs/sha256").iterdir()}
    assert not {layer.digest for layer in image.layers} & set(sizes)
    assert (kind == "none") == all(layer.diff_id in sizes for layer in image.layers)
    if kind == "zstd" and shutil.which("zstd"):
        (manifest,) = json.loads((tmp_path / "out/index.json").read_text())["manifests"]
        blobs = tmp_path / "out/blobs/sha256"
        told = json.loads((blobs / manifest["digest"].removeprefix("sha256:")).read_text())
        for made, layer in zip(told["layers"], image.layers, strict=True):
            argv = ["zstd", "-dc", str(blobs / made["digest"].removeprefix("sha256:"))]
            unpacked = subprocess.run(argv, check=True, capture_output=True, timeout=120).stdout
            assert hashlib.sha256(unpacked).hexdigest() == layer.diff_id


def test_without_a_lock_a_tag_is_asked_for(program, registry):
    error = program.run("pull", NAME, "--from", f"{registry.host}/lab/one", "--json").expect(11).document["error"]
    assert error["code"] == "not-in-registry" and f"--tag {NAME}" in error["hint"]


def test_a_tag_that_is_not_there_is_named(program, registry):
    argv = ["pull", NAME, "--from", f"{registry.host}/lab/one", "--tag", "v9", "--json"]
    error = program.run(*argv).expect(11).document["error"]
    assert error["code"] == "not-in-registry" and "v9" in error["message"]
