from __future__ import annotations

import gzip
import hashlib
import io
import os
import tarfile
from pathlib import Path

import pytest
from wheel_files import unpack

from envbuild.compose.layer import EPOCH, LayerWriter, header
from envbuild.compose.members import COMPRESSOR, PIECE, InMemory, OnDisk
from envbuild.errors import BuildError

# Names just short enough and too long for an old tar header, with and without non-ASCII characters.
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
    """The digest of a layer must not depend on the machine.

    envbuild names layers by the digest, also layers that another machine has made.
    """
    stream = io.BytesIO()
    writer = LayerWriter(stream)
    writer.add_folder("/opt")
    for number in range(40):
        words = b" ".join(b"%d" % (number * other * 7919 % 10007) for other in range(100 * number))
        writer.add_file(f"/opt/{number}", InMemory(words), is_executable=number % 2 == 0)
    layer = writer.close()
    assert layer.diff_id == "3573266ecba3890e6400e10b0adcbb65c36203f705a1365730e0c1a44b3d079d"
    wanted = "da2f760e57afb2cfe3e4c41620ffd9da05dd78eccd703088c2bf1dd708fdec63"
    assert (COMPRESSOR, layer.digest) == ("deflate 0.9.0, level 1", wanted)


@pytest.mark.parametrize("name", NAMES)
def test_long_and_foreign_names(name: str) -> None:
    stream = io.BytesIO()
    writer = LayerWriter(stream)
    for above in [f"/{name.rpartition('/')[0]}"] if "/" in name else []:
        writer.add_folder(above)
    writer.add_file(f"/{name}", InMemory(b"x"))
    writer.close()
    assert unpack(stream.getvalue())[name] == (0o644, b"x")


@pytest.mark.parametrize("name", ["x", "ä", "with/parts"])
@pytest.mark.parametrize("kind", [tarfile.DIRTYPE, tarfile.REGTYPE])
def test_headers_are_those_of_tarfile(name: str, kind: bytes) -> None:
    """The bytes of headers decide the digest of a layer. Records for long names contain their own length."""
    for length in (*range(1, 260), *range(980, 1020)):
        member = tarfile.TarInfo(name * length)
        member.type, member.mode, member.size, member.mtime = kind, 0o755, length, EPOCH
        assert header(f"/{name * length}", kind, 0o755, length) == member.tobuf(tarfile.PAX_FORMAT, "utf-8", "strict")


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
    writer.close()
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
