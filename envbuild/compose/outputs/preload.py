"""Loads the lower layers of an image into a container engine while higher layers are still being made."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any

from envbuild.compose.model import ComposedImage, Layer
from envbuild.compose.outputs import engine as engines
from envbuild.compose.store import LayerStore
from envbuild.errors import BuildError
from envbuild.model.progress import OnProgress

if TYPE_CHECKING:
    from envbuild.engine.client import Engine

_LABEL = "envbuild.partial"
_KEPT_FOR = timedelta(days=1)


class Preload:
    """Loads each new layer into the engine, together with the layers below it, as an image without a name.

    The engine keeps a layer only while an image uses it. The end of the ``with`` block removes the image without a name, so
    load the whole image inside the block, with :meth:`recall`. If the engine needs whole archives (see :func:`engine.load`),
    nothing is sent. ``recall`` tells with which layers another image was loaded.
    """

    def __init__(
        self, engine: Engine, store: LayerStore, on_progress: OnProgress, recall: engines.Recall = lambda _id: None
    ) -> None:
        self._engine = engine
        self._store = store
        self._on_progress = on_progress
        self._recall = recall
        self._layers: list[Layer] = []
        self._loaded: ComposedImage | None = None
        self._image = ""
        self._serves = engines.skips_layers_it_has(engine)
        self._present: engines.Present | None = None

    def __enter__(self) -> Preload:
        if self._serves:
            self._remove_old()
        return self

    def __exit__(self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None) -> None:
        self._replace("")

    def add(self, layer: Layer) -> None:
        """Load the next higher layer, unless the engine has it. Raises :class:`BuildError` (``no-space``).

        Other failures are ignored here, because loading the whole image later sends what is missing.
        """
        self._layers.append(layer)
        if not self._serves:
            return
        if self._present is None:  # query late: an image that was built meanwhile may have the lowest layers
            self._present = engines.present(self._engine, self._recall)
        image = _partial(self._layers)
        present = self._present(image) | self._sent()
        if all(each.digest in present for each in self._layers):
            return
        try:
            with self._store.in_use():
                engines.send(self._engine, image, self._store, (), self._on_progress, without=present)
        except BuildError as error:
            if error.code != "load-failed":
                raise
            self._serves = False
        else:
            self._loaded = image
            self._replace(engines.image_id(self._engine, image))

    def recall(self, image: str) -> ComposedImage | None:
        """The image with this id as it was loaded, if that is known."""
        return self._loaded if image == self._image else self._recall(image)

    def _sent(self) -> frozenset[str]:
        """The digests of the layers that this object has loaded into the engine.

        An image may contain the same layer twice. If only the lower one is loaded, its digest is not in the result, because
        Docker's own image store needs the file once more for the upper one.
        """
        layers = self._loaded.layers if self._loaded else ()
        return frozenset(layer.digest for layer in layers) - {layer.digest for layer in self._layers[len(layers) :]}

    def _replace(self, image: str) -> None:
        before, self._image = self._image, image
        if before:
            self._engine.remove_unused(before)

    def _remove_old(self) -> None:
        """Remove images without a name that killed processes left. Keep images of the last day: running processes may use
        them."""
        api: Any = self._engine.client.api
        for listed in api.images(all=True, filters={"label": _LABEL}):
            if datetime.fromtimestamp(int(listed["Created"]), UTC) < datetime.now(UTC) - _KEPT_FOR:
                self._engine.remove_unused(str(listed["Id"]))


def _partial(layers: list[Layer]) -> ComposedImage:
    config = {
        "architecture": "amd64",
        "os": "linux",
        "created": datetime.now(UTC).isoformat(),
        "config": {"Labels": {_LABEL: "a part of an image that envbuild was loading; it can be removed"}},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer.diff_id}" for layer in layers]},
    }
    return ComposedImage(config=json.dumps(config).encode(), layers=tuple(layers))
