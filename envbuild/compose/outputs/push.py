"""Pushes a composed image from the layer store directly to a registry, and sends only what the registry lacks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from types import TracebackType

from envbuild.compose.growing import GrowingLayer
from envbuild.compose.model import ComposedImage, Layer
from envbuild.compose.outputs import archive, credentials, digests, manifest
from envbuild.compose.outputs.registry_client import Client, parse
from envbuild.compose.outputs.registry_errors import tag_moved, tag_taken
from envbuild.compose.outputs.registry_requests import Body
from envbuild.compose.outputs.transfer_progress import TransferProgress
from envbuild.compose.store import LayerStore
from envbuild.errors import PublishError
from envbuild.index.thread_pool import DaemonPool, finished
from envbuild.model.progress import OnProgress, Progress, ignore_progress

STAGE = "push"
BeforeMoving = Callable[[Client, manifest.Document], None]
_AT_ONCE = 3  # layers that are sent at the same time, as many as docker sends
_NOT_MOUNTED = (400, 403, 404, 405)  # as if this user may not read the other repository; then the layer is sent instead
_FOLLOWED = 2  # layers of wheels that are sent while they are being written
PATIENCE_S = 10.0  # seconds that an interrupted push waits for running transfers


@dataclass(frozen=True, kw_only=True, slots=True)
class Pushed:
    """The result of a push. ``digest`` names the image in the registry; ``sent`` is the number of bytes that were sent.
    ``present`` is the number of layers that the repository already had. ``mounted`` is the number of layers that the registry
    copied from another repository. ``tags`` are the tags that the image did not have before this push."""

    digest: str
    sent: int
    layers: int
    present: int
    mounted: int
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Tags:
    """The tags of a push. A ``moving`` tag may be taken from another image; the first of them is set last. It is an error if
    another image has a ``fixed`` tag."""

    moving: Sequence[str] = ()
    fixed: Sequence[str] = ()


def push(
    image: ComposedImage,
    store: LayerStore,
    to: str,
    tags: Tags,
    on_progress: OnProgress,
    *,
    mount_from: Sequence[str] = (),
    before_moving: BeforeMoving = lambda _client, _manifest: None,
    pause: Callable[[float], object] | None = None,
) -> Pushed:
    """Push ``image`` to the repository ``to`` (``HOST/REPOSITORY``) under its tags.

    If the registry has a layer, the store need not have it. ``mount_from`` names other repositories of the same registry. If
    such a repository has a layer of the image, the registry copies it, and it is not sent. Tags are set last, when the registry
    has all layers. The next push after an interrupted one sends only the missing layers. ``before_moving`` is called after the
    fixed tags are set and before a moving tag moves. It is called even if no tag must be set. Raises :class:`PublishError`, and
    :class:`BuildError` if the store lacks a layer that must be sent.
    """
    repository = parse(to)
    stopped = threading.Event()

    def tell(words: str) -> None:
        on_progress(Progress(stage=STAGE, message=words, warning=True))

    client = Client(
        repository,
        credentials.find(repository.host),
        also_read=tuple(mount_from),
        has_layers=True,
        pause=pause or stopped.wait,
        on_retry=tell,
    )
    try:
        with store.in_use():
            made = _Push(client, image, store, mount_from=tuple(mount_from), on_progress=on_progress, stopped=stopped)
            return made.run(tags, before_moving)
    finally:
        client.close()


class EarlyPush:
    """Sends layers to a repository while higher layers are still being made.

    Failures are ignored here: :func:`push` later asks the registry about every layer again, and reports errors.
    """

    def __init__(self, store: LayerStore, to: str, on_progress: OnProgress = ignore_progress) -> None:
        repository = parse(to)

        def tell(words: str) -> None:
            on_progress(Progress(stage=STAGE, message=words, warning=True))

        self._stopped = threading.Event()
        self._client = Client(
            repository, credentials.find(repository.host), has_layers=True, pause=self._stopped.wait, on_retry=tell
        )
        nothing = ComposedImage(config=b"{}", layers=())
        self._push = _Push(self._client, nothing, store, mount_from=(), on_progress=ignore_progress, stopped=self._stopped)
        self._pool = DaemonPool(_AT_ONCE)
        self._followers = DaemonPool(_FOLLOWED)
        self._sending: list[Future[None]] = []
        self._following: list[tuple[GrowingLayer, Future[None]]] = []
        self._refused = False

    def __enter__(self) -> EarlyPush:
        return self

    def __exit__(self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None) -> None:
        if kind is not None:
            self._stopped.set()
            wait([*self._sending, *(done for _, done in self._following)], timeout=PATIENCE_S)
        self._client.close()

    def require_access(self, tag: str) -> None:
        """Raise :class:`PublishError` if the registry does not answer a query for ``tag``. Call this before any layer is
        made."""
        self._push.digest_of(tag)

    def add(self, layer: Layer) -> None:
        """Begin to send ``layer``. The store must have it."""
        self._sending.append(self._pool.submit(self._send, layer))

    def follow(self, recorded: Layer | None, growing: GrowingLayer) -> None:
        """Begin to send a layer that is still being written. Call :meth:`add` when the store has the complete layer.

        The digest of a ``recorded`` layer is known in advance: if the registry has this layer, nothing is sent. The digest of
        any other layer is known only when the layer is complete. If the registry then turns out to have it, the bytes were sent
        for nothing. If the registry refuses one such upload, no other such upload is tried.
        """
        self._following.append((growing, self._followers.submit(self._follow, recorded, growing)))

    def _follow(self, recorded: Layer | None, growing: GrowingLayer) -> None:
        def digest() -> str:
            assert growing.layer is not None
            return growing.layer.digest

        def pieces() -> Iterator[bytes]:
            is_asked = False
            for piece in growing.pieces():
                asks, is_asked = growing.layer is not None and not is_asked, growing.layer is not None
                if self._stopped.is_set() or (asks and digests.has_blob(self._client, digest())):
                    raise _StoppedError
                yield piece

        with growing:
            if self._refused or growing.layer is not None:
                return  # `add` later sends the whole layer, if the registry lacks it
            if recorded is not None and digests.has_blob(self._client, recorded.digest):
                return
            try:
                self._client.upload_unfinished(pieces, digest)
            except PublishError:
                self._refused = True
                raise

    def _send(self, layer: Layer) -> None:
        wait([done for growing, done in list(self._following) if growing.layer == layer])
        self._push.send(layer)

    def finish(self) -> None:
        """Wait until all layers are sent."""
        for _ in finished(self._sending):
            pass


@dataclass(frozen=True, kw_only=True, slots=True)
class Lacking:
    """What a push would do: the ``tags`` to set, the number of ``layers`` to send, and the sum of their sizes (``size``, in
    bytes).

    ``digest`` names the image, and ``all_layers`` is the number of all its layers.
    """

    tags: tuple[str, ...]
    layers: int
    size: int
    digest: str
    all_layers: int


def compare(image: ComposedImage, store: LayerStore, to: str, tags: Tags, also: BeforeMoving) -> Lacking:
    """Return what :func:`push` would send, but write nothing to the registry. ``also`` is called in place of ``before_moving``.
    Raises the same errors as :func:`push`."""
    repository = parse(to)
    client = Client(repository, credentials.find(repository.host), writes=False)
    try:
        compared = _Push(client, image, store, mount_from=(), on_progress=ignore_progress, stopped=threading.Event())
        return compared.compare(tags, also)
    finally:
        client.close()


class _Push:
    def __init__(
        self,
        client: Client,
        image: ComposedImage,
        store: LayerStore,
        *,
        mount_from: tuple[str, ...],
        on_progress: OnProgress,
        stopped: threading.Event,
    ) -> None:
        self._client = client
        self._image = image
        self._store = store
        self._mount_from = mount_from
        self._told = manifest.manifest(image)
        self._digest = f"sha256:{self._told.digest}"
        self._seen: dict[str, str] = {}
        self._lock = threading.Lock()
        self._stopped = stopped
        self._sent = self._present = self._mounted = 0
        self._progress = TransferProgress(
            on_progress,
            stage=STAGE,
            message=f"pushing to {client.repository}",
            total=sum(layer.size for layer in archive.layers_once(image)),
        )

    def run(self, tags: Tags, before_moving: BeforeMoving) -> Pushed:
        layers = archive.layers_once(self._image)
        missing = self._tags_to_set(tags)
        if missing:
            self._send_layers(layers)
            self._send_config()
        else:
            self._present = len(layers)
        for tag in missing:
            if tag in tags.fixed:
                self._set_fixed(tag)
        before_moving(self._client, self._told)
        moving = [tag for tag in missing if tag not in tags.fixed]
        for tag in tags.fixed if moving else ():  # another client may have set a fixed tag meanwhile
            if (there := self.digest_of(tag)) != self._digest:
                raise tag_taken(self._client.repository, tag, there)
        for tag in reversed(moving):  # the first one last, so that whoever sees it set knows that all are set
            self._move(tag)
        for tag in moving:
            if (there := self.digest_of(tag)) != self._digest:
                raise tag_moved(self._client.repository, tag, there)
        return Pushed(
            digest=self._digest,
            sent=self._sent,
            layers=len(layers),
            present=self._present,
            mounted=self._mounted,
            tags=tuple(missing),
        )

    def compare(self, tags: Tags, also: BeforeMoving) -> Lacking:
        missing = self._tags_to_set(tags)
        layers = [layer for layer in archive.layers_once(self._image) if missing and not self._is_there(layer)]
        also(self._client, self._told)
        size = sum(layer.size for layer in layers)
        every = len(archive.layers_once(self._image))
        return Lacking(tags=tuple(missing), layers=len(layers), size=size, digest=self._digest, all_layers=every)

    def _tags_to_set(self, tags: Tags) -> list[str]:
        """The tags that this image does not have yet. If the result is empty, the registry has all layers of the image."""
        wanted = []
        for tag in dict.fromkeys([*tags.fixed, *tags.moving]):
            there = self._seen[tag] = self.digest_of(tag)
            if there == self._digest:
                continue
            if there and tag in tags.fixed:
                raise tag_taken(self._client.repository, tag, there)
            wanted.append(tag)
        return wanted

    def _set_fixed(self, tag: str) -> None:
        """Set a fixed tag. Raises an error if another client has set it since this push began: sending the layers can take
        hours."""
        there = self.digest_of(tag)
        if there not in ("", self._digest):
            raise tag_taken(self._client.repository, tag, there)
        self._set(tag)

    def _move(self, tag: str) -> None:
        """Set a moving tag. Raises an error if another client has moved it since this push began."""
        there = self.digest_of(tag)
        if there not in (self._seen[tag], self._digest):
            raise tag_moved(self._client.repository, tag, there)
        self._set(tag)

    def digest_of(self, tag: str) -> str:
        """The digest of the image that has ``tag``; empty if there is none."""
        return digests.of_tag(self._client, tag)

    def _send_layers(self, layers: Sequence[Layer]) -> None:
        largest_first = sorted(layers, key=lambda layer: -layer.size)
        pool = DaemonPool(_AT_ONCE)
        futures = [pool.submit(self.send, layer) for layer in largest_first]
        try:
            for future in finished(futures):
                future.result()
        except BaseException:  # an error or Ctrl-C: transfers end after one more piece; do not wait for a silent registry
            self._stopped.set()
            wait(futures, timeout=PATIENCE_S)
            raise

    def send(self, layer: Layer) -> None:
        """Send a layer unless the registry has it."""
        if self._stopped.is_set():
            raise _StoppedError
        if not self._is_there(layer):
            try:
                self._client.upload(layer.digest, Body(layer.size, _Pieces(self, layer)))
            except PublishError:
                for _ in self._store.read(layer):  # raises an error if the stored layer is damaged
                    pass
                raise

    def _is_there(self, layer: Layer) -> bool:
        """Whether the repository has the layer. If a repository in ``mount_from`` has the layer, the registry copies it now."""
        client = self._client
        digest = f"sha256:{layer.digest}"
        if digests.has_blob(client, layer.digest):
            self._skip(layer, mounted=False)
            return True
        for source in self._mount_from:
            answer = client.ask("POST", client.url(f"blobs/uploads/?mount={digest}&from={source}"), (201, 202, *_NOT_MOUNTED))
            if answer.status_code == 201:
                self._skip(layer, mounted=True)
                return True
        return False

    def _skip(self, layer: Layer, *, mounted: bool) -> None:
        with self._lock:
            self._mounted += mounted
            self._present += not mounted
        self.count(layer.size)

    def read(self, layer: Layer) -> Iterator[bytes]:
        """Yield the bytes of a layer until the push is stopped. The registry computes the digest, and refuses wrong bytes."""
        for piece in self._store.read(layer, checked=False):
            if self._stopped.is_set():
                raise _StoppedError
            yield piece

    def count(self, size: int, sent: int = 0) -> None:
        """Add ``size`` (may be negative) to the bytes that the registry has, and ``sent`` to the bytes that were sent."""
        with self._lock:
            self._sent += sent
        self._progress.add(size)

    def _send_config(self) -> None:
        own = manifest.config(self._image)
        client = self._client
        if not digests.has_blob(client, own.digest):
            client.upload(own.digest, own.content)

    def _set(self, tag: str) -> None:
        client = self._client
        headers = {"Content-Type": manifest.MANIFEST}
        answer = client.ask("PUT", client.url(f"manifests/{tag}"), (201,), headers=headers, body=self._told.content)
        digest = answer.headers.get("Docker-Content-Digest", self._digest)
        if digest != self._digest:
            raise PublishError(
                f"{client.repository}:{tag} got the digest {digest} instead of {self._digest}.",
                code="digest-differs",
                hint="A program between this machine and the registry changes the data. Check the proxy.",
            )


class _StoppedError(Exception):
    """Stops a transfer, because another layer failed or Ctrl-C was pressed."""


class _Pieces:
    """Reads a layer again for each attempt to send it. The bytes of a failed attempt are subtracted from the progress."""

    def __init__(self, push: _Push, layer: Layer) -> None:
        self._push = push
        self._layer = layer
        self._counted = 0

    def __call__(self) -> Iterator[bytes]:
        self._push.count(-self._counted)
        self._counted = 0
        for piece in self._push.read(self._layer):
            yield piece
            self._counted += len(piece)
            self._push.count(len(piece), sent=len(piece))
