"""Several threads compose an image; the first failure stops all of them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from envbuild.compose import composer
from envbuild.compose.composer import Composer
from envbuild.compose.downloads import Downloads
from envbuild.compose.store import LayerStore
from envbuild.engine.client import Engine
from envbuild.engine.model import BuiltImage
from envbuild.errors import BuildError
from envbuild.index.thread_pool import DaemonPool
from envbuild.lock import lock_file
from envbuild.model.progress import ignore_progress
from envbuild.workspace import find

NAME = "opencv-5.0.0.93-cpu-py311-debian12"


class Silent:
    """Replaces a program that compiles: it starts, and gets no modules."""

    def send(self, _data: bytes) -> None: ...

    def receive(self, size: int) -> bytes:
        assert size == 9
        return b"READY" + (1).to_bytes(4, "big")

    def close(self) -> None: ...


class Machine:
    """Replaces the engine; its containers do nothing."""

    def __init__(self) -> None:
        self.open = 0

    @contextlib.contextmanager
    def workshop(self, _image: str) -> Iterator[Any]:
        self.open += 1
        try:
            yield SimpleNamespace(close=lambda: None, talk=lambda *_: Silent())
        finally:
            self.open -= 1


@pytest.mark.parametrize("which", ["a step above the wheels", "the system packages"])
def test_what_fails_above_the_wheels_ends_the_wait_for_downloads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: str):
    monkeypatch.setattr(composer.skeleton, "diff_ids", lambda *_: ())
    monkeypatch.setattr(composer.skeleton, "skeleton", lambda *_: SimpleNamespace(image="whole", below=(), above=()))
    monkeypatch.setattr(composer.engine_image, "keep_layers", lambda *_: {})
    lock, store, machine, end = lock_file.read(find().lock_file(NAME)), LayerStore(tmp_path), Machine(), threading.Event()

    def fetch(*_: object) -> Path:
        end.wait()
        raise BuildError("The test is over.")

    def build(stage: str) -> BuiltImage:
        if not stage and which == "a step above the wheels":
            raise BuildError("It failed.", code="build-step")
        return BuiltImage(id="sha256:1", seconds=0.0, steps=1, cached=0)

    def check(image: str) -> None:
        assert image == "whole"
        raise BuildError("It failed.", code="packages-differ")

    composing = Composer(
        engine=cast(Engine, machine),
        store=store,
        lock=lock,
        build=build,
        downloads=Downloads(lock=lock, store=store, order={"env": []}, fetch=fetch, on_progress=ignore_progress),
        order={"env": []},
        wheels=tmp_path / "wheels",
        created="2020-01-01T00:00:00Z",
        on_progress=ignore_progress,
        check=check,
    )
    try:
        with pytest.raises(BuildError, match="It failed") as caught:
            DaemonPool(1).submit(composing.compose).result(60)
    finally:
        end.set()
    assert caught.value.code == ("build-step" if which == "a step above the wheels" else "packages-differ")
    assert machine.open == 0
