"""Wheels for tests, made byte by byte, including wheels that no tool would write."""

from __future__ import annotations

import base64
import csv
import gzip
import hashlib
import io
import stat
import struct
import tarfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

FILE, FOLDER, LINK = stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK


@dataclass(kw_only=True)
class Part:
    """A member of a zip archive.

    ``local`` and ``central`` override fields of its two headers. ``before`` and ``behind`` are bytes before its header and
    after its data.
    """

    name: str
    content: bytes = b""
    method: int = 8
    mode: int = FILE | 0o644
    system: int = 3
    flags: int = 0
    packed: bytes | None = None
    descriptor: str = ""  # struct format of the sizes in its data descriptor: "L" or "Q"; "s" before it adds a signature
    is_wide: bool = False  # zip64
    before: bytes = b""
    behind: bytes = b""
    extra: bytes = b""
    local: Mapping[str, object] = field(default_factory=dict)
    central: Mapping[str, object] = field(default_factory=dict)

    def data(self) -> bytes:
        if self.packed is not None:
            return self.packed
        return deflated(self.content) if self.method == 8 else self.content


def deflated(content: bytes) -> bytes:
    packer = zlib.compressobj(6, zlib.DEFLATED, -15)
    return packer.compress(content) + packer.flush()


def zip_file(
    parts: Sequence[Part], *, comment: bytes = b"", is_wide: bool = False, end: Mapping[str, int] | None = None
) -> bytes:
    """The archive of ``parts``. ``end`` overrides fields of the end-of-central-directory record."""
    out, directory = bytearray(), bytearray()
    for part in parts:
        data = part.data()
        out += part.before
        offset = len(out)
        flags = part.flags | (0x800 if not part.name.isascii() else 0) | (8 if part.descriptor else 0)
        fields: dict[str, object] = {
            "flags": flags, "method": part.method, "crc": zlib.crc32(part.content), "packed": len(data),
            "size": len(part.content), "offset": offset, "disk": 0, "name": part.name.encode(), "extra": part.extra,
        }  # fmt: skip
        out += _local(part, {**fields, **({"crc": 0, "packed": 0, "size": 0} if part.descriptor else {}), **part.local}) + data
        if part.descriptor:
            signature, width = part.descriptor.startswith("s"), part.descriptor[-1]
            out += b"PK\7\x08" * signature + struct.pack(f"<L2{width}", *(fields[name] for name in ("crc", "packed", "size")))
        out += part.behind
        directory += _central(part, {**fields, **part.central})
    return bytes(out + directory + _end(len(parts), len(directory), len(out), comment, is_wide, end or {}))


def _local(part: Part, values: dict[str, object]) -> bytes:
    numbers, extra = _narrow(part, values, ("size", "packed"))
    head = struct.pack("<4s5H", b"PK\3\4", 20, values["flags"], values["method"], 0, 0x21)
    name = values["name"]
    assert isinstance(name, bytes)
    return head + struct.pack("<3L2H", values["crc"], numbers["packed"], numbers["size"], len(name), len(extra)) + name + extra


def _central(part: Part, values: dict[str, object]) -> bytes:
    numbers, extra = _narrow(part, values, ("size", "packed", "offset"))
    name = values["name"]
    assert isinstance(name, bytes)
    head = struct.pack("<4s6H", b"PK\1\2", part.system << 8 | 20, 20, values["flags"], values["method"], 0, 0x21)
    sizes = struct.pack("<3L", values["crc"], numbers["packed"], numbers["size"])
    rest = struct.pack("<5H2L", len(name), len(extra), 0, values["disk"], 0, part.mode << 16, numbers["offset"])
    return head + sizes + rest + name + extra


def _narrow(part: Part, values: dict[str, object], wide: Sequence[str]) -> tuple[dict[str, object], bytes]:
    extra = values["extra"]
    assert isinstance(extra, bytes)
    if not part.is_wide:
        return values, extra
    numbers = struct.pack(f"<{len(wide)}Q", *(values[name] for name in wide))
    return {**values, **dict.fromkeys(wide, 0xFFFFFFFF)}, struct.pack("<2H", 1, len(numbers)) + numbers + extra


def _end(count: int, size: int, offset: int, comment: bytes, is_wide: bool, override: Mapping[str, int]) -> bytes:
    values = {"disk": 0, "first": 0, "here": count, "count": count, "size": size, "offset": offset, **override}
    wide = b""
    if is_wide:
        wide = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, count, count, size, offset)
        wide += struct.pack("<4sLQL", b"PK\6\7", 0, offset + size, 1)
        values |= {"here": 0xFFFF, "count": 0xFFFF, "size": 0xFFFFFFFF, "offset": 0xFFFFFFFF}
    return wide + struct.pack("<4s4H2LH", b"PK\5\6", *values.values(), len(comment)) + comment


def metadata(name: str = "toy", version: str = "1.0", *, entry_points: str = "") -> dict[str, bytes]:
    """The files of a wheel's metadata, except RECORD."""
    folder = f"{name}-{version}.dist-info"
    files = {
        f"{folder}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode(),
        f"{folder}/WHEEL": b"Wheel-Version: 1.0\nGenerator: toy\nRoot-Is-Purelib: true\nTag: py3-none-any\nTag: py2-none-any\n",
    }
    if entry_points:
        files[f"{folder}/entry_points.txt"] = entry_points.encode()
    return files


def record_of(parts: Sequence[Part], folder: str = "toy-1.0.dist-info", *, is_vague: bool = False) -> Part:
    """The RECORD of all ``parts`` except folders; with ``is_vague`` it has no sizes and hashes."""
    text = io.StringIO(newline="")
    rows = csv.writer(text, lineterminator="\n")
    for part in parts:
        if not part.name.endswith("/"):
            digest = base64.urlsafe_b64encode(hashlib.sha256(part.content).digest()).decode().rstrip("=")
            rows.writerow([part.name, *(["", ""] if is_vague else [f"sha256={digest}", len(part.content)])])
    rows.writerow([f"{folder}/RECORD", "", ""])
    return Part(name=f"{folder}/RECORD", content=text.getvalue().encode())


def make_wheel(
    folder: Path, parts: Sequence[Part] = (), *, name: str = "toy", version: str = "1.0", entry_points: str = ""
) -> Path:
    """A wheel of ``parts`` with metadata and a correct RECORD."""
    own = [Part(name=path, content=content) for path, content in metadata(name, version, entry_points=entry_points).items()]
    every = [*parts, *own]
    every.append(record_of(every, f"{name}-{version}.dist-info"))
    file = folder / f"{name}-{version}-py2.py3-none-any.whl"
    file.write_bytes(zip_file(every))
    return file


def unpack(blob: bytes) -> dict[str, tuple[int, bytes | None]]:
    """The contents of a layer: mode and content by path; the content of a folder is None.

    Fails if an entry is not allowed in a layer.
    """
    found: dict[str, tuple[int, bytes | None]] = {}
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(blob))) as tar:
        for member in tar:
            assert (member.uid, member.gid, member.uname, member.gname, member.mtime) == (0, 0, "", "", 1577836800)
            assert member.isfile() or member.isdir()
            assert member.name not in found
            above = member.name.rpartition("/")[0]
            assert not above or found[above][1] is None, f"{member.name} comes before its folder"
            stream = tar.extractfile(member)
            found[member.name] = member.mode, stream.read() if stream else None
    return found
