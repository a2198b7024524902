"""Downloads the wheels of a lock, several at a time, while other parts of the image are made."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path

from envbuild.compose import layer_plan
from envbuild.compose.layer_plan import Wheel
from envbuild.compose.store import LayerStore
from envbuild.index.thread_pool import DaemonPool
from envbuild.model.lock import Artifact, Lock, Prefix
from envbuild.model.progress import OnProgress, Progress

_AT_A_TIME = 4


Fetch = Callable[[Artifact, OnProgress], Path]


@dataclass(kw_only=True, slots=True)
class Downloads:
    """The downloads of the wheels of ``lock``. ``fetch`` downloads and checks a file.

    ``files`` has a future for each wheel, by the sha256 of the wheel. The result of the future is the path of the downloaded
    file. ``order`` maps the name of each prefix to the canonical names of its packages in the order of installation.
    """

    lock: Lock
    store: LayerStore
    order: Mapping[str, Sequence[str]]
    fetch: Fetch
    on_progress: OnProgress
    files: dict[str, Future[Path]] = field(default_factory=dict)
    _bytes: dict[str, float] = field(default_factory=dict)
    _said: threading.Lock = field(default_factory=threading.Lock)

    def begin(self) -> None:
        """Start to fetch the wheels of all layers that the store lacks. For each prefix, start with the largest wheel.

        A second call also fetches wheels whose layers were removed from the store since the first call.
        """
        pool = DaemonPool(_AT_A_TIME)
        for prefix in self.lock.prefixes:
            wanted = to_fetch(self.lock, prefix, self.order, lambda key: self.store.find(key) is not None)
            for artifact in sorted(wanted, key=lambda each: -(each.size or 0)):
                if artifact.sha256 not in self.files:
                    self.files[artifact.sha256] = pool.submit(self._fetch, artifact)

    def _fetch(self, artifact: Artifact) -> Path:
        def tell(news: Progress) -> None:
            with self._said:
                self._bytes[artifact.sha256] = news.done or 0.0
                done = sum(self._bytes.values())
                self.on_progress(Progress(stage="build", message="downloading wheels", done=done, unit="bytes"))

        return self.fetch(artifact, tell)


def to_fetch(
    lock: Lock, prefix: Prefix, order: Mapping[str, Sequence[str]], is_stored: Callable[[str], bool]
) -> list[Artifact]:
    """Return the wheels of ``prefix`` whose layers must be made. ``is_stored`` says whether the store has the layer of a key.

    If the lock does not pin the interpreter of a prefix, or some packages are built from source, the layers of the prefix are
    not known yet. All wheels of such a prefix are returned. ``order`` is that of :class:`Downloads`.
    """
    pinned = [artifact for artifact in prefix.artifacts if artifact.filename.endswith(".whl")]
    python = layer_plan.interpreter(lock, prefix)
    if python is None or has_sdists(prefix):
        return pinned
    wheels = layer_plan.ranked(map(wheel, pinned), order[prefix.name])
    layers = layer_plan.wheel_layers(prefix, wheels, python)
    wanted = {each.sha256 for layer in layers if not is_stored(layer.key) for each in layer.wheels}
    return [artifact for artifact in pinned if artifact.sha256 in wanted]


def has_sdists(prefix: Prefix) -> bool:
    """Whether at least one package of ``prefix`` is built from source."""
    return any(not artifact.filename.endswith(".whl") for artifact in prefix.artifacts)


def wheel(artifact: Artifact) -> Wheel:
    """Convert a pinned wheel to a :class:`Wheel`, the class that plans of layers use."""
    return Wheel(filename=artifact.filename, sha256=artifact.sha256, size=artifact.size or 0)
