"""Maintenance of the layer store: list its contents, remove the layers unused for longest, read all layers again."""

from __future__ import annotations

import os

import composed
import pytest

from envbuild.compose import upkeep
from envbuild.compose.store import LayerStore
from envbuild.errors import BuildError
from envbuild.model.progress import ignore_progress


@pytest.fixture
def store(tmp_path):
    return LayerStore(tmp_path / "layers")


def used_at(store, word, when):
    os.utime(store.folder / "keys" / f"{composed.key(word)}.json", (when, when))


def test_an_absent_store_is_empty(store):
    assert upkeep.held(store) == []
    assert upkeep.prune(store, 0) == upkeep.PrunedLayers(removed=(), freed=0, kept=0)
    assert upkeep.verify(store, ignore_progress) == upkeep.VerifiedLayers(layers=0, bytes=0, damaged=(), entries=())
    assert not store.folder.exists()


def test_what_is_held_begins_with_what_was_used_last(store):
    for when, word in enumerate("abc"):
        composed.add(store, word)
        used_at(store, word, 1000 + when)
    composed.add(store, "also c", {"c": b"c" * 50})
    used_at(store, "also c", 5)
    (found,) = (each for each in upkeep.held(store) if "c" in each.about)
    assert [each.about for each in upkeep.held(store)] == [("also c", "c"), ("b",), ("a",)]
    assert (found.used, found.unpacked) == (1002, 10240)


def test_prune_keeps_what_was_used_last_and_the_index(store):
    layers = {word: composed.add(store, word) for word in "abcd"}
    for when, word in enumerate("bdac"):
        used_at(store, word, 1000 + when)
    size = layers["a"].size + layers["c"].size
    pruned = upkeep.prune(store, size)
    assert [each.about for each in pruned.removed] == [("d",), ("b",)]
    assert pruned.kept == size and pruned.freed == layers["b"].size + layers["d"].size
    assert set(store.blob_files()) == {layers["a"].digest, layers["c"].digest}
    assert store.find(composed.key("b")) is None and store.known(composed.key("b")) == layers["b"]
    assert composed.add(store, "b") == layers["b"]
    assert upkeep.prune(store, 0).kept == 0 and not store.blob_files()


def test_prune_removes_what_no_entry_names_and_leftovers(store):
    layer = composed.add(store, "a")
    orphan = store.folder / "blobs/sha256" / ("0" * 64)
    orphan.write_bytes(b"killed before its entry")
    (store.folder / "blobs/sha256/.new.x").write_bytes(b"half")
    pruned = upkeep.prune(store, 10**9)
    assert pruned.freed == len(b"killed before its entry") + len(b"half")
    assert list(store.blob_files()) == [layer.digest]


def test_prune_waits_for_nobody(store):
    composed.add(store, "a")
    with LayerStore(store.folder).in_use(), pytest.raises(BuildError) as caught:
        upkeep.prune(store, 0)
    assert caught.value.code == "busy" and store.find(composed.key("a"))


@pytest.mark.parametrize("gzipped", [True, False], ids=["gzip", "plain"])
def test_verify_finds_every_changed_byte(store, gzipped):
    good = composed.add(store, "good", gzipped=gzipped)
    bad = composed.add(store, "bad", gzipped=gzipped)
    path = store.blob(bad.digest)
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 1
    path.unlink()
    path.write_bytes(content)
    assert store.find(composed.key("bad")) == bad, "its size is right"
    news = []
    verified = upkeep.verify(store, news.append)
    assert verified.damaged == (bad.digest,) and verified.entries == (composed.key("bad"),)
    assert verified.layers == 2 and verified.bytes == good.size + bad.size
    assert news[-1].done == news[-1].total == verified.bytes
    assert store.find(composed.key("bad")) is None and store.known(composed.key("bad")) is None
    assert store.find(composed.key("good")) == good
    assert upkeep.verify(store, ignore_progress).damaged == ()


@pytest.mark.parametrize("field", ["diff_id", "unpacked"])
def test_verify_finds_a_layer_that_unpacks_to_something_else(store, field):
    from dataclasses import replace

    content, layer = composed.blob(composed.tarred({"f": b"f"}))
    lie = replace(layer, **{field: "1" * 64 if field == "diff_id" else layer.unpacked - 1})
    store.add(composed.key("lie"), composed.writer(content, lie))
    verified = upkeep.verify(store, ignore_progress)
    assert verified.damaged == () and verified.entries == (composed.key("lie"),)
    assert store.find(composed.key("lie")) is None


def test_verify_removes_entries_that_cannot_be_read(store):
    composed.add(store, "a")
    (store.folder / "keys" / f"{composed.key('a')}.json").write_text("{")
    assert upkeep.verify(store, ignore_progress).entries == (composed.key("a"),)
    assert not list((store.folder / "keys").iterdir())


def test_verify_unpacks_what_gzip_packs_best_and_members_of_every_size(store):
    import random

    chance = random.Random(5)
    contents = {f"f{n}": chance.randbytes(n * 37 % 4000) for n in range(300)} | {"zeros": bytes(9 << 20)}
    layer = composed.add(store, "many", contents)
    assert layer.unpacked > 9 << 20
    assert upkeep.verify(store, ignore_progress).entries == ()
