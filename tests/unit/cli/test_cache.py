"""The command that lists, checks and removes layers."""

from __future__ import annotations

import json

import composed
import pytest

from envbuild.cli import frame
from envbuild.cli.cache import parse_size
from envbuild.compose.store import LayerStore
from envbuild.errors import UsageError


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("ENVBUILD_HOME", str(tmp_path / "home"))
    return LayerStore(tmp_path / "home/layers")


def asked(capsys, *argv):
    code = frame.run(["cache", *argv, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_an_empty_cache(store, capsys):
    assert frame.run(["cache", "list"]) == 0
    assert capsys.readouterr().out == f"0 layers, 0 B in total, in {store.folder}\n"
    assert asked(capsys, "verify")[0] == 0 and asked(capsys, "prune", "--keep", "0")[0] == 0
    assert not store.folder.exists()


def test_a_list_says_what_each_layer_was_made_from(store, capsys):
    layer = composed.add(store, "widget-1.0.whl")
    assert frame.run(["cache", "list"]) == 0
    head, row, total = capsys.readouterr().out.splitlines()
    assert head.split() == ["LAYER", "SIZE", "USED", "MADE", "FROM"]
    assert row.startswith(layer.digest[:12]) and row.endswith("widget-1.0.whl") and total.startswith("1 layer, ")
    code, told = asked(capsys, "list")
    assert (code, told["bytes"], told["folder"]) == (0, layer.size, str(store.folder))
    (found,) = told["layers"]
    assert found["used"].endswith("+00:00")
    assert {name: found[name] for name in ("digest", "size", "unpacked", "about")} == {
        "digest": layer.digest,
        "size": layer.size,
        "unpacked": layer.unpacked,
        "about": ["widget-1.0.whl"],
    }


def test_prune_makes_room(store, capsys):
    layers = [composed.add(store, word) for word in "ab"]
    code, told = asked(capsys, "prune", "--keep", "1TB")
    assert (code, told["removed"], told["kept"]) == (0, [], sum(layer.size for layer in layers))
    code, told = asked(capsys, "prune", "--keep", "0")
    assert (code, len(told["removed"]), told["kept"]) == (0, 2, 0)
    assert told["freed"] == sum(layer.size for layer in layers) and not store.blob_files()


def test_prune_while_layers_are_used_is_refused(store, capsys):
    composed.add(store, "a")
    with store.in_use():
        code, told = asked(capsys, "prune", "--keep", "0")
    assert (code, told["error"]["code"]) == (7, "busy") and store.blob_files()


def test_verify_removes_what_is_damaged_and_says_so_by_its_exit_code(store, capsys):
    layer = composed.add(store, "a")
    assert asked(capsys, "verify") == (
        0,
        {"schema": 1, "folder": str(store.folder), "layers": 1, "bytes": layer.size, "damaged": [], "entries": []},
    )
    place = store.blob(layer.digest)
    content = place.read_bytes()
    place.unlink()
    place.write_bytes(b"x" + content[1:])
    assert frame.run(["cache", "verify"]) == 8
    assert f"damaged and removed: {layer.digest}" in capsys.readouterr().out
    assert asked(capsys, "verify")[0] == 0


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("50GB", 50 * 10**9), ("1.5 TB", 15 * 10**11), ("800MiB", 800 * 2**20), ("7k", 7000), ("12b", 12)],
)
def test_sizes(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "-1", "GB", "50 apples", "1e9", "50GBB"])
def test_what_is_no_size(text, store, capsys):
    with pytest.raises(UsageError):
        parse_size(text)
    assert asked(capsys, "prune", f"--keep={text}")[0] == 2
