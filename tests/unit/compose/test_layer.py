from __future__ import annotations

import gzip
import hashlib
import io
import os
import tarfile
from pathlib import Path

import pytest
from wheel_files import unpack

from envbuild.compose.layer import LayerWriter
from envbuild.compose.members import COMPRESSOR, PIECE, InMemory, OnDisk
from envbuild.errors import BuildError

# Names on both sides of what fits into an old header, with and without characters beyond ASCII.
NAMES = ["a", "b" * 99, "c" * 100, "d" * 101, "ä" * 60, "e" * 120 + "/" + "f" * 200, "名前" * 100]


def test_a_layer_is_known_by_what_was_written() -> None:
    stream = io.BytesIO()
    writer = LayerWriter(stream)
    writer.add_folder("/opt")
    writer.add_file("/opt/tool", InMemory(b"#!/bin/sh\n"), is_executable=True)
    writer.add_file("/opt/empty", InMemory(b""))
    layer = writer.close()
    blob = stream.getvalue()
    assert (layer.digest, layer.size) == (hashlib.sha256(blob).hexdigest(), len(blob))
    tar = gzip.decompress(blob)
    assert (layer.diff_id, layer.unpacked) == (hashlib.sha256(tar).hexdigest(), len(tar))
    assert unpack(blob) == {"opt": (0o755, None), "opt/tool": (0o755, b"#!/bin/sh\n"), "opt/empty": (0o644, b"")}


def test_a_layer_has_the_same_bytes_on_every_machine() -> None:
    """The digest of a layer must not depend on the machine: envbuild names layers by it that another machine has made."""
    stream = io.BytesIO()
    writer = LayerWriter(stream)
    writer.add_folder("/opt")
    for number in range(40):
        words = b" ".join(b"%d" % (number * other * 7919 % 10007) for other in range(100 * number))
        writer.add_file(f"/opt/{number}", InMemory(words), is_executable=number % 2 == 0)
    layer = writer.close()
    assert layer.diff_id == "5f2653e40842b159e8993efbe48e2c7e61105b7ff5f202847d7e3e7a2abd443f"
    wanted = "698988ca32eb4166c6709d5345e4c5a1d94db65c8d99c05d9d7adff6b6591579"
    assert (COMPRESSOR, layer.digest) == ("deflate 0.9.0", wanted)


@pytest.mark.parametrize("name", NAMES)
def test_long_and_foreign_names(name: str) -> None:
    stream = io.BytesIO()
    writer = LayerWriter(stream)
    for above in [f"/{name.rpartition('/')[0]}"] if "/" in name else []:
        writer.add_folder(above)
    writer.add_file(f"/{name}", InMemory(b"x"))
    writer.close()
    assert unpack(stream.getvalue())[name] == (0o644, b"x")


@pytest.mark.parametrize("size", [0, 1, 511, 512, 513, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE])
def test_content_of_any_size(size: int, tmp_path: Path) -> None:
    content = (b"0123456789abcdef" * (size // 16 + 1))[:size]
    file = tmp_path / "file"
    file.write_bytes(content)
    blobs = []
    for source in (InMemory(content), OnDisk.of(file)):
        stream = io.BytesIO()
        writer = LayerWriter(stream)
        writer.add_file("/file", source)
        writer.close()
        assert unpack(stream.getvalue()) == {"file": (0o644, content)}
        blobs.append(stream.getvalue())
    assert blobs[0] == blobs[1]


def test_a_size_above_8_gigabytes_has_a_header() -> None:
    class Huge:
        size = 9 * 2**30
        sha256 = ""

        def copy(self, packed: object, unpacked: object) -> None:
            pass

    stream = io.BytesIO()
    writer = LayerWriter(stream)
    writer.add_file("/huge", Huge())
    writer._write_headers()
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(stream.getvalue()))) as tar:
        assert tar.next().size == 9 * 2**30


@pytest.mark.parametrize("change", [-1, 1])
def test_a_file_that_changes_meanwhile_is_refused(change: int, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"12345")
    content = OnDisk.of(file)
    os.truncate(file, 5 + change)
    with pytest.raises(BuildError, match="changed while it was read") as caught:
        LayerWriter(io.BytesIO()).add_file("/file", content)
    assert caught.value.code == "file-changed"
