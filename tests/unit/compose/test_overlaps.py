"""If wheels have different files at one path, the wheel installed last wins, whatever the order of the layers is."""

from __future__ import annotations

import gzip
import io
import itertools
import tarfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from wheel_files import Part, make_wheel

from envbuild.compose import layer_plan, overlaps, wheel_layer
from envbuild.compose.layer_plan import Wheel
from envbuild.compose.model import InstallPlace, Layer
from envbuild.compose.store import LayerStore
from envbuild.errors import BuildError
from envbuild.lock import lock_file
from envbuild.model.lock import Prefix
from envbuild.workspace import find

PLACE = InstallPlace(prefix="/opt/env", python="3.11", installer="uv")
SITE = "/opt/env/lib/python3.11/site-packages"
SIZES = {"small": 10, "large": 5_000_000, "huge": 300_000_000}


@pytest.fixture(scope="module")
def prefix() -> Prefix:
    found = lock_file.read(find().lock_file("opencv-5.0.0.93-cpu-py311-debian12")).prefixes[0]
    return replace(found, path="/opt/env", backend="uv")


def composed(prefix: Prefix, folder: Path, order: Sequence[str], contents: dict[str, dict[str, bytes]]) -> list[Path]:
    """The blobs of the layers, lowest first, of wheels with these files, installed in this ``order``."""
    store, files, wheels = LayerStore(folder / "store"), {}, []
    for number, (name, parts) in enumerate(contents.items()):
        (folder / name).mkdir()
        made = [Part(name=path, content=content) for path, content in parts.items()]
        files[f"{number:064x}"] = make_wheel(folder / name, made, name=name.replace("-", "_"))
        wheels.append(Wheel(filename=files[f"{number:064x}"].name, sha256=f"{number:064x}", size=SIZES[name.split("-")[1]]))
    plans = layer_plan.wheel_layers(prefix, layer_plan.ranked(wheels, order), "python")
    layers: list[Layer] = []
    for each in plans:
        code = {
            f"{SITE}/{Path(path).parent}/__pycache__/{Path(path).stem}.cpython-311.pyc": b"code of " + content
            for wheel in each.wheels
            for path, content in contents[wheel.project].items()
            if path.endswith(".py") and each.holds != "files"
        }
        held = [(files[wheel.sha256], True) for wheel in each.wheels if each.holds != "bytecode"]
        layers.append(store.add(each.key, lambda stream, held=held, code=code: wheel_layer.write(stream, held, PLACE, code)))
    top = overlaps.layer_on_top(plans, layers, store)
    return [store.blob(layer.digest) for layer in (*layers, *([top] if top else []))]


def tree(blobs: Sequence[Path]) -> dict[str, tuple[int, bytes]]:
    found: dict[str, tuple[int, bytes]] = {}
    for blob in blobs:
        with tarfile.open(fileobj=io.BytesIO(gzip.decompress(blob.read_bytes()))) as tar:
            for member in tar:
                if member.isreg():
                    content = tar.extractfile(member)
                    assert content is not None
                    found[f"/{member.name}"] = member.mode, content.read()
    return found


KINDS = ("a-huge b-huge", "a-huge c-large", "a-huge e-small", "c-large d-large", "c-large e-small", "e-small f-small")
PAIRS = [pair for kinds in KINDS for pair in itertools.permutations(kinds.split())]


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_the_last_in_the_order_of_installation_wins(prefix: Prefix, tmp_path: Path, pair: tuple[str, str]) -> None:
    """A module and its bytecode come from the same wheel. An empty file wins like any other file."""
    contents = {name: {"shared/a.py": name.encode(), "shared/b.txt": name.encode()} for name in sorted(pair)}
    contents["g-small"] = {"other/__init__.py": b""}
    contents[pair[1]]["shared/b.txt"] = b""
    found = tree(composed(prefix, tmp_path, ["g-small", *pair], contents))
    assert found[f"{SITE}/shared/a.py"][1] == pair[1].encode()
    assert found[f"{SITE}/shared/__pycache__/a.cpython-311.pyc"][1] == b"code of " + pair[1].encode()
    assert found[f"{SITE}/shared/b.txt"][1] == b""


def test_no_layer_is_added_where_the_order_is_right_or_the_files_are_equal(prefix: Prefix, tmp_path: Path) -> None:
    for number, (order, other) in enumerate(((["a-huge", "e-small"], b"2"), (["e-small", "a-huge"], b"1"))):
        (tmp_path / str(number)).mkdir()
        contents = {"a-huge": {"shared/a.py": b"1"}, "e-small": {"shared/a.py": other}}
        assert len(composed(prefix, tmp_path / str(number), order, contents)) == 3


def test_large_files_are_copied_whole(prefix: Prefix, tmp_path: Path) -> None:
    content = b"".join(b"%d " % number for number in range(600_000))
    contents = {"a-huge": {"shared/data.bin": content, "after.py": b"x"}, "e-small": {"shared/data.bin": b"small"}}
    blobs = composed(prefix, tmp_path, ["e-small", "a-huge"], contents)
    assert len(blobs) == 4
    assert tree(blobs)[f"{SITE}/shared/data.bin"][1] == content


def test_damage_of_any_byte_is_told_and_changes_no_winner(prefix: Prefix, tmp_path: Path, monkeypatch) -> None:
    """Also of the lists of installed files, which say whose file a layer holds."""
    contents = {"e-small": {"shared/a.py": b"1"}, "f-small": {"shared/b.py": b"2"}, "a-huge": {"shared/a.py": b"3"}}
    contents["a-huge"]["shared/b.py"] = b"4"
    seen: list[object] = []

    def on_damaged(plans: list[layer_plan.WheelLayer], layers: list[Layer], store: LayerStore) -> Layer | None:
        whole = real(plans, layers, store)
        for layer in layers:
            blob = store.blob(layer.digest)
            content = blob.read_bytes()
            for at in range(0, len(content), 7):
                blob.write_bytes(content[:at] + bytes([content[at] ^ 0x55]) + content[at + 1 :])
                try:
                    assert real(plans, layers, store) == whole, at
                except BuildError as error:
                    seen.append(error.code)
            blob.write_bytes(content)
        return whole

    real = overlaps.layer_on_top
    monkeypatch.setattr(overlaps, "layer_on_top", on_damaged)
    composed(prefix, tmp_path, ["e-small", "f-small", "a-huge"], contents)
    assert set(seen) == {"layer-damaged"}
