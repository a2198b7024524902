"""The layer store in the cache folder. It has image layers in files named by their digests, and an index of these layers. The
index says which input gives which layer.

The folder is an OCI image layout, so that other tools can read it:

    oci-layout  index.json     the two files that every layout has; this index.json names no image
    blobs/sha256/DIGEST        one file for each layer
    keys/KEY.json              one small file for each key (the hash of an input): the layer that the input gives

Each entry of the index is a separate file in ``keys``. So processes that add layers at the same time never write the same file,
and a damaged entry costs only one layer. The modification time of an entry says when its layer was used last.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

from envbuild import files
from envbuild.compose import growing
from envbuild.compose.model import Layer
from envbuild.errors import BuildError

Watch = Callable[[growing.GrowingLayer], object]
_FORMAT = 1
_PIECE = 1 << 20
_HEX = re.compile(r"[0-9a-f]{64}")
_LARGEST_ENTRY = 1 << 16
_LAYOUT = {"oci-layout": '{"imageLayoutVersion":"1.0.0"}', "index.json": '{"schemaVersion":2,"manifests":[]}'}


@dataclass(frozen=True, kw_only=True, slots=True)
class StoreEntry:
    """One entry of the index. ``about`` describes the input in words. ``used`` is the time of the last use, in seconds since
    1970."""

    key: str
    layer: Layer
    about: str
    used: float


class LayerStore:
    """The layers in one folder. The folder is made together with its first layer. Threads and processes may share the store."""

    def __init__(self, folder: Path, on_wait: Callable[[str], None] = files.tell_nobody) -> None:
        """If this process waits for another process, ``on_wait`` is called with a message that names the other process."""
        self.folder = folder
        self._blobs = folder / "blobs" / "sha256"
        self._keys = folder / "keys"
        self._locks = folder / "locks"
        self._on_wait = on_wait
        self._is_ready = False

    def find(self, key: str) -> Layer | None:
        """Return the layer of ``key``, and record that it was used now. Return None if the index has no entry for ``key``, or
        if the blob of the layer is absent or has a wrong size."""
        entry = self._read(self._entry_file(key))
        if entry is None or not self.has(entry.layer):
            return None
        with contextlib.suppress(OSError):  # the store may be read-only for this user
            os.utime(self._entry_file(key))
        return entry.layer

    def known(self, key: str) -> Layer | None:
        """Return the layer of ``key`` as the index describes it, or None if the index has no entry for ``key``. The blob of the
        layer may have been removed to save space."""
        entry = self._read(self._entry_file(key))
        return entry.layer if entry else None

    def add(self, key: str, write: Callable[[BinaryIO], Layer], *, about: str = "", watch: Watch | None = None) -> Layer:
        """Return the layer of ``key``. If the store lacks it, call ``write``, which writes the layer to a stream.

        If another process or thread is writing the same layer, this method waits for it and returns that layer. The digest that
        ``write`` returns is trusted; the size is compared with the file. A kill at any moment leaves no partial layer in the
        store.

        ``watch`` is called with a :class:`GrowingLayer` when ``write`` begins. ``watch`` can read the layer while it is
        written, and must close the :class:`GrowingLayer`. Raises :class:`BuildError` (``no-space``) if the disk is full, and
        the errors of ``write``.
        """
        found = self.find(key)
        if found:
            return found
        try:
            self._prepare()
            with self.in_use(), files.locked(self._locks / _checked(key), self._on_wait):
                return self.find(key) or self._write(key, write, about, watch)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise files.explain_os_error(error, self.folder) from error
            raise

    def has(self, layer: Layer) -> bool:
        """Whether the store has the blob of ``layer``, with the right size."""
        try:
            self.blob(layer.digest, layer.size)
        except BuildError:
            return False
        return True

    def blob(self, digest: str, size: int | None = None) -> Path:
        """Return the path of a blob. Raises :class:`BuildError` if the file is absent (``layer-missing``), or if its size is
        not ``size`` (``layer-damaged``)."""
        path = self._blob_file(digest)
        try:
            status = path.lstat()
        except OSError as error:
            raise _missing(digest, self.folder) from error
        if not stat.S_ISREG(status.st_mode) or (size is not None and status.st_size != size):
            raise _damaged(digest, self.folder)
        return path

    def read(self, layer: Layer, *, checked: bool = True) -> Iterator[bytes]:
        """Yield the bytes of a layer in pieces. At the end, raises :class:`BuildError` (``layer-damaged``) if the digest
        differs. If ``checked`` is false, only the number of bytes is compared, because the receiver computes the digest."""
        digest, size = hashlib.sha256(), 0
        with self.blob(layer.digest, layer.size).open("rb") as stream:
            while piece := stream.read(_PIECE):
                size += len(piece)
                if checked:
                    digest.update(piece)
                yield piece
        if size != layer.size or (checked and digest.hexdigest() != layer.digest):
            raise _damaged(layer.digest, self.folder)

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Prevent other processes from pruning the store until the ``with`` block ends. Any number of processes may be in such
        a block at the same time."""
        with self._gate(fcntl.LOCK_SH):
            yield

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Exclude all other readers and writers until the block ends. Raises :class:`BuildError` (``busy``) if another process
        uses the store."""
        with self._gate(fcntl.LOCK_EX | fcntl.LOCK_NB):
            yield

    def entries(self) -> list[StoreEntry]:
        """All readable entries of the index, with or without a blob in the store."""
        paths = sorted(self._keys.glob("*.json")) if self._keys.is_dir() else []
        return [entry for path in paths if (entry := self._read(path))]

    def blob_files(self) -> dict[str, Path]:
        """The files of all blobs by digest, including blobs without an entry."""
        if not self._blobs.is_dir():
            return {}
        return {path.name: path for path in sorted(self._blobs.iterdir()) if _HEX.fullmatch(path.name)}

    def remove_blob(self, path: Path, seen: os.stat_result) -> bool:
        """Remove the blob file ``path``, unless another process has replaced the file since the caller read its status
        ``seen``. Return whether the file is gone."""
        with files.locked(self._locks / path.name, self._on_wait):
            try:
                now = path.lstat()
            except FileNotFoundError:
                return True
            if (now.st_ino, now.st_mtime_ns) != (seen.st_ino, seen.st_mtime_ns):
                return False
            path.unlink()
            return True

    def forget(self, key: str) -> None:
        """Remove the entry of ``key`` from the index."""
        self._entry_file(key).unlink(missing_ok=True)

    def damaged_entries(self) -> list[Path]:
        """The files of the index that cannot be read as entries."""
        paths = sorted(self._keys.glob("*.json")) if self._keys.is_dir() else []
        return [path for path in paths if not self._read(path)]

    def remove_leftovers(self) -> int:
        """Remove files that killed processes left, and return the sum of their sizes in bytes. Call this only inside
        :meth:`alone`."""
        freed = 0
        for folder in (self._blobs, self._keys):
            for path in folder.iterdir() if folder.is_dir() else ():
                if path.name.startswith("."):
                    freed += path.lstat().st_size
                    path.unlink()
        for path in self._locks.iterdir() if self._locks.is_dir() else ():
            path.unlink()
        return freed

    def _write(self, key: str, write: Callable[[BinaryIO], Layer], about: str, watch: Watch | None) -> Layer:
        with files.new_file(self._blobs) as new:
            layer = _watched(write, new.stream, watch)
            new.stream.flush()
            _require_true(layer, os.fstat(new.stream.fileno()).st_size)
            with files.locked(self._locks / layer.digest, self._on_wait):  # another key may give the same bytes
                if not new.keep(self._blob_file(layer.digest), mode=0o444):  # read-only: outputs are hard links to this file
                    raise _missing(layer.digest, self.folder)
        files.write_atomic(self._entry_file(key), _encode(layer, about))
        return layer

    def _prepare(self) -> None:
        """Make the folders. If no other process uses the store now, also remove files that killed processes left."""
        if self._is_ready:
            return
        try:
            for folder in (self._blobs, self._keys, self._locks):
                folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise files.explain_os_error(error, self.folder) from error
        for name, content in _LAYOUT.items():
            if not (self.folder / name).exists():
                files.write_atomic(self.folder / name, content)
        with contextlib.suppress(BuildError), self.alone():
            self.remove_leftovers()
        self._is_ready = True

    @contextlib.contextmanager
    def _gate(self, how: int) -> Iterator[None]:
        path = self.folder / "in-use"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise files.explain_os_error(error, path) from error
        try:
            fcntl.flock(descriptor, how)
        except BlockingIOError as error:
            os.close(descriptor)
            raise BuildError(
                f"Other processes are using the layers in {self.folder}.",
                code="busy",
                hint="Run the command again when they have ended.",
            ) from error
        try:
            yield
        finally:
            os.close(descriptor)

    def _blob_file(self, digest: str) -> Path:
        return self._blobs / _checked(digest)

    def _entry_file(self, key: str) -> Path:
        return self._keys / f"{_checked(key)}.json"

    def _read(self, path: Path) -> StoreEntry | None:
        """The entry in a file; None if the file is absent, damaged or of another format."""
        try:
            used = path.stat().st_mtime
            found = json.loads(files.read_bytes(path, _LARGEST_ENTRY))
            if found["format"] != _FORMAT or found["check"] != _checksum(found["layer"]):
                return None
            layer = Layer(**found["layer"])
            return StoreEntry(key=path.stem, layer=layer, about=str(found["about"]), used=used)
        except (OSError, ValueError, LookupError, TypeError, RecursionError):
            return None


def _watched(write: Callable[[BinaryIO], Layer], stream: BinaryIO, watch: Watch | None) -> Layer:
    followed = growing.follow(stream, watch) if watch is not None else None
    if followed is None:
        return write(stream)
    layer: Layer | None = None
    try:
        layer = write(followed[0])
    finally:
        followed[1].end(layer)
    return layer


def _encode(layer: Layer, about: str) -> str:
    told = asdict(layer)
    return json.dumps({"format": _FORMAT, "about": about, "layer": told, "check": _checksum(told)}, indent=1) + "\n"


def _checksum(told: Any) -> str:
    """Return a checksum of the description of a layer (its diff_id, its sizes and so on). It detects an entry that a failing
    disk has damaged. The digest in the name of a blob protects only the blob."""
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def _checked(name: str) -> str:
    if not _HEX.fullmatch(name):
        raise ValueError(f"{name!r} is not a SHA-256 of lower-case hexadecimal digits")
    return name


def _require_true(layer: Layer, written: int) -> None:
    """Check the layer that the writer returned: its digests must be valid, and its size must be ``written``, the size of the
    file. An error is a bug of envbuild, and such a layer must not get an entry in the index."""
    for name in ("digest", "diff_id"):
        _checked(getattr(layer, name))
    if layer.size != written or layer.unpacked < 0:
        raise ValueError(f"the writer of layer {layer.digest} wrote {written} bytes instead of {layer.size}")


def _missing(digest: str, folder: Path) -> BuildError:
    return BuildError(
        f"The layer sha256:{digest} is not in the layer store {folder}.",
        code="layer-missing",
        hint="Run the command again: it makes missing layers.",
    )


def _damaged(digest: str, folder: Path) -> BuildError:
    return BuildError(
        f"The layer sha256:{digest} is damaged in the layer store {folder}.",
        code="layer-damaged",
        hint="Run `envbuild cache verify`, which removes damaged layers. Then run this command again: it makes the removed "
        "layers again.",
    )
