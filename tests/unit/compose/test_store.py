"""The layer store: every layer in it is complete, and a layer that is not in it is not found."""

from __future__ import annotations

import errno
import json
import os
import threading

import composed
import pytest

from envbuild import files
from envbuild.compose.store import LayerStore
from envbuild.errors import BuildError


@pytest.fixture
def store(tmp_path):
    return LayerStore(tmp_path / "layers")


def never(_stream):
    pytest.fail("the layer is in the store: nobody writes it again")


def entry_file(store, word):
    return store.folder / "keys" / f"{composed.key(word)}.json"


def test_a_layer_is_written_once_and_found_by_its_key(store):
    content, layer = composed.blob(composed.tarred({"etc/a": b"a"}))
    assert store.find(composed.key("a")) is None
    assert not store.folder.exists(), "asking makes nothing"
    assert store.add(composed.key("a"), composed.writer(content, layer), about="a") == layer
    assert store.find(composed.key("a")) == layer
    assert store.add(composed.key("a"), never) == layer
    assert store.blob(layer.digest, layer.size).read_bytes() == content
    assert LayerStore(store.folder).find(composed.key("a")) == layer


def test_the_folder_is_an_oci_layout_and_holds_nothing_else(store):
    layer = composed.add(store, "a")
    expected = {"oci-layout", "index.json", "in-use", f"blobs/sha256/{layer.digest}", f"keys/{composed.key('a')}.json"}
    assert composed.tree(store.folder) == expected
    assert json.loads((store.folder / "oci-layout").read_text()) == {"imageLayoutVersion": "1.0.0"}
    assert json.loads((store.folder / "index.json").read_text()) == {"schemaVersion": 2, "manifests": []}


def test_two_keys_may_give_the_same_layer(store):
    one = composed.add(store, "a", {"f": b"same"})
    other = composed.add(store, "b", {"f": b"same"})
    assert one == other == store.find(composed.key("a")) == store.find(composed.key("b"))
    assert list(store.blob_files()) == [one.digest]


@pytest.mark.parametrize("damage", ["absent", "short", "long", "folder"])
def test_a_blob_that_is_not_whole_is_not_found_and_is_written_again(store, damage):
    layer = composed.add(store, "a")
    path = store.blob(layer.digest)
    content = path.read_bytes()
    path.unlink()
    if damage == "folder":
        path.mkdir()
    elif damage != "absent":
        path.write_bytes(content[:-1] if damage == "short" else content + b"x")
    assert store.find(composed.key("a")) is None
    assert store.known(composed.key("a")) == layer
    with pytest.raises(BuildError) as caught:
        store.blob(layer.digest, layer.size)
    assert caught.value.code == ("layer-missing" if damage == "absent" else "layer-damaged")
    assert "again" in caught.value.hint.lower()
    if damage == "folder":
        path.rmdir()
    assert composed.add(store, "a") == layer
    assert store.blob(layer.digest, layer.size).read_bytes() == content


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[:-20],
        lambda text: "",
        lambda text: "[]",
        lambda text: text.replace('"unpacked": 10240', '"unpacked": 10241'),
        lambda text: text.replace('"format": 1', '"format": 2'),
        lambda text: text + "x" * 70000,
    ],
    ids=["cut", "empty", "other", "digit", "format", "long"],
)
def test_a_damaged_entry_is_not_believed(store, damage):
    layer = composed.add(store, "a")
    text = entry_file(store, "a").read_text()
    assert damage(text) != text
    entry_file(store, "a").write_text(damage(text))
    assert store.find(composed.key("a")) is None and store.known(composed.key("a")) is None
    assert composed.add(store, "a") == layer == store.find(composed.key("a"))


def test_a_writer_that_says_something_else_than_it_wrote_leaves_nothing(store):
    content, layer = composed.blob(composed.tarred({"f": b"f"}))
    with pytest.raises(ValueError, match=f"wrote {len(content) - 1} bytes instead of {len(content)}"):
        store.add(composed.key("f"), composed.writer(content[:-1], layer))
    assert store.find(composed.key("f")) is None and not store.blob_files()
    assert composed.tree(store.folder) == {"oci-layout", "index.json", "in-use"}


