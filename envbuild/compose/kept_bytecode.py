"""The bytecode of a wheel, kept in the layer store as a plain tar. If one wheel of a layer changes, only this wheel is
compiled."""

from __future__ import annotations

import functools
import hashlib
import json
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from envbuild.compose.layer import header
from envbuild.compose.members import PartOfFile
from envbuild.compose.model import Layer
from envbuild.compose.plan import Wheel, WheelLayer
from envbuild.compose.store import LayerStore
from envbuild.errors import BuildError

_RULES = "bytecode 1"  # increase the number when the same wheel is compiled in another way
_PLAIN = "application/vnd.oci.image.layer.v1.tar"
_BLOCK = 512


def find(store: LayerStore, layer: WheelLayer, wheel: Wheel) -> dict[str, PartOfFile] | None:
    """The bytecode of ``wheel`` by its absolute path in the image; None if the store does not have all of it."""
    key = _key(layer, wheel)
    kept = store.find(key)
    if kept is None:
        return None
    try:
        for _ in store.read(kept):
            pass
        return dict(parts(store.blob(kept.digest)))
    except (BuildError, tarfile.TarError):  # damaged: the caller compiles it again
        store.forget(key)
        return None


def keep(store: LayerStore, layer: WheelLayer, wheel: Wheel, code: Mapping[str, PartOfFile]) -> None:
    """Put the bytecode of ``wheel`` into the store."""
    store.add(_key(layer, wheel), functools.partial(_write, code=code), about=f"the bytecode of {wheel.filename}")


def parts(file: Path, begin: int = 0) -> Iterator[tuple[str, PartOfFile]]:
    """The files in a tar that begins at ``begin`` of ``file``, by absolute path."""
    with file.open("rb") as stream:
        stream.seek(begin)
        with tarfile.open(fileobj=stream) as archive:
            for found in archive:
                if found.isreg():
                    yield f"/{found.name.lstrip('/')}", PartOfFile(file, found.offset_data, found.size)


def _write(stream: BinaryIO, *, code: Mapping[str, PartOfFile]) -> Layer:
    digest, size = hashlib.sha256(), 0
    for path in sorted(code):
        part = code[path]
        for piece in (header(path, tarfile.REGTYPE, 0o644, part.size), *part.pieces(), bytes(-part.size % _BLOCK)):
            digest.update(piece)
            size += stream.write(piece)
    end = bytes(2 * _BLOCK)
    digest.update(end)
    size += stream.write(end)
    sha256 = digest.hexdigest()
    return Layer(digest=sha256, diff_id=sha256, size=size, unpacked=size, media_type=_PLAIN)


def _key(layer: WheelLayer, wheel: Wheel) -> str:
    prefix = layer.prefix
    told = [_RULES, wheel.sha256, prefix.path, prefix.backend, prefix.python.version, layer.python]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()
