"""Reads images of an engine, and copies their layers into the layer store."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from envbuild import files, guard
from envbuild.compose import compressed_layer
from envbuild.compose.model import ComposedImage, Layer
from envbuild.compose.store import LayerStore
from envbuild.engine.client import Engine
from envbuild.errors import EngineError
from envbuild.index.thread_pool import DaemonPool, result_of

_PACKERS = 2
_DOCUMENT = 4 << 20  # manifests and configurations are smaller; containerd accepts no larger ones
_PLAIN = "application/vnd.oci.image.layer.v1.tar"


def unpacked_layer(diff_id: str) -> Layer:
    """A layer that only an engine has. An engine does not compress layers, so the digest is the diff id. The size is
    unknown."""
    return Layer(digest=diff_id, diff_id=diff_id, size=0, unpacked=0, media_type=_PLAIN)


def remember(folder: Path, image: ComposedImage, image_id: str) -> None:
    """Write the configuration and the layers of ``image`` into a file in ``folder``, whose name is the image's id."""
    content = {"config": image.config.decode(), "layers": [asdict(layer) for layer in image.layers]}
    content["sha256"] = hashlib.sha256(image.config).hexdigest()
    files.write_atomic(folder / f"{image_id.removeprefix('sha256:')}.json", json.dumps(content, sort_keys=True))


def recall(folder: Path, image_id: str) -> ComposedImage | None:
    """The image that :func:`remember` recorded under this id (``sha256:…``); None if the record is absent or damaged.

    The id is the digest of the configuration, or of the manifest in containerd's image store. So the record has the digest of
    the configuration, too. A record also counts as damaged if its layers are not those of the configuration.
    """
    try:
        content: dict[str, Any] = json.loads(files.read_text(folder / f"{image_id.removeprefix('sha256:')}.json"))
        config = str(content["config"]).encode()
        layers = tuple(Layer(**layer) for layer in content["layers"])
        if hashlib.sha256(config).hexdigest() != content["sha256"] or [layer.diff_id for layer in layers] != _diff_ids(config):
            return None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return ComposedImage(config=config, layers=layers)


def complete(engine: Callable[[], Engine], image_id: str, known: ComposedImage, store: LayerStore) -> ComposedImage:
    """Return ``known``, the image with the id ``image_id``, with the layers as the store has them: each layer of the result has
    the digest of its compressed copy.

    Layers that the store never had are copied from the engine; ``engine`` is called only in this case. Raises
    :class:`EngineError` (``unknown-format``) if the engine does not save one of these layers.
    """
    lacking = {layer.diff_id: store.known(_key(layer.diff_id)) for layer in known.layers if layer.media_type == _PLAIN}
    held = {diff_id: layer for diff_id, layer in lacking.items() if layer is not None}
    if needed := [diff_id for diff_id in lacking if diff_id not in held]:
        held |= keep_layers(engine(), image_id, needed, store)
    return replace(known, layers=tuple(held.get(layer.diff_id, layer) for layer in known.layers))


def tell_nobody(_layer: Layer) -> None:
    """Do nothing. This is the default of ``on_layer``."""


def keep_layers(
    engine: Engine, image: str, wanted: Collection[str], store: LayerStore, on_layer: Callable[[Layer], None] = tell_nobody
) -> dict[str, Layer]:
    """Put those layers of ``image`` whose diff ids are in ``wanted`` into the store, and return them by diff id.

    If the store lacks a layer, the engine saves the whole image. ``on_layer`` is called with each layer as soon as the store
    has it. Raises :class:`EngineError` (``unknown-format``) if the engine does not save one of the layers.
    """
    held = {diff_id: layer for diff_id in wanted if (layer := store.find(_key(diff_id))) is not None}
    for layer in held.values():
        on_layer(layer)
    lacking = set(wanted) - set(held)
    if lacking:
        with guard.temporary_folder("envbuild-layers-") as folder:
            held |= _packed(engine.blobs(image), lacking, folder, store, on_layer)
    if gone := set(wanted) - set(held):
        raise EngineError(
            f"The archive of {image} that the engine saved lacks {len(gone)} layers of the image.", code="unknown-format"
        )
    return held


