"""Shared libraries and fat binaries for tests, made byte by byte, so that the repository contains no compiled file."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

PTX, NATIVE = 1, 2
EXACT, FAMILY, LZ4, ZSTD = 0x100000, 0x200000, 0x2000, 0x8000


def entry(
    kind: int, number: int, payload: bytes = b"", *, flags: int = 0x11, version: tuple[int, int] = (1, 7), more: int = 0
) -> bytes:
    """A fatbin entry with a header of 64 bytes, followed by ``more``. The architecture is a number such as 86."""
    body = payload.ljust((len(payload) + 7) // 8 * 8, b"\0")
    major, minor = version
    head = struct.pack(
        "<HHIQIIHHIIIQQQ", kind, 0x101, 64 + more, len(body), len(payload), 0, minor, major, number, 64, 0, flags, 0, 0
    )
    return head + bytes(more) + body


def container(*entries: bytes) -> bytes:
    body = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def cubin(kernel: str) -> bytes:
    """The beginning of a kernel file, up to the part that contains the names of the kernels."""
    return b"\x7fELF\x02\x01\x01\x33" + bytes(56) + b"\0.shstrtab\0.strtab\0.symtab\0.text." + kernel.encode() + b"\0"


def lz4_of(data: bytes) -> bytes:
    """An LZ4 block with all bytes as literals, except for runs of one byte, which are matches."""
    out, at, pending = bytearray(), 0, bytearray()
    while at < len(data):
        run = 1
        while at + run < len(data) and data[at + run] == data[at] and run < 5000:
            run += 1
        if run >= 8:
            pending.append(data[at])
            out += _sequence(pending, run - 1)
            pending = bytearray()
            at += run
        else:
            pending.append(data[at])
            at += 1
    out += _length_byte(len(pending), 0) + _rest(len(pending)) + pending
    return bytes(out)


def _sequence(literals: bytes, matched: int) -> bytes:
    length = matched - 4
    return _length_byte(len(literals), length) + _rest(len(literals)) + bytes(literals) + b"\1\0" + _rest(length)


def _length_byte(literals: int, matched: int) -> bytes:
    return bytes([min(literals, 15) << 4 | min(matched, 15)])


def _rest(length: int) -> bytes:
    if length < 15:
        return b""
    length -= 15
    return b"\xff" * (length // 255) + bytes([length % 255])


_FIRST = 64  # the position of the first section, behind the header of the file


@dataclass(kw_only=True)
class Shared:
    """A shared library for x86-64: its sections, the libraries that it needs, and their symbol versions.

    With ``is_loadable`` it also has the segments that the dynamic loader reads.
    """

    fatbins: Mapping[str, bytes] = field(default_factory=dict)
    needed: Sequence[str] = ()
    soname: str = ""
    rpath: str = ""
    runpath: str = ""
    versions: Mapping[str, Sequence[str]] = field(default_factory=dict)
    constants: bytes = b""
    variables: bytes = b""
    is_loadable: bool = False

    def data(self) -> bytes:
        strings = bytearray(b"\0")

        def put(text: str) -> int:
            at = len(strings)
            strings.extend(text.encode() + b"\0")
            return at

        tags = [(1, put(name)) for name in self.needed]
        tags += [(tag, put(text)) for tag, text in ((14, self.soname), (15, self.rpath), (29, self.runpath)) if text]
        tags += [(5, _FIRST)] if self.is_loadable else []  # the names are in the first section
        dynamic = b"".join(struct.pack("<QQ", *tag) for tag in [*tags, (0, 0)])
        wanted = b""
        for place, (name, versions) in enumerate(self.versions.items()):
            last = place + 1 == len(self.versions)
            wanted += struct.pack("<HHIII", 1, len(versions), put(name), 16, 0 if last else 16 + 16 * len(versions))
            for number, version in enumerate(versions):
                wanted += struct.pack("<IHHII", 0, 0, 2, put(version), 0 if number + 1 == len(versions) else 16)
        sections = [
            (".dynstr", 3, 2, bytes(strings), 0, 0),
            (".dynamic", 6, 3, dynamic, 1, 0),
            (".gnu.version_r", 0x6FFFFFFE, 2, wanted, 1, len(self.versions)),
            (".rodata", 1, 2, self.constants, 0, 0),
            *([(".data", 1, 3, self.variables, 0, 0)] if self.variables else []),
            *((name, 1, 2, content, 0, 0) for name, content in self.fatbins.items()),
        ]
        return _with_segments(_elf(sections), dynamic) if self.is_loadable else _elf(sections)


def _with_segments(content: bytes, dynamic: bytes) -> bytes:
    """Add two segments: all of the file, and its dynamic section. Addresses are positions in the file."""
    at = content.index(dynamic, _FIRST)
    parts = ((1, 0, len(content)), (2, at, len(dynamic)))
    table = b"".join(struct.pack("<IIQQQQQQ", kind, 4, begin, begin, begin, size, size, 8) for kind, begin, size in parts)
    head = content[:32] + struct.pack("<Q", len(content)) + content[40:56] + struct.pack("<H", len(parts)) + content[58:64]
    return head + content[64:] + table


def _elf(sections: Sequence[tuple[str, int, int, bytes, int, int]]) -> bytes:
    names = bytearray(b"\0")
    body = bytearray(64)
    heads = [struct.pack("<IIQQQQIIQQ", *[0] * 10)]
    entry_sizes = {6: 16}
    for name, kind, flags, content, link, info in [*sections, (".shstrtab", 3, 0, b"", 0, 0)]:
        name_at = len(names)
        names += name.encode() + b"\0"
        filling = bytes(names) if name == ".shstrtab" else content
        body += bytes(-len(body) % 16)
        heads.append(
            struct.pack(
                "<IIQQQQIIQQ", name_at, kind, flags, 0, len(body), len(filling), link, info, 8, entry_sizes.get(kind, 0)
            )
        )
        body += filling
    body += bytes(-len(body) % 16)
    begin = len(body)
    head = (
        b"\x7fELF\x02\x01\x01"
        + bytes(9)
        + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 0, begin, 0, 64, 56, 0, 64, len(heads), len(heads) - 1)
    )
    return bytes(head) + bytes(body[64:]) + b"".join(heads)


def wheel(members: Mapping[str, bytes], *, project: str = "widget", version: str = "1.0", python: str = ">=3.8") -> bytes:
    """A wheel with these members and METADATA."""
    out = io.BytesIO()
    metadata = f"Metadata-Version: 2.1\nName: {project}\nVersion: {version}\nRequires-Python: {python}\n"
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
        archive.writestr(f"{project.replace('-', '_')}-{version}.dist-info/METADATA", metadata)
    return out.getvalue()
