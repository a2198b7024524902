"""Pulls an image from a registry into the layer store, and fetches only the layers that the store lacks."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import wait
from dataclasses import dataclass, replace
from typing import Any, BinaryIO

from envbuild.compose import estargz
from envbuild.compose.model import ComposedImage, Layer
from envbuild.compose.outputs import archive, credentials, digests, manifest
from envbuild.compose.outputs.bounded_adapter import LARGEST
from envbuild.compose.outputs.registry_client import Client, parse
from envbuild.compose.outputs.registry_errors import Repository
from envbuild.compose.outputs.transfer_progress import TransferProgress
from envbuild.compose.store import LayerStore
from envbuild.compose.unpack import DamagedError, noting, unpacked
from envbuild.errors import PublishError
from envbuild.index.thread_pool import DaemonPool, finished
from envbuild.model.progress import OnProgress, Progress

STAGE = "pull"
_AT_ONCE = 3  # layers that are fetched at the same time, as many as docker fetches
PATIENCE_S = 10.0  # seconds that an interrupted pull waits for running transfers
# Docker's media type → OCI's media type for the same kind of file.
_OCI = {
    "application/vnd.docker.image.rootfs.diff.tar.gzip": "application/vnd.oci.image.layer.v1.tar+gzip",
    "application/vnd.docker.image.rootfs.diff.tar": "application/vnd.oci.image.layer.v1.tar",
}
_LAYERS = (*_OCI.values(), "application/vnd.oci.image.layer.v1.tar+zstd")


@dataclass(frozen=True, kw_only=True, slots=True)
class Pulled:
    """The result of a pull. ``digest`` is the digest of the image in the registry. ``received`` is the number of bytes that
    were received, and ``present`` the number of layers that the store already had."""

    image: ComposedImage
    digest: str
    received: int
    present: int


def pull(
    source: str,
    tag: str,
    store: LayerStore,
    on_progress: OnProgress,
    *,
    require: Callable[[bytes], object] = lambda _config: None,
    pause: Callable[[float], object] | None = None,
) -> Pulled:
    """Pull an image from the repository ``source`` (``HOST/REPOSITORY``). ``tag`` is a tag or a digest (``sha256:…``).
    Afterwards, the store has the image's layers. ``require`` gets the image's configuration before any layer is fetched, and
    raises an error if it refuses the image.

    The digests of all received data are computed and compared, including the digest of each unpacked layer. An interrupted
    download of a layer continues where it stopped. If this process ends, complete layers stay in the store. Raises
    :class:`PublishError` (``not-in-registry``, ``digest-differs``, ``unknown-format``).
    """
    repository = parse(source)
    stopped = threading.Event()

    def tell(words: str) -> None:
        on_progress(Progress(stage=STAGE, message=words, warning=True))

    client = Client(
        repository, credentials.find(repository.host), has_layers=True, pause=pause or stopped.wait, on_retry=tell, writes=False
    )
    try:
        with store.in_use():
            return _Pull(client, store, on_progress, stopped).run(tag, require)
    finally:
        client.close()


def digest_of(source: str, tag: str) -> str:
    """The digest of the image that has ``tag`` in ``source``; empty if there is none. Raises :class:`PublishError`."""
    repository = parse(source)
    client = Client(repository, credentials.find(repository.host), writes=False)
    try:
        return digests.of_tag(client, tag)
    finally:
        client.close()


def absent(source: str, tag: str) -> PublishError:
    """The error for a registry that has no image with ``tag``."""
    return PublishError(f"{source} has no image {tag}.", code="not-in-registry", hint="Choose a tag with `--tag`.")


class _Pull:
    def __init__(self, client: Client, store: LayerStore, on_progress: OnProgress, stopped: threading.Event) -> None:
        self._client = client
        self._store = store
        self._on_progress = on_progress
        self._stopped = stopped
        self._lock = threading.Lock()
        self._received = self._present = 0

    def run(self, tag: str, require: Callable[[bytes], object]) -> Pulled:
        digest, told = self._manifest(tag)
        config, layers = self._described(told)
        require(config)
        distinct = archive.layers_once(ComposedImage(config=config, layers=layers))
        whole = self._fetch_all(distinct)
        image = ComposedImage(config=config, layers=tuple(whole[layer.digest] for layer in layers))
        return Pulled(image=image, digest=digest, received=self._received, present=self._present)

    def _manifest(self, tag: str, *, is_in_index: bool = False) -> tuple[str, Mapping[str, Any]]:
        """The digest and the content of the image's manifest. If ``tag`` names an index, this is the manifest for Linux on
        x86-64."""
        client = self._client
        answer = client.ask("GET", client.url(f"manifests/{tag}"), (200, 404), headers={"Accept": digests.KINDS})
        if answer.status_code == 404:
            raise absent(str(client.repository), tag)
        digest = f"sha256:{hashlib.sha256(answer.content).hexdigest()}"
        wanted = tag if tag.startswith("sha256:") else answer.headers.get("Docker-Content-Digest", digest)
        if digest != wanted:
            raise differs(client.repository, wanted)
        if manifest.is_removed(answer.content):
            raise absent(str(client.repository), tag)
        told = self._json(answer.content)
        if "manifests" not in told:
            return digest, told
        if is_in_index:
            raise self._unknown("an index names another index")
        return self._manifest(self._chosen(told["manifests"], tag), is_in_index=True)

    def _chosen(self, entries: Any, tag: str) -> str:
        """The digest of the image for Linux on x86-64, from the ``entries`` of an index."""
        try:
            for each in entries:
                platform = each.get("platform") or {}
                if (platform.get("os"), platform.get("architecture")) == ("linux", "amd64"):
                    return f"sha256:{_hex(each['digest'])}"
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise self._unknown(f"its index cannot be read ({type(error).__name__}: {error})") from error
        raise self._unknown(f"{tag} has no image for Linux on x86-64")

    def _described(self, told: Mapping[str, Any]) -> tuple[bytes, tuple[Layer, ...]]:
        """The image's configuration and layers, as its manifest and its configuration describe them."""
        try:
            digest, size = _blob(told["config"])
            if size > LARGEST:
                raise self._unknown(f"its configuration has {size} bytes")
            config = b"".join(self._client.blob(digest, size))
            if hashlib.sha256(config).hexdigest() != digest:
                raise differs(self._client.repository, f"sha256:{digest}")
            lists = [_list(each) for each in told["layers"]]
            diff_ids = [_hex(each) for each in self._json(config)["rootfs"]["diff_ids"]]
            kinds = [_OCI.get(each["mediaType"], str(each["mediaType"])) for each in told["layers"]]
            blobs = [_blob(each) for each in told["layers"]]
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise self._unknown(f"its manifest cannot be read ({type(error).__name__}: {error})") from error
        if strange := sorted(set(kinds) - set(_LAYERS)):
            raise self._unknown(f"it has layers of the kind {strange[0]}")
        if len(diff_ids) != len(blobs):
            raise self._unknown(f"it has {len(blobs)} layers, but its configuration lists {len(diff_ids)}")
        layers = tuple(_layer(*each) for each in zip(kinds, blobs, diff_ids, lists, strict=True))
        if len({layer.digest for layer in layers}) != len(set(layers)):
            raise self._unknown("it describes one layer in two different ways")
        return config, layers

    def _fetch_all(self, layers: list[Layer]) -> dict[str, Layer]:
        """The layers by digest, with their unpacked sizes. Layers that the store lacks are fetched."""
        known = {entry.layer.digest: entry.layer for entry in self._store.entries()}
        largest_first = sorted(layers, key=lambda layer: -layer.size)
        progress = TransferProgress(
            self._on_progress,
            stage=STAGE,
            message=f"pulling from {self._client.repository}",
            total=sum(layer.size for layer in layers),
        )
        pool = DaemonPool(_AT_ONCE)
        futures = {layer.digest: pool.submit(self._fetch, layer, known.get(layer.digest), progress) for layer in largest_first}
        try:
            for future in finished(futures.values()):
                future.result()
        finally:  # an error or Ctrl-C: transfers end after one more piece; do not wait for a silent registry
            self._stopped.set()
            wait(futures.values(), timeout=PATIENCE_S)
        return {digest: future.result() for digest, future in futures.items()}

    def _fetch(self, layer: Layer, known: Layer | None, progress: TransferProgress) -> Layer:
        if self._stopped.is_set():
            raise _StoppedError
        key = hashlib.sha256(f"pulled 1 {layer.digest} {layer.diff_id}".encode()).hexdigest()
        if known is not None and (known.diff_id, known.size) == (layer.diff_id, layer.size) and self._store.has(known):
            found: Layer | None = known
        else:
            found = self._store.find(key)
        if found is not None:
            with self._lock:
                self._present += 1
            progress.add(layer.size)
            return replace(found, files=layer.files)
        about = f"pulled from {self._client.repository}"
        return self._store.add(key, lambda stream: self._write(layer, stream, progress), about=about)

    def _write(self, layer: Layer, stream: BinaryIO, progress: TransferProgress) -> Layer:
        """Write the layer to ``stream``. Compare the hashes of its packed and unpacked bytes with the hashes that the image
        states.

        Raises :class:`PublishError` if a hash differs.
        """
        blob, tar, size = hashlib.sha256(), hashlib.sha256(), 0
        pieces = noting(self._pieces(layer, progress), blob.update, stream.write)
        try:
            for output in unpacked(pieces, layer.media_type):
                tar.update(output)
                size += len(output)
            for _ in pieces:
                pass
        except DamagedError as error:
            raise differs(self._client.repository, f"sha256:{layer.digest}") from error
        if (blob.hexdigest(), tar.hexdigest()) != (layer.digest, layer.diff_id):
            raise differs(self._client.repository, f"sha256:{layer.digest}")
        return replace(layer, unpacked=size)

    def _pieces(self, layer: Layer, progress: TransferProgress) -> Iterator[bytes]:
        for piece in self._client.blob(layer.digest, layer.size):
            if self._stopped.is_set():
                raise _StoppedError
            with self._lock:
                self._received += len(piece)
            progress.add(len(piece))
            yield piece

    def _json(self, content: bytes) -> Mapping[str, Any]:
        try:
            told = json.loads(content.decode())  # decode as UTF-8, because json.loads would guess the encoding
        except (ValueError, RecursionError) as error:
            raise self._unknown(f"a document is not JSON ({error})") from error
        if not isinstance(told, dict):
            raise self._unknown("a document is not a JSON object")
        return told

    def _unknown(self, why: str) -> PublishError:
        return PublishError(
            f"The answer of {self._client.repository} is not an image that envbuild can read: {why}.",
            code="unknown-format",
            hint="Try `docker pull`, which can read more kinds of images.",
        )


