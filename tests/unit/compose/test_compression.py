"""Images in every compression have the same unpacked bytes and stable digests, and other programs can read them."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import composed
import pytest
import zstandard

from envbuild.compose.members import PIECE
from envbuild.compose.model import ComposedImage, Layer
from envbuild.compose.outputs import compression, docker_archive, oci
from envbuild.compose.store import LayerStore
from envbuild.compose.unpack import DamagedError, unpacked
from envbuild.compose.upkeep import verify
from envbuild.errors import BuildError
from envbuild.model.progress import ignore_progress

KINDS = ("gzip", "zstd", "none")
CONTENTS = {"large": bytes(range(256)) * (3 * PIECE // 256) + b"end", "small": b"x"}


@pytest.fixture
def store(tmp_path: Path) -> LayerStore:
    return LayerStore(tmp_path / "store")


@pytest.fixture
def image(store: LayerStore) -> ComposedImage:
    layers = [composed.add(store, "a", CONTENTS), composed.add(store, "b", gzipped=False)]
    return composed.image([*layers, layers[0]])


def tar_of(store: LayerStore, layer: Layer) -> bytes:
    return b"".join(unpacked(store.read(layer), layer.media_type))


@pytest.mark.parametrize("kind", KINDS)
def test_the_unpacked_bytes_stay_the_same(store, image, kind):
    news = []
    made = compression.converted(image, store, kind, news.append)
    assert made.config == image.config and len(made.layers) == 3 and made.layers[0] == made.layers[2]
    for before, after in zip(image.layers, made.layers, strict=True):
        assert tar_of(store, after) == tar_of(store, before)
        assert (after.diff_id, after.unpacked) == (before.diff_id, before.unpacked)
        assert after.media_type.endswith({"gzip": "+gzip", "zstd": "+zstd", "none": ".tar"}[kind])
    assert news[-1].done == news[-1].total == sum(layer.size for layer in image.layers[:2])
    assert verify(store, ignore_progress).damaged == ()
    back = compression.converted(made, store, "none", ignore_progress)
    assert [layer.digest for layer in back.layers] == [layer.diff_id for layer in image.layers]


def test_ctrl_c_ends_the_layer_that_is_under_way(tmp_path):
    begun, pieces = threading.Event(), 0

    class Endless(LayerStore):
        def read(self, layer, *, checked=True):
            nonlocal pieces
            if layer.media_type.endswith("gzip"):
                yield from super().read(layer, checked=checked)
                return
            begun.set()
            while pieces < 100_000:
                pieces += 1
                time.sleep(0.001)
                yield b"x"

    store = Endless(tmp_path / "store")
    image = composed.image([composed.add(store, "a"), composed.add(store, "b", gzipped=False)])

    def interrupted(_news):
        assert begun.wait(60)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compression.converted(image, store, "zstd", interrupted)
    assert pieces < 100_000


@pytest.mark.parametrize("kind", KINDS)
def test_a_second_time_nothing_is_made(store, image, kind):
    made = compression.converted(image, store, kind, ignore_progress)
    times = {path: path.stat().st_mtime_ns for path in store.blob_files().values()}
    assert compression.known(image, store, kind) == made
    assert compression.converted(image, store, kind, ignore_progress) == made
    assert {path: path.stat().st_mtime_ns for path in store.blob_files().values()} == times


def test_what_was_never_made_is_not_known(store, image):
    assert compression.known(image, store, "zstd") is None


def test_the_bytes_depend_on_the_version_of_zstd_alone(store):
    """The earlier compression of the layer decides in which pieces the layer is read, but does not change the result."""
    layers = [composed.add(store, "gzip", CONTENTS), composed.add(store, "plain", CONTENTS, gzipped=False)]
    made = compression.converted(composed.image(layers), store, "zstd", ignore_progress)
    assert made.layers[0].digest == made.layers[1].digest
    if zstandard.ZSTD_VERSION == (1, 5, 7):
        assert made.layers[0].digest == "232960106f644bbe97c7cd94b721b8132deeca03aa3ee35f54214439230f5d8d"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("harm", ["changed", "cut"])
def test_a_damaged_layer_is_not_converted(store, image, kind, harm):
    made = compression.converted(image, store, kind, ignore_progress)
    other = "zstd" if kind != "zstd" else "none"
    path = store.blob(made.layers[0].digest)
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content[: len(content) // 2] + (b"x" + content[len(content) // 2 + 1 :] if harm == "changed" else b""))
    with pytest.raises(BuildError) as caught:
        compression.converted(made, store, other, ignore_progress)
    assert caught.value.code == "layer-damaged"
    wanted = {"zstd": "+zstd", "none": ".tar"}[other]
    of_damaged = [entry.layer for entry in store.entries() if entry.layer.diff_id == made.layers[0].diff_id]
    assert not [layer for layer in of_damaged if layer.media_type.endswith(wanted)], "no bad layer is kept"


@pytest.mark.parametrize("content", [b"", b"no zstd", b"\x28\xb5\x2f\xfd" + b"x" * 50])
def test_what_is_no_zstd_is_damaged_or_empty(content):
    try:
        assert b"".join(unpacked([content], "application/vnd.oci.image.layer.v1.tar+zstd")) == b""
    except DamagedError:
        assert content


@pytest.mark.parametrize("kind", KINDS)
def test_layouts_and_archives_hold_them(store, image, tmp_path, kind):
    made = compression.converted(image, store, kind, ignore_progress)
    oci.write(made, store, tmp_path / "layout", "v1", ignore_progress)
    (entry,) = json.loads((tmp_path / "layout/index.json").read_text())["manifests"]
    told = json.loads((tmp_path / "layout/blobs" / entry["digest"].replace(":", "/")).read_text())
    assert {layer["mediaType"] for layer in told["layers"]} == {made.layers[0].media_type}
    docker_archive.write(made, store, tmp_path / "archive", ["t:1"], ignore_progress)
    assert (tmp_path / "archive").stat().st_size > sum(layer.size for layer in made.layers[:2])
