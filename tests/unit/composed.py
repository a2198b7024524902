"""Small layers and images made of them, for tests of the layer store and of its outputs."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import struct
import tarfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from envbuild.compose.model import ComposedImage, Layer
from envbuild.compose.store import LayerStore


def tarred(contents: Mapping[str, bytes], programs: Sequence[str] = ()) -> bytes:
    """A tar of files whose bytes depend only on the arguments."""
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for path, content in contents.items():
            member = tarfile.TarInfo(path)
            member.size, member.mode = len(content), 0o755 if path in programs else 0o644
            tar.addfile(member, io.BytesIO(content))
    return whole.getvalue()


def blob(unpacked: bytes, *, gzipped: bool = True) -> tuple[bytes, Layer]:
    """A layer of ``unpacked``, compressed as two gzip members or uncompressed."""
    half = len(unpacked) // 2
    members = [gzip.compress(part, mtime=0) for part in (unpacked[:half], unpacked[half:])]
    content = b"".join(members) if gzipped else unpacked
    told = Layer(
        digest=hashlib.sha256(content).hexdigest(),
        diff_id=hashlib.sha256(unpacked).hexdigest(),
        size=len(content),
        unpacked=len(unpacked),
        media_type="application/vnd.oci.image.layer.v1.tar" + ("+gzip" if gzipped else ""),
    )
    return content, told


def key(word: str) -> str:
    """A key of the layer store."""
    return hashlib.sha256(word.encode()).hexdigest()


def writer(content: bytes, layer: Layer) -> Callable[[BinaryIO], Layer]:
    """A function that the layer store calls to write ``layer``."""

    def write(stream: BinaryIO) -> Layer:
        stream.write(content)
        return layer

    return write


def add(store: LayerStore, word: str, contents: Mapping[str, bytes] | None = None, *, gzipped: bool = True) -> Layer:
    """Add a layer with ``contents`` under the key of ``word``. By default it has one file named after ``word``."""
    content, layer = blob(tarred(contents or {word: word.encode() * 50}), gzipped=gzipped)
    return store.add(key(word), writer(content, layer), about=word)


def image(layers: Sequence[Layer], **config: object) -> ComposedImage:
    """An image of these layers."""
    told = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Env": ["PATH=/bin"], **config},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer.diff_id}" for layer in layers]},
    }
    return ComposedImage(config=json.dumps(told, sort_keys=True).encode(), layers=tuple(layers))


def tree(folder: Path) -> set[str]:
    """All files below a folder."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


# A program for x86-64 Linux that prints at most 256 bytes of /greeting. It needs no other file in its image.
_CODE = bytes.fromhex(
    "b802000000"  # mov eax, 2       open(
    "488d3d30000000"  # lea rdi, [rip+0x30]  the path behind the code,
    "31f6"  # xor esi, esi     O_RDONLY)
    "0f05"  # syscall
    "89c7"  # mov edi, eax
    "31c0"  # xor eax, eax     read(
    "4881ec00010000"  # sub rsp, 256
    "4889e6"  # mov rsi, rsp     onto the stack,
    "ba00010000"  # mov edx, 256     256)
    "0f05"  # syscall
    "89c2"  # mov edx, eax
    "b801000000"  # mov eax, 1       write(
    "bf01000000"  # mov edi, 1       standard output, what was read)
    "0f05"  # syscall
    "b83c000000"  # mov eax, 60      exit(
    "31ff"  # xor edi, edi     0)
    "0f05"  # syscall
)
_BEGIN = 0x400000 + 64 + 56


def greeter() -> bytes:
    """The program as an ELF file: a header, one segment, the code, and the path of the file that it reads."""
    body = _CODE + b"/greeting\0"
    size = 64 + 56 + len(body)
    header = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 2, 62, 1, _BEGIN, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    return header + struct.pack("<IIQQQQQQ", 1, 5, 0, 0x400000, 0x400000, size, size, 0x1000) + body


def id_of(image: ComposedImage) -> str:
    """The id of ``image`` in Docker's own image store: the digest of its configuration."""
    return f"sha256:{hashlib.sha256(image.config).hexdigest()}"
