"""The composer tells the user what it is waiting for."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from envbuild import files
from envbuild.compose.store import LayerStore
from envbuild.errors import BuildError
from envbuild.index.thread_pool import DaemonPool
from envbuild.lock import lock_file
from envbuild.model.progress import Progress
from envbuild.pipeline import composing
from envbuild.pipeline.tools import Tools
from envbuild.workspace import find

KEY = "a" * 64


def test_waiting_for_a_layer_that_another_run_makes_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(files, "QUIET_S", 0.0)
    told, waits, begun = list[Progress](), threading.Event(), threading.Event()

    def listen(news: Progress) -> None:
        told.append(news)
        waits.set()

    def slow(_stream: object) -> None:
        begun.set()
        waits.wait(60)
        raise BuildError("The other run failed.")

    def fast(_stream: object) -> None:
        raise BuildError("This run began.")

    lock = lock_file.read(find().lock_file("opencv-5.0.0.93-cpu-py311-debian12"))
    tools = Tools(replace(find(), home=tmp_path), on_progress=listen)
    composition = composing.composer(tools, lock)
    other = DaemonPool(1).submit(LayerStore(tools.workspace.layers).add, KEY, slow)
    assert begun.wait(60)
    with pytest.raises(BuildError, match="This run began"):
        composition.store.add(KEY, fast)
    with pytest.raises(BuildError, match="The other run failed"):
        other.result(60)
    assert any("waiting for" in news.message for news in told)
