"""The list of files in a layer, read as a container runtime reads it: first the footer, then the list, then single files."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import struct
import tarfile
import zlib
from pathlib import Path
from typing import Any

import pytest
from wheel_files import unpack

from envbuild.compose.layer import LayerWriter
from envbuild.compose.members import PIECE, Content, InMemory, OnDisk
from envbuild.compose.model import ComposedImage, Layer
from envbuild.compose.outputs import manifest

LARGE = bytes(range(256)) * (PIECE // 128) + b"end"


def written(contents: dict[str, Content | None]) -> tuple[bytes, Layer]:
    stream = io.BytesIO()
    writer = LayerWriter(stream)
    for path, content in contents.items():
        if content is None:
            writer.add_folder(path)
        else:
            writer.add_file(path, content, is_executable=path.endswith(".sh"))
    layer = writer.close()
    return stream.getvalue(), layer


def toc(blob: bytes) -> tuple[dict[str, Any], str]:
    """The list and its digest, read from the 51 bytes at the end and from one gzip member."""
    footer = blob[-51:]
    assert footer[:10] == bytes.fromhex("1f8b08040000000000ff") and footer[10:16] == b"\x1a\x00SG\x16\x00"
    assert footer[32:38] == b"STARGZ" and footer[38:] == b"\x01\x00\x00\xff\xff" + bytes(8)
    assert gzip.decompress(footer) == b""
    begin = int(footer[16:32], 16)
    member = zlib.decompressobj(wbits=31)
    tar = member.decompress(blob[begin:])
    assert member.eof and member.unused_data == footer, "one member between the files and the footer"
    with tarfile.open(fileobj=io.BytesIO(tar)) as archive:
        (entry,) = archive.getmembers()
        assert entry.name == "stargz.index.json"
        content = archive.extractfile(entry).read()
    return json.loads(content), f"sha256:{hashlib.sha256(content).hexdigest()}"


def fetched(blob: bytes, entry: dict[str, Any]) -> bytes:
    """The content of a file, read only from its offset: as many gzip members as it has."""
    rest, content = blob[entry["offset"] :], b""
    while len(content) < entry["size"]:
        member = zlib.decompressobj(wbits=31)
        content += member.decompress(rest)
        assert member.eof
        rest = member.unused_data
    return content


def test_every_file_can_be_fetched_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(LARGE)
    contents = {
        "/opt": None, "/opt/a": InMemory(b"a\n"), "/opt/empty": InMemory(b""), "/opt/ü.sh": InMemory(LARGE),
        "/opt/z": OnDisk.of(tmp_path / "file"),
    }  # fmt: skip
    blob, layer = written(contents)
    told, digest = toc(blob)
    assert told["version"] == 1 and digest == f"sha256:{layer.files}"
    entries = {entry["name"]: entry for entry in told["entries"]}
    assert list(entries) == ["opt/", "opt/a", "opt/empty", "opt/ü.sh", "opt/z", ".no.prefetch.landmark"]
    assert entries["opt/"] == {"name": "opt/", "type": "dir", "modtime": "2020-01-01T00:00:00Z", "mode": 0o755}
    assert entries["opt/ü.sh"]["mode"] == 0o755 and entries["opt/a"]["mode"] == 0o644
    assert "offset" not in entries["opt/empty"] and entries["opt/empty"]["type"] == "reg"
    wanted = {"opt/a": b"a\n", "opt/ü.sh": LARGE, "opt/z": LARGE, ".no.prefetch.landmark": b"\x0f"}
    for name, content in wanted.items():
        assert fetched(blob, entries[name]) == content, name
        assert entries[name]["chunkDigest"] == entries[name]["digest"] == f"sha256:{hashlib.sha256(content).hexdigest()}"
    offsets = [entry["offset"] for entry in told["entries"] if "offset" in entry]
    assert offsets == sorted(set(offsets)), "a runtime takes the next offset for the end of a file"


def test_nobody_else_sees_the_list() -> None:
    """The list and the landmark come after the end of the tar. So the image has the same files with every runtime."""
    blob, _ = written({"/opt": None, "/opt/a": InMemory(b"a")})
    assert set(unpack(blob)) == {"opt", "opt/a"}
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(blob)), ignore_zeros=True) as archive:
        assert archive.getnames() == ["opt", "opt/a", ".no.prefetch.landmark", "stargz.index.json"]


def test_a_layer_without_files_has_a_list() -> None:
    blob, layer = written({})
    told, digest = toc(blob)
    assert [entry["name"] for entry in told["entries"]] == [".no.prefetch.landmark"] and digest == f"sha256:{layer.files}"


def test_the_manifest_bears_the_digest_of_the_list() -> None:
    _, layer = written({"/a": InMemory(b"a")})
    plain = Layer(digest="a" * 64, diff_id="b" * 64, size=1, unpacked=1)
    told = json.loads(manifest.manifest(ComposedImage(config=b"{}", layers=(plain, layer))).content)["layers"]
    assert "annotations" not in told[0]
    assert told[1]["annotations"] == {"containerd.io/snapshot/stargz/toc.digest": f"sha256:{layer.files}"}


@pytest.mark.parametrize("size", [0, 1, 2**40])
def test_the_footer_tells_any_offset(size: int) -> None:
    from envbuild.compose import estargz

    end = estargz.footer(size)
    assert len(end) == 51 and int(end[16:32], 16) == size
    assert struct.unpack("<H", end[10:12]) == (26,)