class _StoppedError(Exception):
    """Stops a transfer, because another layer failed or Ctrl-C was pressed."""


def _blob(told: Mapping[str, Any]) -> tuple[str, int]:
    size = told["size"]
    if not isinstance(size, int) or size < 0:
        raise ValueError(f"{size!r} is not the size of a blob")
    return _hex(told["digest"]), size


def _hex(digest: Any) -> str:
    """The hexadecimal digits of a digest. Raises ValueError if ``digest`` has another form."""
    found = re.fullmatch("sha256:([0-9a-f]{64})", str(digest))
    if found is None:
        raise ValueError(f"{digest!r} is not a digest")
    return found[1]


def _list(told: Mapping[str, Any]) -> str:
    """The digest of a layer's list of files; empty if the layer has no such list."""
    digest = str((told.get("annotations") or {}).get(estargz.ANNOTATION, "")).removeprefix("sha256:")
    return digest if re.fullmatch("[0-9a-f]{64}", digest) else ""


def _layer(kind: str, blob: tuple[str, int], diff_id: str, files: str) -> Layer:
    return Layer(digest=blob[0], diff_id=diff_id, size=blob[1], unpacked=0, media_type=kind, files=files)


def differs(repository: Repository, wanted: str) -> PublishError:
    """The error for content whose digest is not ``wanted``."""
    return PublishError(
        f"{repository} returned other data than {wanted}: the digest of the data does not match.",
        code="digest-differs",
        hint="Either a program between this machine and the registry changes the data, or the registry's disk is damaged. "
        "Tell the operator of the registry.",
    )
