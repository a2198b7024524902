"""The images that `save`, `push` and `publish` take from an engine."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import composed
import pytest

from envbuild.compose import engine_image
from envbuild.compose.outputs.engine import load
from envbuild.compose.store import LayerStore
from envbuild.engine import client
from envbuild.errors import EngineError
from envbuild.model.progress import ignore_progress
from envbuild.pipeline import saving
from envbuild.workspace import Workspace

LAYER = b"a layer"
CONFIG = json.dumps({"rootfs": {"diff_ids": [f"sha256:{hashlib.sha256(LAYER).hexdigest()}"]}}).encode()
ID = f"sha256:{hashlib.sha256(CONFIG).hexdigest()}"


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


class Engine:
    """An engine that counts how often it saves its only image."""

    endpoint = "unix:///engine.sock"

    def __init__(self, folder: Path) -> None:
        self.folder, self.saved = folder, 0

    def image(self, image: str) -> SimpleNamespace | None:
        layers = (f"sha256:{hashlib.sha256(LAYER).hexdigest()}",)
        return SimpleNamespace(id=ID, layers=layers) if image == ID else None

    def blobs(self, image: str) -> Iterator[tuple[Path, str]]:
        assert image == ID
        self.saved += 1
        for content in (LAYER, CONFIG):
            (self.folder / "blob").write_bytes(content)
            yield self.folder / "blob", hashlib.sha256(content).hexdigest()


def test_the_engine_saves_an_image_only_once(tmp_path: Path) -> None:
    """To save an image takes seconds for each gigabyte. One save gives the configuration and the layers."""
    workspace = Workspace(root=tmp_path, output=tmp_path, home=tmp_path / "home")
    engine, store = Engine(tmp_path), LayerStore(workspace.layers)
    tools, record = SimpleNamespace(workspace=workspace, engine=engine), SimpleNamespace(image=ID)
    first = saving.built_image(cast(Any, tools), cast(Any, record), store)
    assert engine.saved == 1
    assert saving.built_image(cast(Any, tools), cast(Any, record), store) == first and engine.saved == 1
    assert first.config == CONFIG and [layer.diff_id for layer in first.layers] == [hashlib.sha256(LAYER).hexdigest()]
    assert store.has(first.layers[0])
    store.blob(first.layers[0].digest).unlink()
    assert saving.built_image(cast(Any, tools), cast(Any, record), store) == first and engine.saved == 1, (
        "no layer is needed yet"
    )


class Containerd(Engine):
    """An engine with containerd's image store, in which an index names the image and an attestation."""

    def __init__(self, folder: Path, named: str) -> None:
        super().__init__(folder)
        stranger = json.dumps({"rootfs": {"diff_ids": ["sha256:" + "9" * 64]}}).encode()
        manifests = [json.dumps({"config": {"digest": digest_of(config)}}).encode() for config in (stranger, CONFIG)]
        index = json.dumps({"manifests": [{"digest": digest_of(each)} for each in manifests]}).encode()
        self.contents = [index, manifests[1], LAYER, CONFIG, manifests[0], stranger]
        self.id = digest_of({"index": index, "manifest": manifests[1]}[named])

    def image(self, image: str) -> SimpleNamespace | None:
        return SimpleNamespace(id=self.id, layers=(digest_of(LAYER),)) if image == self.id else None

    def blobs(self, image: str) -> Iterator[tuple[Path, str]]:
        assert image == self.id
        self.saved += 1
        for content in self.contents:
            (self.folder / "blob").write_bytes(content)
            yield self.folder / "blob", hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize("named", ["index", "manifest"])
def test_an_image_of_containerds_store_is_saved_with_its_own_configuration(tmp_path: Path, named: str) -> None:
    """The id of such an image is the digest of its manifest or index, not of its configuration."""
    workspace = Workspace(root=tmp_path, output=tmp_path, home=tmp_path / "home")
    engine, store = Containerd(tmp_path, named), LayerStore(workspace.layers)
    tools, record = SimpleNamespace(workspace=workspace, engine=engine), SimpleNamespace(image=engine.id)
    first = saving.built_image(cast(Any, tools), cast(Any, record), store)
    assert first.config == CONFIG and [digest_of(LAYER)] == [f"sha256:{layer.diff_id}" for layer in first.layers]
    assert saving.built_image(cast(Any, tools), cast(Any, record), store) == first and engine.saved == 1


@pytest.mark.parametrize("change", [lambda layers: layers[:0], lambda layers: [{**layers[0], "diff_id": "0" * 64}]])
def test_a_record_with_layers_of_another_image_is_not_used(tmp_path: Path, change: Callable[[Any], Any]) -> None:
    """The name of the record is the digest of the configuration, which says nothing about the layers beside it."""
    workspace = Workspace(root=tmp_path, output=tmp_path, home=tmp_path / "home")
    engine, store = Engine(tmp_path), LayerStore(workspace.layers)
    tools, record = SimpleNamespace(workspace=workspace, engine=engine), SimpleNamespace(image=ID)
    first = saving.built_image(cast(Any, tools), cast(Any, record), store)
    assert engine_image.recall(workspace.composed_images, ID) is not None
    path = workspace.composed_images / f"{ID.removeprefix('sha256:')}.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "layers": change(content["layers"])}))
    assert engine_image.recall(workspace.composed_images, ID) is None
    assert saving.built_image(cast(Any, tools), cast(Any, record), store) == first
    assert engine_image.recall(workspace.composed_images, ID) is not None, "the record is written again"


def test_an_image_that_neither_the_engine_nor_a_record_has_is_named(tmp_path: Path) -> None:
    workspace = Workspace(root=tmp_path, output=tmp_path, home=tmp_path / "home")
    tools, record = SimpleNamespace(workspace=workspace, engine=Engine(tmp_path)), SimpleNamespace(image="sha256:" + "0" * 64)
    with pytest.raises(EngineError, match="0000") as caught:
        saving.built_image(cast(Any, tools), cast(Any, record), LayerStore(workspace.layers))
    assert caught.value.code == "no-image"


@pytest.mark.engine
def test_a_real_engine_saves_an_image_once(engine: client.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = Workspace(root=tmp_path, output=tmp_path, home=tmp_path / "home")
    store, plain = LayerStore(workspace.layers), engine.blobs
    saved: list[str] = []
    layers = [composed.add(store, word) for word in ("base", "top")]
    image = composed.image(layers)
    own = load(engine, image, store, ["envbuild-test:saved-once"], ignore_progress)

    def count(name: str) -> Iterator[tuple[Path, str]]:
        saved.append(name)
        return plain(name)

    try:
        monkeypatch.setattr(engine, "blobs", count)
        tools, record = SimpleNamespace(workspace=workspace, engine=engine), SimpleNamespace(image=own)
        found = saving.built_image(cast(Any, tools), cast(Any, record), store)
        assert saved == [own] and found.config == image.config
        assert [layer.diff_id for layer in found.layers] == [layer.diff_id for layer in layers]
        assert all(store.has(layer) for layer in found.layers)
    finally:
        engine.remove_image("envbuild-test:saved-once")
