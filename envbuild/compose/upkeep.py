"""Keeps the layer store small and sound: what it holds, removing what was not used for longest, reading all of it again."""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from isal import igzip_lib, isal_zlib

from envbuild.compose.model import Layer
from envbuild.compose.store import Entry, LayerStore
from envbuild.model import OnProgress, Progress

_PIECE = 1 << 20
_Damaged: type[Exception] = igzip_lib.IsalError  # type: ignore[assignment]  # declared as an instance there
_INPUT = 1 << 16  # what follows a member is copied: with large pieces and small members, again and again


@dataclass(frozen=True, kw_only=True, slots=True)
class Held:
    """A layer of the store. ``about`` names what it was made from, ``used`` is when it was used last (seconds since 1970)."""

    digest: str
    size: int
    unpacked: int | None
    about: tuple[str, ...]
    used: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Pruned:
    """What :func:`prune` removed, and what remains, in bytes."""

    removed: tuple[Held, ...]
    freed: int
    kept: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Verified:
    """What :func:`verify` read, and the digests and keys that it removed because they were damaged."""

    layers: int
    bytes: int
    damaged: tuple[str, ...]
    entries: tuple[str, ...]


def held(store: LayerStore) -> list[Held]:
    """The layers in the store, the one that was used last first. What has no entry in the index, because a process was killed
    before it wrote one, is told without its unpacked size.
    """
    by_digest = _by_digest(store)
    found = []
    for digest, path in store.blob_files().items():
        status = path.lstat()
        entries = by_digest.get(digest, [])
        found.append(
            Held(
                digest=digest,
                size=status.st_size,
                unpacked=entries[0].layer.unpacked if entries else None,
                about=tuple(sorted({entry.about for entry in entries if entry.about})),
                used=max((entry.used for entry in entries), default=status.st_mtime),
            )
        )
    return sorted(found, key=lambda each: (-each.used, each.digest))


def prune(store: LayerStore, keep_bytes: int) -> Pruned:
    """Remove what is in no index, then the layers that were not used for longest, until at most ``keep_bytes`` remain.

    Entries of the index stay: they are small, and say which layer a registry has. Raises :class:`BuildError` (``busy``) where
    another process uses the store.
    """
    if not store.folder.is_dir():
        return Pruned(removed=(), freed=0, kept=0)
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
    return Pruned(removed=tuple(removed), freed=freed + sum(each.size for each in removed), kept=kept)


def verify(store: LayerStore, on_progress: OnProgress) -> Verified:
    """Read every layer again; remove those whose digest, unpacked digest or sizes are wrong, with their entries."""
    damaged, entries = [], []
    if not store.folder.is_dir():
        return Verified(layers=0, bytes=0, damaged=(), entries=())
    with store.in_use():
        for path in store.damaged_entries():
            path.unlink(missing_ok=True)
            entries.append(path.stem)
        by_digest = _by_digest(store)
        blobs = store.blob_files()
        total = sum(path.lstat().st_size for path in blobs.values())
        done = 0
        for digest, path in blobs.items():
            known = by_digest.get(digest, [])
            checked = _Check(path, {entry.layer for entry in known})
            for size in checked.read():
                done += size
                on_progress(
                    Progress(stage="verify", message="reading layers", done=float(done), total=float(total), unit="bytes")
                )
            wrong = [entry.key for entry in known if entry.layer not in checked.true]
            if checked.digest != digest:
                store.remove_blob(path, checked.status)
                damaged.append(digest)
            for key in wrong:
                store.forget(key)
            entries += wrong
    return Verified(layers=len(blobs), bytes=total, damaged=tuple(damaged), entries=tuple(sorted(entries)))


class _Check:
    """One pass over a blob: its digest, and of what its entries say, what is :attr:`true`."""

    def __init__(self, path: Path, said: set[Layer]) -> None:
        self._path = path
        self._said = said
        self.digest = ""
        self.true: set[Layer] = set()
        self.status = path.lstat()

    def read(self) -> Iterator[int]:
        """Read the file, yielding the size of each piece."""
        blob, size = hashlib.sha256(), 0
        unpacked = _Gunzip() if any(layer.media_type.endswith("gzip") for layer in self._said) else None
        with self._path.open("rb") as stream:
            self.status = os.fstat(stream.fileno())
            while piece := stream.read(_PIECE):
                blob.update(piece)
                size += len(piece)
                if unpacked:
                    unpacked.feed(piece)
                yield len(piece)
        self.digest = blob.hexdigest()
        self.true = {
            each for each in self._said if (each.digest, each.size) == (self.digest, size) and _unpacks_to(each, unpacked)
        }


def _unpacks_to(layer: Layer, unpacked: _Gunzip | None) -> bool:
    if layer.media_type.endswith("gzip"):
        return unpacked is not None and unpacked.gives(layer)
    # An uncompressed layer is its own diff_id; other compressions are not unpacked here, their digest proves the blob.
    return not layer.media_type.endswith(".tar") or (layer.diff_id, layer.unpacked) == (layer.digest, layer.size)


class _Gunzip:
    """The digest and size of what a gzip file of any number of members unpacks to, in constant memory."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self._size = 0
        self._member = isal_zlib.decompressobj(wbits=31)
        self._is_sound = True

    def feed(self, piece: bytes) -> None:
        """Unpack the next piece of the file."""
        for start in range(0, len(piece), _INPUT):
            self._feed(piece[start : start + _INPUT])

    def _feed(self, piece: bytes) -> None:
        while self._is_sound:
            try:
                output = self._member.decompress(piece, _PIECE)
            except _Damaged:
                self._is_sound = False
                return
            self._digest.update(output)
            self._size += len(output)
            piece = self._member.unconsumed_tail
            if self._member.eof:
                piece, self._member = self._member.unused_data, isal_zlib.decompressobj(wbits=31)
            if not piece and len(output) < _PIECE:
                return

    def gives(self, layer: Layer) -> bool:
        """Whether that was what ``layer`` says."""
        return self._is_sound and (self._digest.hexdigest(), self._size) == (layer.diff_id, layer.unpacked)


def _by_digest(store: LayerStore) -> dict[str, list[Entry]]:
    found: dict[str, list[Entry]] = defaultdict(list)
    for entry in store.entries():
        found[entry.layer.digest].append(entry)
    return found
