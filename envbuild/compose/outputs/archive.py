"""Writes an image as one tar stream that Docker, containerd, Podman and skopeo load.

The archive is an OCI image layout with the additional file ``manifest.json`` of ``docker save``, as Docker 25 and newer write
it. containerd reads the layout, and older engines read ``manifest.json``. The layout and ``manifest.json`` name the same blobs.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from envbuild.compose.model import ComposedImage, Layer
from envbuild.compose.outputs import manifest
from envbuild.compose.store import LayerStore

_BLOBS = "blobs/sha256"
_CONTAINERD_NAME = "io.containerd.image.name"


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """A piece of the stream. ``of_layers`` is the number of its bytes that belong to layers."""

    content: bytes
    of_layers: int = 0


def layers_once(image: ComposedImage) -> list[Layer]:
    """The layers of ``image``, each only once. An image may contain the same layer twice, but a folder of blobs has this layer
    as one file."""
    return list({layer.digest: layer for layer in image.layers}.values())


def pieces(
    image: ComposedImage,
    store: LayerStore,
    references: Sequence[str],
    *,
    without: frozenset[str] = frozenset(),
    checked: bool = True,
) -> Iterator[Piece]:
    """Yield the archive of ``image`` in pieces. ``references`` are the names of the image. Layers whose digests are in
    ``without`` are listed, but their bytes are omitted.

    ``checked`` has the same meaning as in :meth:`LayerStore.read`.
    """
    own = manifest.config(image)
    told = manifest.manifest(image)
    layers = [f"{_BLOBS}/{layer.digest}" for layer in image.layers]
    docker = [{"Config": f"{_BLOBS}/{own.digest}", "RepoTags": list(references) or None, "Layers": layers}]
    for folder in (
        "blobs",
        _BLOBS,
    ):  # as in `docker save`; Apptainer 1.4 makes a folder only if the archive has an entry for it
        yield Piece(content=_header(f"{folder}/", 0, kind=tarfile.DIRTYPE))
    yield _file("oci-layout", manifest.LAYOUT)
    yield _file("index.json", manifest.index(_named(told, references)).content)
    yield _file("manifest.json", json.dumps(docker, separators=(",", ":")).encode())
    for document in (told, own):
        yield _file(f"{_BLOBS}/{document.digest}", document.content)
    for layer in layers_once(image):
        if layer.digest not in without:
            yield from _layer(layer, store, checked)
    yield Piece(content=b"\0" * 1024)


def _named(told: manifest.Document, references: Sequence[str]) -> list[dict[str, object]]:
    """Return one descriptor for each name. Without names, return one descriptor without a name."""
    plain = told.descriptor()
    named = [
        {**plain, "annotations": {_CONTAINERD_NAME: full_name(each), manifest.NAME: each.rpartition(":")[2]}}
        for each in references
    ]
    return named or [plain]


def full_name(reference: str) -> str:
    """Add Docker's default registry to ``repo:tag``, because containerd accepts full names only."""
    host, slash, _ = reference.partition("/")
    if not slash:
        return f"docker.io/library/{reference}"
    return reference if "." in host or ":" in host or host == "localhost" else f"docker.io/{reference}"


def _layer(layer: Layer, store: LayerStore, checked: bool) -> Iterator[Piece]:
    yield Piece(content=_header(f"{_BLOBS}/{layer.digest}", layer.size))
    for content in store.read(layer, checked=checked):
        yield Piece(content=content, of_layers=len(content))
    yield Piece(content=b"\0" * (-layer.size % 512))


def _file(name: str, content: bytes) -> Piece:
    return Piece(content=_header(name, len(content)) + content + b"\0" * (-len(content) % 512))


def _header(name: str, size: int, *, kind: bytes = tarfile.REGTYPE) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.type = size, kind
    info.mode = 0o755 if kind == tarfile.DIRTYPE else 0o644
    return info.tobuf(tarfile.USTAR_FORMAT if size < 8 << 30 else tarfile.GNU_FORMAT)


def contents(stream: Iterable[Piece]) -> Iterator[bytes]:
    """Yield only the bytes of the pieces."""
    return (piece.content for piece in stream)