def _packed(
    blobs: Iterable[tuple[Path, str]],
    lacking: Collection[str],
    folder: Path,
    store: LayerStore,
    on_layer: Callable[[Layer], None] = tell_nobody,
) -> dict[str, Layer]:
    """Put the layers whose digests are in ``lacking`` into the store. Several are compressed in parallel, while the engine
    still sends the next layer. ``folder`` is for temporary files."""

    def pack(tar: Path, diff_id: str) -> Layer:
        write = functools.partial(compressed_layer.write, tar=tar, diff_id=diff_id)
        layer = store.add(_key(diff_id), write, about="a layer that an engine built")
        tar.unlink()
        on_layer(layer)
        return layer

    packers = DaemonPool(_PACKERS)
    packing: dict[str, Future[Layer]] = {}
    for file, sha256 in blobs:
        if sha256 in lacking and sha256 not in packing:
            packing[sha256] = packers.submit(pack, file.rename(folder / sha256), sha256)  # the next blob gets the old name
    return {sha256: result_of(done) for sha256, done in packing.items()}


def describe(engine: Engine, image_id: str, store: LayerStore) -> ComposedImage:
    """Describe an image that the engine built: its configuration, byte for byte, and its layers as the engine stores them.

    The engine saves the whole image for this, which takes seconds for each gigabyte. So the caller should :func:`remember` the
    result. The layers that the store lacks are put into it at the same time, so that :func:`complete` need not save the image
    again. Raises :class:`EngineError`: ``no-image`` if the engine has no such image, ``unknown-format`` if the engine does not
    save the configuration.
    """
    found, wanted = engine.image(image_id), image_id.removeprefix("sha256:")
    if found is None:
        raise EngineError(
            f"The engine ({engine.endpoint}) has no image {image_id}, and the cache folder has no valid record of it.",
            code="no-image",
            hint="Build the image again: envbuild build NAME",
        )
    named = (layer.removeprefix("sha256:") for layer in found.layers)
    lacking = {diff_id for diff_id in named if store.find(_key(diff_id)) is None}
    documents: dict[str, bytes] = {}

    def blobs() -> Iterator[tuple[Path, str]]:
        for file, sha256 in engine.blobs(image_id):
            if sha256 == wanted or (sha256 not in lacking and file.stat().st_size < _DOCUMENT):
                documents[sha256] = file.read_bytes()
            yield file, sha256

    with guard.temporary_folder("envbuild-layers-") as folder:
        _packed(blobs(), lacking, folder, store)
    config = _configuration(documents, wanted, found.layers)
    if config is None:
        raise EngineError(
            f"The archive of {image_id} that the engine saved lacks the configuration of the image.",
            code="unknown-format",
            hint="Compose the image instead: `envbuild build NAME --builder compose`.",
        )
    return ComposedImage(config=config, layers=tuple(map(unpacked_layer, _diff_ids(config))))


def _configuration(documents: Mapping[str, bytes], digest: str, layers: Sequence[str]) -> bytes | None:
    """Return the configuration of the image with this id, which has ``layers``; None if it is not among the ``documents``.

    The id is the digest of the configuration. In containerd's image store, it is the digest of a manifest, which names the
    configuration, or of an index, which names manifests.
    """
    try:
        told: dict[str, Any] = json.loads(documents[digest])
    except (KeyError, ValueError):
        return None
    if "rootfs" in told:
        return documents[digest] if told["rootfs"].get("diff_ids") == list(layers) else None
    named = [told["config"]] if "config" in told else told.get("manifests", [])
    found = (_configuration(documents, str(each["digest"]).removeprefix("sha256:"), layers) for each in named)
    return next(filter(None, found), None)


def _diff_ids(config: bytes) -> list[str]:
    """The diff ids (hex) of the layers in the configuration of an image, the lowest first."""
    return [str(diff_id).removeprefix("sha256:") for diff_id in json.loads(config)["rootfs"]["diff_ids"]]


def _key(diff_id: str) -> str:
    return hashlib.sha256(f"{compressed_layer.RULES} {diff_id}".encode()).hexdigest()
