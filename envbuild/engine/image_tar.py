"""Load images into an engine, and read images from an engine, as tar streams. No function here stores a whole image on a
disk."""

from __future__ import annotations

import functools
import gzip
import hashlib
import io
import json
import re
import tarfile
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, cast

from envbuild import files, guard
from envbuild.engine.model import LayerFile
from envbuild.errors import FREE_SPACE, BuildError, EngineError, says_disk_full
from envbuild.model.progress import OnProgress, Progress

if TYPE_CHECKING:
    from docker import DockerClient

_DIGEST = re.compile(r"(?<=^blobs/sha256/)[0-9a-f]{64}$|^[0-9a-f]{64}(?=\.tar$)")
_PODMAN_LAYER = re.compile(r"[0-9a-f]{64}\.tar")
_PIECE = 1 << 20
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"  # how compressed files begin
_ENV = ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]


def image_config(rootfs_sha256: str, *, architecture: str, created: str, comment: str) -> bytes:
    """Return the configuration of an image with one layer. Its sha256 is the image id, so equal layers give equal images."""
    config = {
        "architecture": architecture,
        "config": {"Env": _ENV, "Cmd": ["bash"]},
        "created": created,
        "history": [{"created": created, "created_by": comment}],
        "os": "linux",
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{rootfs_sha256}"]},
    }
    return json.dumps(config, sort_keys=True, separators=(",", ":")).encode()


def load_rootfs(
    client: DockerClient,
    rootfs: Path,
    reference: str,
    *,
    created: str,
    comment: str,
    on_progress: OnProgress,
    architecture: str = "amd64",
) -> None:
    """Load ``rootfs`` (an uncompressed tar file) as the only layer of the image ``reference``; see ``Engine.import_rootfs``.

    ``docker import`` is not used, because it would write the current time into the image. Then every import would be a
    different image, and the builder would not reuse the layers that it built on the previous import.
    """
    from docker.errors import DockerException

    config = image_config(files.sha256_of(rootfs), architecture=architecture, created=created, comment=comment)
    image = hashlib.sha256(config).hexdigest()
    manifest = json.dumps([{"Config": f"{image}.json", "RepoTags": [reference], "Layers": ["rootfs/layer.tar"]}]).encode()
    total = rootfs.stat().st_size

    def pieces() -> Iterator[bytes]:
        yield from _entry(f"{image}.json", len(config), [config])
        with rootfs.open("rb") as stream:
            content = iter(functools.partial(stream.read, _PIECE), b"")
            yield from _entry("rootfs/layer.tar", total, _counted(content, total, reference, on_progress))
        yield from _entry("manifest.json", len(manifest), [manifest])
        yield b"\0" * 1024

    try:
        api: Any = client.api
        for news in api.load_image(pieces(), quiet=True):
            if "error" in news:
                raise _not_loaded(reference, str(news["error"]))
    except DockerException as error:
        raise _not_loaded(reference, str(error)) from error


def layer_files(client: DockerClient, image: str) -> Iterator[LayerFile]:
    """Read the entries of all layers from the output of ``docker save`` for ``image``.

    A layer is ``<id>/layer.tar`` in Docker's older format, ``blobs/sha256/<digest>`` in its newer format, and ``<digest>.tar``
    in Podman's format. Raises :class:`EngineError` (``unknown-format``) if no layer is found. Without this error, a search that
    read nothing would look like a search without findings.
    """
    stream = io.BufferedReader(AnswerReader(client.api.get_image(image)), _PIECE)
    seen: set[str] = set()
    walked = False
    with tarfile.open(fileobj=stream, mode="r|") as outer:
        for member in outer:
            content = outer.extractfile(member) if member.isfile() else None
            if content is None or member.name in seen:
                continue
            seen.add(member.name)
            for entry in _entries(member.name, content):
                walked = True
                yield entry
    if not walked and _has_layers(client, image):
        raise EngineError(f"The engine saves {image} in an unknown format: no layer was found.", code="unknown-format")


def blobs(client: DockerClient, image: str) -> Iterator[tuple[Path, str]]:
    """Yield the layers of ``image`` as tar files, and its configuration, in any order. Each file comes with its sha256 (hex).

    A request for the next file overwrites the previous one. The sha256 of a layer is its diff id. The sha256 of the
    configuration is the id of the image.
    """
    stream = io.BufferedReader(AnswerReader(client.api.get_image(image)), _PIECE)
    with guard.temporary_folder("envbuild-layer-") as folder, tarfile.open(fileobj=stream, mode="r|") as outer:
        for member in outer:
            content = outer.extractfile(member) if member.isfile() else None
            if content is not None and (_may_be_layer(member.name) or member.name.endswith(".json")):
                yield _spool(io.BufferedReader(content, _PIECE), folder / "blob")


class LayerTar:
    """The unpacked tar file of a layer, in pieces. It can be read only once. Nothing is written to a disk."""

    def __init__(self, content: IO[bytes]) -> None:
        self._content = content
        self._seen = hashlib.sha256()

    def __iter__(self) -> Iterator[bytes]:
        """Yield the pieces."""
        for piece in iter(functools.partial(self._content.read, _PIECE), b""):
            self._seen.update(piece)
            yield piece

    def diff_id(self) -> str:
        """The sha256 (hex) of all pieces that were read so far. After the last piece, this is the layer's diff id."""
        return self._seen.hexdigest()


