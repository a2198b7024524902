"""Composed images in other engines that this machine possibly has: Apptainer, and Docker or Podman at other addresses.

ENVBUILD_TEST_ENGINES names further engines, for example ``unix:///run/docker-28.sock unix:///run/podman.sock``.
"""

from __future__ import annotations

import io
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import composed
import pytest

from envbuild.compose import engine_image
from envbuild.compose.layer import LayerWriter
from envbuild.compose.members import InMemory
from envbuild.compose.model import ComposedImage, Layer
from envbuild.compose.outputs import compression, oci
from envbuild.compose.outputs import engine as engines
from envbuild.compose.store import LayerStore
from envbuild.engine.choice import connect
from envbuild.model.progress import ignore_progress
from envbuild.workspace import Workspace

pytestmark = [pytest.mark.engine, pytest.mark.prove]
ADDRESSES = os.environ.get("ENVBUILD_TEST_ENGINES", "").split()
NAME = "envbuild-test/elsewhere:1"


def further(test: Callable[..., None]) -> Callable[..., None]:
    """Run the test with each of the further engines."""
    each = pytest.mark.parametrize("address", ADDRESSES)(test)
    return pytest.mark.skipif(not ADDRESSES, reason="ENVBUILD_TEST_ENGINES names no engine")(each)


@pytest.fixture
def store(tmp_path: Path) -> LayerStore:
    return LayerStore(tmp_path / "store")


@pytest.fixture
def image(store: LayerStore) -> ComposedImage:
    """An image that prints a greeting. Its two layers are made as from wheels, each with the list of its files at the end."""

    def add(path: str, content: bytes) -> Layer:
        stream = io.BytesIO()
        writer = LayerWriter(stream)
        writer.add_file(path, InMemory(content), is_executable=True)
        layer = writer.close()
        return store.add(composed.key(path), composed.writer(stream.getvalue(), layer))

    return composed.image([add("/greet", composed.greeter()), add("/greeting", b"hello")], Cmd=["/greet"])


@pytest.mark.judges("apptainer")
@pytest.mark.parametrize("kind", get_args(compression.Compression))
def test_apptainer_runs_it(store: LayerStore, image: ComposedImage, tmp_path: Path, kind: compression.Compression) -> None:
    oci.write(compression.converted(image, store, kind, ignore_progress), store, tmp_path / "layout", "v1", ignore_progress)
    folders = {"APPTAINER_TMPDIR": str(tmp_path), "APPTAINER_CACHEDIR": str(tmp_path / "cache")}
    box = tmp_path / "box"

    def apptainer(*words: str) -> str:
        argv = ["apptainer", "--silent", *words]
        done = subprocess.run(argv, env=os.environ | folders, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, done.stderr
        return done.stdout

    apptainer("build", "--sandbox", str(box), f"oci:{tmp_path}/layout")
    assert not {path.name for path in box.iterdir()} & {"stargz.index.json", ".no.prefetch.landmark"}
    assert "hello" in apptainer("exec", "--no-privs", "--containall", str(box), "/greet")


@further
@pytest.mark.parametrize("kind", get_args(compression.Compression))
def test_another_engine_runs_it(
    store: LayerStore, image: ComposedImage, workspace: Workspace, address: str, kind: compression.Compression
) -> None:
    engine = connect(workspace, {"DOCKER_HOST": address})
    engines.load(engine, compression.converted(image, store, kind, ignore_progress), store, [NAME], ignore_progress)
    try:
        assert engine.run(NAME, ["/greet"], network="none").output.strip() == "hello"
    finally:
        engine.remove_image(NAME)


@further
def test_an_engine_that_can_skip_layers_gets_only_those_that_it_lacks(
    store: LayerStore, image: ComposedImage, workspace: Workspace, address: str
) -> None:
    engine = connect(workspace, {"DOCKER_HOST": address})
    below, top = image.layers[0], composed.add(store, "another")
    other, sent = composed.image([below, top], Cmd=["/greet"]), list[float]()
    first = engines.load(engine, image, store, [NAME], ignore_progress)
    try:
        known = {first: image}
        second = engines.load(
            engine, other, store, [f"{NAME}-other"], lambda news: sent.append(news.total or 0), recall=known.get
        )
        whole = float(sum(layer.size for layer in other.layers))
        assert {each for each in sent if each} == {float(top.size) if engines.skips_layers_it_has(engine) else whole}
        assert engine.run(f"{NAME}-other", ["/greet"], network="none").code != 127
        assert engine_image.describe(engine, second, store).config == other.config
    finally:
        engine.remove_image(NAME)
        engine.remove_image(f"{NAME}-other")


@further
def test_a_layer_that_the_engine_has_lost_is_sent(
    store: LayerStore, image: ComposedImage, workspace: Workspace, address: str
) -> None:
    """containerd reports success for an archive without a layer that it lacks."""
    engine = connect(workspace, {"DOCKER_HOST": address})
    here = composed.image([composed.add(store, "here")])
    first = engines.load(engine, here, store, [f"{NAME}-here"], ignore_progress)
    try:
        wrong = {first: ComposedImage(config=here.config, layers=image.layers)}
        engines.load(engine, image, store, [NAME], ignore_progress, recall=wrong.get)
        assert engine.run(NAME, ["/greet"], network="none").output.strip() == "hello"
    finally:
        engine.remove_image(NAME)
        engine.remove_image(f"{NAME}-here")
