"""The eStargz part of a layer: a list of the layer's files and their offsets, which a runtime reads first.

A runtime that knows the format mounts the image at once, and fetches a file only when it is read. The format:
https://github.com/containerd/stargz-snapshotter/blob/v0.14.3/docs/estargz.md. The list is itself a tar entry. Other runtimes
would unpack it as a file of the image, so it is placed after the two blocks of zeros that end the tar. No program looks for
files there.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

LIST = "stargz.index.json"
LANDMARK = ".no.prefetch.landmark"  # a file with this name tells runtimes to fetch nothing in advance
FOOTER_SIZE = 51
LANDMARK_CONTENT = b"\x0f"
ANNOTATION = "containerd.io/snapshot/stargz/toc.digest"
_ENCODE = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode  # made once, and used for the entry of each file


class FileList:
    """The list of files. It has an entry for each file and folder, in the order of the tar."""

    def __init__(self, modified: int) -> None:
        """``modified`` is the time of all entries, in seconds since 1970."""
        self._modified = datetime.fromtimestamp(modified, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self._entries: list[str] = []

    def add_folder(self, name: str, mode: int) -> None:
        """Add a folder. ``name`` is its name in the tar."""
        self._add({"name": f"{name}/", "type": "dir", "modtime": self._modified, "mode": mode})

    def add_file(self, name: str, mode: int, size: int, *, offset: int, sha256: str) -> None:
        """Add a file. Its content begins with the gzip member at ``offset``, and has this ``sha256`` (hex)."""
        told: dict[str, Any] = {"name": name, "type": "reg", "modtime": self._modified, "mode": mode}
        if size:
            digest = f"sha256:{sha256}"
            told |= {"size": size, "offset": offset, "digest": digest, "chunkDigest": digest}
        self._add(told)

    def _add(self, told: Mapping[str, Any]) -> None:
        self._entries.append(_ENCODE(told))  # stored as text, because text takes less memory than objects

    def content(self) -> bytes:
        """The content of the tar entry that holds the list."""
        return ('{"version":1,"entries":[\n' + ",\n".join(self._entries) + "\n]}").encode()


def footer(offset: int) -> bytes:
    """The end of the blob: an empty gzip member that states the offset of the list's gzip member."""
    place = f"{offset:016x}STARGZ".encode()
    extra = b"SG" + struct.pack("<H", len(place)) + place
    header = b"\x1f\x8b\x08\x04" + bytes(5) + b"\xff" + struct.pack("<H", len(extra)) + extra
    return header + b"\x01\x00\x00\xff\xff" + bytes(8)


def offset_in(end: bytes) -> int:
    """Read the offset of the list's gzip member from the ``end`` of a blob; see :func:`footer`."""
    return int(end[16:32], 16)