def layer_tars(client: DockerClient, image: str, wanted: Collection[str]) -> Iterator[LayerTar]:
    """Yield the layers of ``image``, in any order. Read each layer before you request the next one.

    ``wanted`` has diff ids (hex). Layers that are certainly not wanted are left out. Docker before version 25 does not give the
    diff id of a layer before its content, so the result may also have other layers.
    """
    stream = io.BufferedReader(AnswerReader(client.api.get_image(image)), _PIECE)
    with tarfile.open(fileobj=stream, mode="r|") as outer:
        for member in outer:
            content = outer.extractfile(member) if member.isfile() and _may_be_layer(member.name) else None
            if content is None:
                continue
            peekable = io.BufferedReader(content, _PIECE)  # type: ignore[type-var]
            if _is_json(peekable):
                continue
            unpacked = _unpacked(peekable)
            named = _DIGEST.search(member.name)
            if unpacked is not peekable or named is None or named[0] in wanted:
                yield LayerTar(unpacked)


def _unpacked(content: io.BufferedReader[Any]) -> IO[bytes]:
    """Return ``content``, or the stream of its unpacked bytes if it is compressed with gzip or zstd.

    containerd's image store saves layers as they are in registries. tarfile itself cannot unpack the layers of composed images,
    because it reads only the first of several members of a gzip file.
    """
    start = content.peek(4)[:4]
    if start[:2] == _GZIP:
        return cast(IO[bytes], gzip.GzipFile(fileobj=content))
    if start == _ZSTD:
        import zstandard

        return cast(IO[bytes], zstandard.ZstdDecompressor().stream_reader(content, read_across_frames=True))
    return content


def _spool(content: io.BufferedReader[Any], target: Path) -> tuple[Path, str]:
    """Write ``content`` to ``target``; if it is compressed, unpack it. Return ``target`` and the sha256 of the result."""
    seen = hashlib.sha256()
    with target.open("wb") as out:
        for piece in iter(functools.partial(_unpacked(content).read, _PIECE), b""):
            seen.update(piece)
            out.write(piece)
    return target, seen.hexdigest()


def _may_be_layer(name: str) -> bool:
    return name.endswith("/layer.tar") or name.startswith("blobs/sha256/") or bool(_PODMAN_LAYER.fullmatch(name))


def _is_json(content: io.BufferedReader[Any]) -> bool:
    """Whether a blob is JSON (a manifest or a configuration) or empty, and so not a layer."""
    return content.peek(1)[:1] in (b"{", b"[", b"")


def _has_layers(client: DockerClient, image: str) -> bool:
    api: Any = client.api
    raw: dict[str, Any] = api.inspect_image(image)
    return bool((raw.get("RootFS") or {}).get("Layers"))


def _entries(name: str, content: IO[bytes]) -> Iterator[LayerFile]:
    if not _may_be_layer(name):
        return
    peekable = io.BufferedReader(content, _PIECE)  # type: ignore[type-var]
    if _is_json(peekable):
        return
    with tarfile.open(fileobj=_unpacked(peekable), mode="r|") as layer:
        for entry in layer:
            yield LayerFile(
                layer=name,
                path=_path(entry.name),
                kind=_kind(entry),
                target=_path(entry.linkname) if entry.islnk() else entry.linkname,
                size=entry.size,
                open=functools.partial(_open, layer, entry),
            )


def _path(name: str) -> str:
    return f"/{name.removeprefix('./').lstrip('/')}"


def _kind(entry: tarfile.TarInfo) -> Literal["file", "folder", "link", "hardlink", "other"]:
    if entry.isdir():
        return "folder"
    if entry.islnk():
        return "hardlink"
    return "file" if entry.isfile() else "link" if entry.issym() else "other"


def _open(layer: tarfile.TarFile, entry: tarfile.TarInfo) -> IO[bytes]:
    content = layer.extractfile(entry) if entry.isfile() else None
    return content if content is not None else io.BytesIO()


class AnswerReader(io.RawIOBase):
    """A file object that reads the pieces of an HTTP answer."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._rest = b""

    def readable(self) -> bool:
        """Always true."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill ``buffer`` from the next piece, and return the number of bytes; 0 at the end."""
        while not self._rest:
            try:
                self._rest = next(self._pieces)
            except StopIteration:
                return 0
        count = min(len(buffer), len(self._rest))
        buffer[:count], self._rest = self._rest[:count], self._rest[count:]
        return count


def _entry(name: str, size: int, content: Iterable[bytes]) -> Iterator[bytes]:
    info = tarfile.TarInfo(name)
    info.size = size
    yield info.tobuf(tarfile.USTAR_FORMAT if size < 8 << 30 else tarfile.GNU_FORMAT)
    yield from content
    yield b"\0" * (-size % 512)


def _counted(pieces: Iterable[bytes], total: int, reference: str, on_progress: OnProgress) -> Iterator[bytes]:
    done = 0
    for piece in pieces:
        done += len(piece)
        on_progress(Progress(stage="base", message=f"loading {reference}", done=float(done), total=float(total), unit="bytes"))
        yield piece


def _not_loaded(reference: str, words: str) -> BuildError:
    full = says_disk_full(words)
    return BuildError(
        f"The engine did not accept the root file system of {reference} ({' '.join(words.split())}).",
        code="no-space" if full else "build-step",
        hint=FREE_SPACE if full else "",
    )
