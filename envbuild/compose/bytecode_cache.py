"""Bytecode that earlier runs compiled. The layer store keeps the bytecode of each wheel as one uncompressed tar file. So if one
wheel of a layer changes, only this wheel is compiled."""

from __future__ import annotations

import functools
import hashlib
import json
import tarfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from envbuild.compose.layer import header
from envbuild.compose.layer_plan import Wheel, WheelLayer
from envbuild.compose.members import PartOfFile
from envbuild.compose.model import Layer
from envbuild.compose.store import LayerStore
from envbuild.errors import BuildError

_RULES = "bytecode 1"  # increase this number when the same wheel gives different bytecode than before
_PLAIN = "application/vnd.oci.image.layer.v1.tar"
_BLOCK = 512


def find(store: LayerStore, layer: WheelLayer, wheel: Wheel) -> dict[str, PartOfFile] | None:
    """The bytecode files of ``wheel``, by absolute path in the image; None if the store does not have all of them."""
    key = _key(layer, wheel)
    kept = store.find(key)
    if kept is None:
        return None
    try:
        for _ in store.read(kept):
            pass
        return dict(parts(store.blob(kept.digest)))
    except (BuildError, tarfile.TarError):  # damaged: the caller compiles the wheel again
        store.forget(key)
        return None


def keep(
    store: LayerStore, layer: WheelLayer, wheel: Wheel, code: Callable[[], Iterable[tuple[str, bytes]]]
) -> dict[str, PartOfFile]:
    """Put the bytecode of ``wheel`` into the store, and return it in the same form as :func:`find`.

    ``code`` yields each bytecode file: its absolute path in the image, and its content. ``code`` is not called if another
    process has stored the bytecode meanwhile.
    """
    places: dict[str, tuple[int, int]] = {}
    write = functools.partial(_write, code=code, places=places)
    file = store.blob(store.add(_key(layer, wheel), write, about=f"the bytecode of {wheel.filename}").digest)
    return {path: PartOfFile(file, *place) for path, place in places.items()} or dict(parts(file))


def parts(file: Path) -> Iterator[tuple[str, PartOfFile]]:
    """Yield each file in the tar ``file``: its absolute path in the image, and its content."""
    with tarfile.open(file) as archive:
        for found in archive:
            if found.isreg():
                yield f"/{found.name.lstrip('/')}", PartOfFile(file, found.offset_data, found.size)


def _write(stream: BinaryIO, *, code: Callable[[], Iterable[tuple[str, bytes]]], places: dict[str, tuple[int, int]]) -> Layer:
    digest, size = hashlib.sha256(), 0
    for path, content in code():
        head = header(path, tarfile.REGTYPE, 0o644, len(content))
        places[path] = size + len(head), len(content)
        whole = b"".join((head, content, bytes(-len(content) % _BLOCK)))
        digest.update(whole)
        size += stream.write(whole)
    end = bytes(2 * _BLOCK)
    digest.update(end)
    size += stream.write(end)
    sha256 = digest.hexdigest()
    return Layer(digest=sha256, diff_id=sha256, size=size, unpacked=size, media_type=_PLAIN)


def _key(layer: WheelLayer, wheel: Wheel) -> str:
    prefix = layer.prefix
    told = [_RULES, wheel.sha256, prefix.path, prefix.backend, prefix.python.version, layer.python]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()
