"""The images that `save`, `push` and `publish` take from an engine."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from envbuild.compose.store import LayerStore
from envbuild.pipeline import saving
from envbuild.workspace import Workspace

LAYER = b"a layer"
CONFIG = json.dumps({"rootfs": {"diff_ids": [f"sha256:{hashlib.sha256(LAYER).hexdigest()}"]}}).encode()
ID = f"sha256:{hashlib.sha256(CONFIG).hexdigest()}"


class Engine:
    """An engine that counts how often it saves its only image."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.saved = folder, 0

    def blobs(self, image: str) -> Iterator[tuple[Path, str]]:
        assert image == ID
        self.saved += 1
        for content in (LAYER, CONFIG):
            (self.folder / "blob").write_bytes(content)
            yield self.folder / "blob", hashlib.sha256(content).hexdigest()


def test_the_engine_saves_an_image_only_until_the_store_has_its_layers(tmp_path: Path) -> None:
    """To save an image takes seconds for each gigabyte, so a second `publish` must not do it."""
    workspace = Workspace(root=tmp_path, output=tmp_path, home=tmp_path / "home")
    engine, store = Engine(tmp_path), LayerStore(workspace.layers)
    tools, record = SimpleNamespace(workspace=workspace, engine=engine), SimpleNamespace(image=ID)
    first = saving.built_image(cast(Any, tools), cast(Any, record), store)
    assert engine.saved == 2  # for the configuration, and for the layers
    assert saving.built_image(cast(Any, tools), cast(Any, record), store) == first and engine.saved == 2
    assert first.config == CONFIG and [layer.diff_id for layer in first.layers] == [hashlib.sha256(LAYER).hexdigest()]
    assert store.has(first.layers[0])
