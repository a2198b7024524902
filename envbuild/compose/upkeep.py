"""Maintains the layer store: lists its layers, removes the least recently used layers, and checks all layers for damage."""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from envbuild.compose.model import Layer
from envbuild.compose.store import LayerStore, StoreEntry
from envbuild.compose.unpack import DamagedError, noting, unpacked
from envbuild.model.progress import OnProgress, Progress

_PIECE = 1 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class CachedLayer:
    """A layer of the store. ``about`` describes its content. ``used`` is the time of its last use, in seconds since 1970."""

    digest: str
    size: int
    unpacked: int | None
    about: tuple[str, ...]
    used: float


@dataclass(frozen=True, kw_only=True, slots=True)
class PrunedLayers:
    """The result of :func:`prune`. ``freed`` is the number of removed bytes, and ``kept`` is the number of kept bytes."""

    removed: tuple[CachedLayer, ...]
    freed: int
    kept: int


@dataclass(frozen=True, kw_only=True, slots=True)
class VerifiedLayers:
    """The result of :func:`verify`. ``layers`` and ``bytes`` say how many layers and bytes it read.

    ``damaged`` has the digests of damaged layers, and ``entries`` has the keys of index entries that were removed.
    """

    layers: int
    bytes: int
    damaged: tuple[str, ...]
    entries: tuple[str, ...]


def held(store: LayerStore) -> list[CachedLayer]:
    """The layers in the store, the most recently used first. A killed process may leave a blob without an entry in the index;
    such a blob is listed without its unpacked size."""
    by_digest = _by_digest(store)
    found = []
    for digest, path in store.blob_files().items():
        status = path.lstat()
        entries = by_digest.get(digest, [])
        found.append(
            CachedLayer(
                digest=digest,
                size=status.st_size,
                unpacked=entries[0].layer.unpacked if entries else None,
                about=tuple(sorted({entry.about for entry in entries if entry.about})),
                used=max((entry.used for entry in entries), default=status.st_mtime),
            )
        )
    return sorted(found, key=lambda each: (-each.used, each.digest))


def prune(store: LayerStore, keep_bytes: int) -> PrunedLayers:
    """Remove all blobs without an entry. Then keep the most recently used layers that fit into ``keep_bytes`` bytes, and remove
    all others.

    The entries of the index stay. They are small, and with the digest in an entry, a push can ask a registry whether it has the
    layer. Raises :class:`BuildError` (``busy``) if another process uses the store.
    """
    if not store.folder.is_dir():
        return PrunedLayers(removed=(), freed=0, kept=0)
    with store.alone():
        freed = store.remove_leftovers()
        files = store.blob_files()
        kept, removed = 0, []
        for each in held(store):
            if each.unpacked is not None and kept + each.size <= keep_bytes:
                kept += each.size
            else:
                files[each.digest].unlink()
                removed.append(each)
    return PrunedLayers(removed=tuple(removed), freed=freed + sum(each.size for each in removed), kept=kept)


def verify(store: LayerStore, on_progress: OnProgress) -> VerifiedLayers:
    """Read every layer again. Remove each layer whose digest is wrong. Remove each index entry that is unreadable, or that does
    not describe the digests and sizes of its layer correctly."""
    damaged, entries = [], []
    if not store.folder.is_dir():
        return VerifiedLayers(layers=0, bytes=0, damaged=(), entries=())
    with store.in_use():
        for path in store.damaged_entries():
            path.unlink(missing_ok=True)
            entries.append(path.stem)
        by_digest = _by_digest(store)
        blobs = store.blob_files()
        total = sum(path.lstat().st_size for path in blobs.values())
        done = 0

        def tell(size: int) -> None:
            nonlocal done
            done += size
            on_progress(Progress(stage="verify", message="reading layers", done=float(done), total=float(total), unit="bytes"))

        for digest, path in blobs.items():
            known = by_digest.get(digest, [])
            checked = _Check(path, {entry.layer for entry in known})
            checked.read(tell)
            wrong = [entry.key for entry in known if entry.layer not in checked.true]
            if checked.digest != digest:
                store.remove_blob(path, checked.status)
                damaged.append(digest)
            for key in wrong:
                store.forget(key)
            entries += wrong
    return VerifiedLayers(layers=len(blobs), bytes=total, damaged=tuple(damaged), entries=tuple(sorted(entries)))


class _Check:
    """Reads a blob once. Computes its digest, and finds the entries of the index that describe the blob correctly
    (:attr:`true`)."""

    def __init__(self, path: Path, said: set[Layer]) -> None:
        self._path = path
        self._said = said
        self.digest = ""
        self.true: set[Layer] = set()
        self.status = path.lstat()

    def read(self, on_bytes: Callable[[int], object]) -> None:
        """Read the file. Call ``on_bytes`` with the size of each piece."""
        blob, tar, sizes = hashlib.sha256(), hashlib.sha256(), [0, 0]

        def note(piece: bytes) -> None:
            blob.update(piece)
            sizes[0] += len(piece)
            on_bytes(len(piece))

        with self._path.open("rb") as stream:
            self.status = os.fstat(stream.fileno())
            pieces = noting(iter(lambda: stream.read(_PIECE), b""), note)
            is_sound = True
            try:
                for output in unpacked(pieces, self._kind()):
                    tar.update(output)
                    sizes[1] += len(output)
            except DamagedError:
                is_sound = False
            for _ in pieces:
                pass
        self.digest = blob.hexdigest()
        found = (self.digest, sizes[0], tar.hexdigest(), sizes[1])
        self.true = {each for each in self._said if is_sound and found == _told(each)}

    def _kind(self) -> str:
        """The media type of the file; empty if the file has no entry. A file without an entry is not unpacked."""
        return next((each.media_type for each in self._said), "")


def _told(layer: Layer) -> tuple[str, int, str, int]:
    return layer.digest, layer.size, layer.diff_id, layer.unpacked


def _by_digest(store: LayerStore) -> dict[str, list[StoreEntry]]:
    found: dict[str, list[StoreEntry]] = defaultdict(list)
    for entry in store.entries():
        found[entry.layer.digest].append(entry)
    return found
