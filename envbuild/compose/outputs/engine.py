"""Loads a composed image into a container engine, and sends only the layers that the engine lacks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from envbuild.compose.model import ComposedImage
from envbuild.compose.outputs import archive, manifest
from envbuild.compose.store import LayerStore
from envbuild.errors import FREE_SPACE, BuildError, says_disk_full
from envbuild.model.progress import OnProgress, Progress

if TYPE_CHECKING:
    from envbuild.engine.client import Engine

STAGE = "load"
_TRIES = 3  # how often an image is sent that another program removes at once
_TELLS_WHOLE = "1.47"  # since this version, Docker's API says which images have all their layers in the engine
_VERIFY = "A file in the layer store may be damaged. `envbuild cache verify` finds and removes it. Then run the command again."
# With containerd's image store, Docker reports success although it could not unpack an image
# (https://github.com/moby/moby/blob/v28.5.2/daemon/containerd/image_exporter.go).
_NOT_UNPACKED = "Error unpacking image"
Recall = Callable[[str], ComposedImage | None]  # image id → the image as it was loaded, if that is known
Present = Callable[[ComposedImage], frozenset[str]]  # the digests of the layers that the engine has


def load(
    engine: Engine,
    image: ComposedImage,
    store: LayerStore,
    references: Sequence[str],
    on_progress: OnProgress,
    *,
    recall: Recall = lambda _id: None,
) -> str:
    """Load ``image``, give it the names ``references``, and return its id in this engine.

    Layers that Docker has are not sent (see :func:`present`). Podman needs the whole archive. The image gets the names only
    after it is complete. Raises :class:`BuildError` (``no-space``, ``load-failed``).
    """
    with store.in_use():
        if not skips_layers_it_has(engine):
            send(engine, image, store, references, on_progress)
            return _id(engine, references[0])
        own = image_id(engine, image)
        if not _is_whole(engine, own):
            _send_whole(engine, image, store, on_progress, recall)
    for reference in references:
        engine.tag(own, reference)
    return own


def _send_whole(engine: Engine, image: ComposedImage, store: LayerStore, on_progress: OnProgress, recall: Recall) -> None:
    """Make Docker load ``image`` without a name, and check that Docker then has all of its layers.

    Another program may remove a layer or the image meanwhile, for example `docker image prune`. Then all layers are sent again,
    if the store has them.
    containerd's image store accepts an image that lacks a layer; such an image is removed.
    """
    own = image_id(engine, image)
    had, held = engine.image(own) is not None, present(engine, recall)(image)
    for _ in range(_TRIES):
        try:
            send(engine, image, store, (), on_progress, without=held)
        except BuildError as error:
            if not held or error.code != "load-failed" or not all(store.has(layer) for layer in image.layers):
                raise
        if _is_whole(engine, own):
            return
        if not held and engine.image(own) is not None:
            if not had:
                engine.remove_unused(own)
            raise _not_loaded("afterwards, it lacks a layer of the image", hint=_VERIFY)
        held = frozenset()
    raise _not_loaded(
        "another program, such as `docker image prune`, removes the image each time",
        hint="Run the command again when that program has ended.",
    )


def image_id(engine: Engine, image: ComposedImage) -> str:
    """Return the id that Docker gives to ``image``.

    This is the digest of the configuration, or, with containerd's image store, the digest of the manifest.
    """
    document = manifest.manifest(image) if engine.image_store == "containerd" else manifest.config(image)
    return f"sha256:{document.digest}"


def _is_whole(engine: Engine, image: str) -> bool:
    """Whether Docker has the image whose id is ``image``, with all of its layers."""
    return image in _whole_images(engine) if engine.image_store == "containerd" else engine.image(image) is not None


def present(engine: Engine, recall: Recall) -> Present:
    """Ask Docker which layers it has now. The returned function takes an image, and returns the digests of those of its layers.

    Docker's own image store does not read the files of layers that it already has. containerd's image store needs layers with
    the same compressed bytes; ``recall`` tells which layers an image with a certain id was loaded with.
    """
    if engine.image_store == "docker":
        known = chains(engine)
        return lambda image: present_layers(image, known)
    images = filter(None, map(recall, _whole_images(engine)))
    held = frozenset(layer.digest for image in images for layer in image.layers)
    return lambda image: held.intersection(layer.digest for layer in image.layers)


def _whole_images(engine: Engine) -> set[str]:
    """The ids of the images that have all their layers in containerd's image store."""
    from requests import RequestException

    api: Any = engine.client.api
    try:
        answer = api.get(f"{api.base_url}/v{api.api_version}/images/json", params={"all": 1, "manifests": 1})
        answer.raise_for_status()
    except RequestException:
        return set()
    return {
        str(each["Id"])
        for each in answer.json()
        if each.get("Manifests") and all(part.get("Available") for part in each["Manifests"] if part.get("Kind") == "image")
    }


