"""Compresses an image's layers in another way than the layer store does: with gzip, with zstd, or not at all.

The unpacked bytes, the configuration and the image's id stay the same. The digests of the layers and of the manifest change.
The compressed bytes depend on the version of libdeflate or zstd, so this version is part of a layer's key in the store.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import BinaryIO, Literal

import deflate

from envbuild.compose.members import PIECE, compressed
from envbuild.compose.model import ComposedImage, Layer
from envbuild.compose.outputs import archive
from envbuild.compose.store import LayerStore
from envbuild.compose.unpack import DamagedError, noting, unpacked
from envbuild.errors import BuildError
from envbuild.model.progress import OnProgress, Progress

Compression = Literal["gzip", "zstd", "none"]
_LEVEL = 3  # the default of zstd: about as small as gzip's best level, and many times as fast
_GZIP_LEVEL = 6
_AT_ONCE = 2
_PLAIN = "application/vnd.oci.image.layer.v1.tar"
_KINDS: dict[Compression, str] = {"gzip": f"{_PLAIN}+gzip", "zstd": f"{_PLAIN}+zstd", "none": _PLAIN}


def known(image: ComposedImage, store: LayerStore, compression: Compression) -> ComposedImage | None:
    """The image with layers of this compression. Only the store's index is read, so the blobs may be absent. None if one of
    these layers was never made."""
    found = [_kept(layer, compression) or store.known(_key(layer, compression)) for layer in image.layers]
    layers = tuple(layer for layer in found if layer is not None)
    return replace(image, layers=layers) if len(layers) == len(image.layers) else None


def converted(image: ComposedImage, store: LayerStore, compression: Compression, on_progress: OnProgress) -> ComposedImage:
    """Return the image with layers of this compression. If the store lacks such a layer, make it.

    Raises :class:`BuildError` (``layer-damaged``, ``layer-missing``, ``no-space``).
    """
    layers = archive.layers_once(image)
    total = float(sum(layer.size for layer in layers))
    words = f"compressing layers by {compression}" if compression != "none" else "unpacking layers"
    made: dict[str, Layer] = {}
    done = 0.0
    stopped = threading.Event()

    def make(layer: Layer) -> Layer:
        return _kept(layer, compression) or store.add(
            _key(layer, compression),
            lambda stream: _write(stream, layer, store, compression, stopped),
            about=f"the layer sha256:{layer.digest[:12]}, {compression}",
        )

    with store.in_use(), ThreadPoolExecutor(_AT_ONCE) as pool:
        try:
            for layer, new in zip(layers, pool.map(make, layers), strict=True):
                made[layer.digest] = new
                done += layer.size
                on_progress(Progress(stage="compress", message=words, done=done, total=total, unit="bytes"))
        except BaseException:  # an error or Ctrl-C: each running compression stops after its current piece
            stopped.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return replace(image, layers=tuple(made[layer.digest] for layer in image.layers))


def _kept(layer: Layer, compression: Compression) -> Layer | None:
    return layer if layer.media_type == _KINDS[compression] else None


def _key(layer: Layer, compression: Compression) -> str:
    return hashlib.sha256(f"{_rules(compression)} {layer.digest}".encode()).hexdigest()


def _rules(compression: Compression) -> str:
    """Everything besides the layer that determines the compressed bytes."""
    if compression == "zstd":
        import zstandard

        return f"zstd 1, level {_LEVEL}, {zstandard.ZSTD_VERSION}"
    return f"gzip 1, deflate {deflate.__version__}" if compression == "gzip" else "none 1"


class _StoppedError(Exception):
    """Stops a compression, because another layer failed or Ctrl-C was pressed."""


def _write(stream: BinaryIO, layer: Layer, store: LayerStore, compression: Compression, stopped: threading.Event) -> Layer:
    blob, tar, size = hashlib.sha256(), hashlib.sha256(), 0

    def count(piece: bytes) -> None:
        nonlocal size
        if stopped.is_set():
            raise _StoppedError
        size += len(piece)

    try:
        tar_pieces = noting(unpacked(store.read(layer), layer.media_type), tar.update, count)
        for piece in _compressors()[compression](tar_pieces):
            blob.update(piece)
            stream.write(piece)
    except DamagedError as error:
        raise _damaged(layer, store) from error
    if tar.hexdigest() != layer.diff_id:
        raise _damaged(layer, store)
    return Layer(
        digest=blob.hexdigest(), diff_id=layer.diff_id, size=stream.tell(), unpacked=size, media_type=_KINDS[compression]
    )


def _compressors() -> dict[Compression, Callable[[Iterable[bytes]], Iterator[bytes]]]:
    return {"gzip": _by_gzip, "zstd": _by_zstd, "none": iter}


def _by_gzip(pieces: Iterable[bytes]) -> Iterator[bytes]:
    for piece in _of_one_size(pieces):
        yield bytes(compressed(piece, _GZIP_LEVEL))


def _by_zstd(pieces: Iterable[bytes]) -> Iterator[bytes]:
    import zstandard

    # Use one thread and pieces of one size, so that the output does not depend on the sizes of the input's pieces.
    compressor = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True, write_content_size=False).compressobj()
    for piece in _of_one_size(pieces):
        yield compressor.compress(piece)
    yield compressor.flush()


def _of_one_size(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the same bytes in pieces of :data:`PIECE` bytes. The last piece may be shorter."""
    held = bytearray()
    for piece in pieces:
        held += piece
        while len(held) >= PIECE:
            yield bytes(held[:PIECE])
            del held[:PIECE]
    if held:
        yield bytes(held)


def _damaged(layer: Layer, store: LayerStore) -> BuildError:
    return BuildError(
        f"The layer sha256:{layer.digest} is damaged in the layer store {store.folder}.",
        code="layer-damaged",
        hint="Run `envbuild cache verify`, which removes damaged layers. Then run this command again: it makes the removed "
        "layers again.",
    )