def test_a_writer_that_fails_leaves_nothing(store):
    def write(stream):
        stream.write(b"half")
        raise BuildError("the wheel is damaged", code="damaged-file")

    with pytest.raises(BuildError, match="the wheel is damaged"):
        store.add(composed.key("f"), write)
    assert composed.tree(store.folder) == {"oci-layout", "index.json", "in-use"}


def test_a_full_disk_is_one_clear_error(store):
    def write(stream):
        stream.write(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(BuildError, match=r"No space left on the file system mounted at /.* while writing") as caught:
        store.add(composed.key("f"), write)
    assert caught.value.code == "no-space" and "ENVBUILD_HOME" in caught.value.hint
    assert composed.tree(store.folder) == {"oci-layout", "index.json", "in-use"}


def test_what_the_writer_cannot_read_is_not_called_a_full_disk(store):
    with pytest.raises(FileNotFoundError):
        store.add(composed.key("f"), lambda stream: (store.folder / "no-such-wheel").open())


def test_two_threads_want_the_same_layer_one_writes_it(store):
    content, layer = composed.blob(composed.tarred({"f": b"f"}))
    writing, go_on, calls, answers = threading.Event(), threading.Event(), [], []

    def write(stream):
        calls.append(1)
        writing.set()
        assert go_on.wait(60)
        stream.write(content)
        return layer

    def ask(waits):
        answers.append(LayerStore(store.folder, waits).add(composed.key("f"), write))

    first = threading.Thread(target=ask, args=(lambda words: None,))
    first.start()
    assert writing.wait(60)
    second = threading.Thread(target=ask, args=(lambda words: go_on.set(),))  # the listener gets the name of the other process
    second.start()
    for thread in (first, second):
        thread.join(60)
    assert answers == [layer, layer] and calls == [1]


def test_leftovers_of_a_killed_process_are_removed_by_the_next_one(store, monkeypatch):
    composed.add(store, "a")
    (store.folder / "blobs/sha256/.new.abc").write_bytes(b"half a layer")
    (store.folder / "keys/.entry.json.new").write_bytes(b"half an entry")
    (store.folder / "locks" / composed.key("x")).write_text("4711\n")
    composed.add(LayerStore(store.folder), "b")
    left = [name for name in composed.tree(store.folder) if "/." in name or name.startswith("locks")]
    assert left == []


def test_while_somebody_uses_the_store_leftovers_stay(store):
    composed.add(store, "a")
    half = store.folder / "blobs/sha256/.new.abc"
    half.write_bytes(b"another process writes this now")
    with LayerStore(store.folder).in_use():
        composed.add(LayerStore(store.folder), "b")
        assert half.exists()
        with pytest.raises(BuildError) as caught, store.alone():
            pass
    assert caught.value.code == "busy"


def test_a_file_system_without_nameless_files_serves_too(store, monkeypatch):
    plain = os.open

    def open_(path, flags, mode=0o777, **more):
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "Operation not supported")
        return plain(path, flags, mode, **more)

    monkeypatch.setattr(files.os, "open", open_)
    layer = composed.add(store, "a")
    assert store.find(composed.key("a")) == layer
    with pytest.raises(BuildError):
        store.add(composed.key("b"), lambda stream: (_ for _ in ()).throw(BuildError("no")))
    assert list(store.blob_files()) == [layer.digest]
    assert not [name for name in composed.tree(store.folder) if "/." in name]


def test_using_a_layer_is_noted(store):
    composed.add(store, "a")
    os.utime(entry_file(store, "a"), (1000, 1000))
    assert store.entries()[0].used == 1000
    store.find(composed.key("a"))
    assert store.entries()[0].used > 1000
    os.utime(entry_file(store, "a"), (1000, 1000))
    store.known(composed.key("a"))
    assert store.entries()[0].used == 1000


@pytest.mark.parametrize("name", ["", "a", "../../etc/passwd", "A" * 64, "0" * 63])
def test_only_digests_are_names(store, name):
    with pytest.raises(ValueError, match="not a SHA-256"):
        store.find(name)
    with pytest.raises(ValueError, match="not a SHA-256"):
        store.blob(name)