def chains(engine: Engine) -> list[tuple[str, ...]]:
    """Return the diff ids of the layers of each image in the engine, lowest first. These lists tell which layers the engine
    has."""
    api: Any = engine.client.api
    images = [engine.image(listed["Id"]) for listed in api.images(all=True)]
    return [image.layers for image in images if image]


def present_layers(image: ComposedImage, known: Sequence[tuple[str, ...]]) -> frozenset[str]:
    """The digests of the layers of ``image`` that the engine has. A layer counts only if the engine also has all layers below
    it."""
    wanted = [f"sha256:{layer.diff_id}" for layer in image.layers]
    longest = max((_common(layers, wanted) for layers in known), default=0)
    above = {layer.digest for layer in image.layers[longest:]}
    return frozenset(layer.digest for layer in image.layers[:longest]) - above


def _common(left: Sequence[str], right: Sequence[str]) -> int:
    """Return how many layers two images have in common, counted from the lowest layer."""
    pairs = enumerate(zip(left, right, strict=False))
    return next((index for index, (one, other) in pairs if one != other), min(len(left), len(right)))


def skips_layers_it_has(engine: Engine) -> bool:
    """Whether an archive for this engine may omit layers that the engine has.

    True for Docker with its own image store. With containerd's image store, Docker must say which images have all their layers,
    as it does since 27.2 (https://docs.docker.com/reference/api/engine/version-history/#v147-api-changes). False for Podman.
    """
    from docker.utils import version_gte

    tells_whole = engine.image_store == "containerd" and version_gte(engine.client.api.api_version, _TELLS_WHOLE)
    return engine.image_store == "docker" or tells_whole


def send(
    engine: Engine,
    image: ComposedImage,
    store: LayerStore,
    references: Sequence[str],
    on_progress: OnProgress,
    *,
    without: frozenset[str] = frozenset(),
) -> None:
    """Make the engine load the archive of ``image``. ``without`` has the digests of layers that the engine already has. Raises
    :class:`BuildError`.

    Layers are sent compressed, as they are in the store. Docker 20.10 would not load uncompressed layers faster: the time for
    decompression would be saved, but more bytes would be written.
    """
    from docker.errors import DockerException
    from requests import RequestException

    wanted = [layer for layer in archive.layers_once(image) if layer.digest not in without]
    sent = _Counter(float(sum(layer.size for layer in wanted)), on_progress)
    try:
        api: Any = engine.client.api
        stream = sent.bytes_of(archive.pieces(image, store, references, without=without, checked=False))
        with contextlib.closing(stream):
            for news in api.load_image(stream, quiet=False):
                words = str(news.get("error", news.get("stream", "")))
                if words.startswith(_NOT_UNPACKED):
                    for name in references or [image_id(engine, image)]:
                        engine.remove_image(name)
                if "error" in news or words.startswith(_NOT_UNPACKED):
                    raise _not_loaded(words, hint=_VERIFY)
                sent.taken(news)
    except (DockerException, RequestException) as error:
        raise _not_loaded(str(error)) from error


class _Counter:
    """Reports first how many bytes were sent, then how many bytes the engine has unpacked."""

    def __init__(self, total: float, on_progress: OnProgress) -> None:
        self._total = total
        self._on_progress = on_progress
        self._layers: dict[str, tuple[float, float]] = {}

    def bytes_of(self, pieces: Iterator[archive.Piece]) -> Generator[bytes, None, None]:
        """Yield the bytes to send, and report how many bytes of layers were sent."""
        done = 0
        for piece in pieces:
            if piece.of_layers:
                done += piece.of_layers
                self._tell("sending layers to the engine", float(done))
            yield piece.content

    def taken(self, news: dict[str, Any]) -> None:
        """Evaluate one line of the engine's answer."""
        detail = news.get("progressDetail") or {}
        if detail.get("total"):
            self._layers[str(news.get("id"))] = (float(detail["current"]), float(detail["total"]))
            self._tell("the engine unpacks layers", min(sum(done for done, _ in self._layers.values()), self._total))

    def _tell(self, message: str, done: float) -> None:
        self._on_progress(Progress(stage=STAGE, message=message, done=done, total=self._total, unit="bytes"))


def _id(engine: Engine, reference: str) -> str:
    found = engine.image(reference)
    if found is None:
        raise _not_loaded(f"afterwards, it has no image {reference}")
    return found.id


def _not_loaded(words: str, hint: str = "") -> BuildError:
    full = says_disk_full(words)
    return BuildError(
        f"The engine did not load the composed image ({' '.join(words.split())}).",
        code="no-space" if full else "load-failed",
        hint=FREE_SPACE if full else hint,
    )
