"""Images as tar streams."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import tarfile

import pytest
import zstandard

from envbuild.engine import bootstrap, image_tar


def tar_of(**files: bytes) -> bytes:
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name.replace("__", "/"))
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return whole.getvalue()


class Saved:
    """An engine that answers ``docker save`` in pieces of different sizes."""

    def __init__(self, content: bytes) -> None:
        self.api = self
        self._content = content

    def get_image(self, _name: str):
        return iter([self._content[:1000], b"", self._content[1000:7001], self._content[7001:]])


@pytest.mark.parametrize("name", ["abc__layer.tar", "blobs__sha256__abc"])
def test_layers_are_read_from_both_formats(name):
    layer = tar_of(etc__passwd=b"root", big=b"x" * 5000)
    saved = tar_of(**{name: layer, "blobs__sha256__config": b'{"a": 1}', "manifest.json": b"[]"})
    found = {entry.path: entry.open().read() for entry in image_tar.layer_files(Saved(saved), "x")}
    assert found == {"/etc/passwd": b"root", "/big": b"x" * 5000}


def members(content: bytes) -> bytes:
    """A gzip file with several members, as composed layers are."""
    return b"".join(gzip.compress(content[start : start + 700]) for start in range(0, len(content), 700))


def frames(content: bytes) -> bytes:
    return b"".join(zstandard.ZstdCompressor().compress(content[start : start + 700]) for start in range(0, len(content), 700))


@pytest.mark.parametrize("packed", [members, frames, gzip.compress])
def test_compressed_layers_of_a_containerd_store_are_read_to_their_end(packed):
    layer = tar_of(etc__passwd=b"root", big=os.urandom(90_000))
    digest = hashlib.sha256(layer).hexdigest()
    saved = tar_of(**{"blobs__sha256__" + "e" * 64: packed(layer), "manifest.json": b"[]"})
    found = {entry.path: len(entry.open().read()) for entry in image_tar.layer_files(Saved(saved), "x")}
    assert found == {"/etc/passwd": 4, "/big": 90_000}
    (streamed,) = ((b"".join(each), each.diff_id()) for each in image_tar.layer_tars(Saved(saved), "x", {digest}))
    assert streamed == (layer, digest)


def test_the_same_root_file_system_is_the_same_image():
    options = {"architecture": "amd64", "created": bootstrap.CREATED, "comment": "x"}
    first, again = image_tar.image_config("a" * 64, **options), image_tar.image_config("a" * 64, **options)
    assert first == again
    assert json.loads(first)["rootfs"]["diff_ids"] == ["sha256:" + "a" * 64]
    assert image_tar.image_config("b" * 64, **options) != first


PLAIN = tar_of(a=b"x" * 5000)
DIGEST = hashlib.sha256(PLAIN).hexdigest()


@pytest.mark.parametrize("name", ["abc__layer.tar", f"blobs__sha256__{DIGEST}", f"{DIGEST}.tar", "blobs__sha256__" + "e" * 64])
def test_layers_are_streamed_with_their_diff_ids(name):
    packed = "eee" in name
    saved = tar_of(
        **{name: gzip.compress(PLAIN) if packed else PLAIN, "blobs__sha256__config": b'{"a": 1}', "manifest.json": b"[]"}
    )
    (layer,) = ((b"".join(each), each.diff_id()) for each in image_tar.layer_tars(Saved(saved), "x", {DIGEST}))
    assert layer == (PLAIN, DIGEST)


def test_layers_whose_names_say_that_they_are_not_wanted_are_left_out():
    other = tar_of(b=b"y")
    names = {f"blobs__sha256__{hashlib.sha256(each).hexdigest()}": each for each in (PLAIN, other)}
    found = image_tar.layer_tars(Saved(tar_of(**names)), "x", {DIGEST})
    assert [b"".join(each) for each in found] == [PLAIN]
