"""A layer is read while it is written: the reader gets the same bytes, or learns that the writer has failed."""

from __future__ import annotations

import threading
from pathlib import Path

import composed
import pytest

from envbuild.compose import growing
from envbuild.compose.growing import GrowingLayer
from envbuild.compose.model import Layer
from envbuild.compose.store import LayerStore


def read_while_written(tmp_path: Path, *, fails: bool) -> tuple[bytes, bytes, list[str]]:
    content, layer = composed.blob(composed.tarred({"f": bytes(100_000)}), gzipped=False)
    seen, errors, threads = bytearray(), [], []

    def read(found: GrowingLayer) -> None:
        try:
            with found:
                for piece in found.pieces():
                    seen.extend(piece)
        except growing.AbandonedError:
            errors.append("abandoned")

    def watch(found: GrowingLayer) -> None:
        threads.append(threading.Thread(target=read, args=(found,)))
        threads[0].start()

    def write(stream) -> Layer:
        for begin in range(0, len(content), 1000):
            stream.write(content[begin : begin + 1000])
            if fails and begin > 5000:
                raise OSError("the disk is gone")
        return layer

    store = LayerStore(tmp_path / "store")
    if fails:
        with pytest.raises(OSError, match="the disk is gone"):
            store.add(composed.key("f"), write, watch=watch)
    else:
        assert store.add(composed.key("f"), write, watch=watch) == layer
    threads[0].join(30)
    return content, bytes(seen), errors


def test_the_reader_gets_all_bytes(tmp_path: Path) -> None:
    content, seen, errors = read_while_written(tmp_path, fails=False)
    assert seen == content and not errors


def test_the_reader_learns_that_the_writer_failed(tmp_path: Path) -> None:
    content, seen, errors = read_while_written(tmp_path, fails=True)
    assert errors == ["abandoned"] and content.startswith(seen) and seen != content


def test_a_layer_that_the_store_has_is_not_watched(tmp_path: Path) -> None:
    store = LayerStore(tmp_path / "store")
    layer = composed.add(store, "a")
    assert store.add(composed.key("a"), lambda _stream: layer, watch=lambda _growing: pytest.fail("it is not written")) == layer
