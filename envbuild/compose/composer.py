"""Composes the image of a lock: the builder makes the skeleton, and the layers of the wheels are inserted between the
skeleton's layers."""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from envbuild import files
from envbuild.compose import bytecode, downloads, engine_image, image, layer_jobs, layer_plan, overlaps, skeleton, wheel_layer
from envbuild.compose.downloads import Downloads
from envbuild.compose.layer_plan import Wheel, WheelLayer
from envbuild.compose.model import ComposedImage, Layer
from envbuild.compose.store import LayerStore
from envbuild.engine.client import Engine
from envbuild.errors import BuildError
from envbuild.index.thread_pool import DaemonPool, finished, result_of
from envbuild.model.lock import Lock, Prefix
from envbuild.model.progress import OnProgress, Progress
from envbuild.wrong_records import WrongRecord

_CONVERTERS = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Composed:
    """A composed image. ``layers`` is the number of its layers; ``made`` is the number of layers that this run added to the
    store."""

    image: ComposedImage
    layers: int
    made: int


@dataclass(kw_only=True)
class Composer:
    """Makes the image of ``lock``. ``build`` builds a stage of the skeleton. ``downloads`` may already be running.

    ``wheels`` is the folder for wheels that are built from source packages. ``created`` is the time of the image, in the form
    of RFC 3339. ``order`` maps the name of each prefix to the canonical names of its packages in the order of installation.
    ``wrong_records`` are the known errors in the RECORD of any wheel. ``recorded`` has layers that are known before they are
    made, by their keys.

    ``on_layer`` is called with a layer as soon as the layer can be read, but not with every layer of the image. If
    ``is_ordered`` is true, it is called with the lowest layer first; otherwise, the order is arbitrary. ``on_begin`` is called
    when the writing of a layer of a huge wheel (more than 50 MB) begins. ``check`` is called with the image id of the skeleton
    while wheels are still converted to layers; if ``check`` raises an error, the work ends. The engine builds the layers below
    the wheels. ``has_below`` says that the image is for this engine, and that this engine needs no file of these layers.
    Otherwise, these layers are copied into the store.
    """

    engine: Engine
    store: LayerStore
    lock: Lock
    build: skeleton.Build
    downloads: Downloads
    wheels: Path
    created: str
    order: Mapping[str, Sequence[str]]
    on_progress: OnProgress
    wrong_records: Sequence[WrongRecord] = ()
    recorded: Mapping[str, Layer] = field(default_factory=dict)
    on_layer: Callable[[Layer], None] = lambda _layer: None
    on_begin: layer_jobs.OnBegin | None = None
    check: Callable[[str], None] = lambda _skeleton: None
    is_ordered: bool = False
    has_below: bool = False
    _said: threading.Lock = field(default_factory=threading.Lock)
    _compiling: list[Future[None]] = field(default_factory=list)

    def compose(self) -> Composed:
        """Make the image, and put its layers into the store.

        If ``has_below`` is true, the layers below the wheels stay in the engine only; :func:`engine_image.complete` can copy
        them to the store later. Raises the errors of ``build``, ``check``, the downloads and the engine, and
        :class:`BuildError` (``no-bytecode``, ``bad-wheel``).
        """
        self.downloads.begin()
        foundation = DaemonPool(1).submit(lambda: self.build(skeleton.BELOW).id)
        upper = DaemonPool(1).submit(self._upper, foundation)
        with contextlib.ExitStack() as stack:
            planned = [layer for prefix in self.lock.prefixes for layer in self._planned(prefix, foundation)]
            lacking = [layer for layer in planned if self.store.find(layer.key) is None]
            jobs, making = self._begin_files(lacking, stack)
            diff_ids = skeleton.diff_ids(self.engine, result_of(foundation))
            below = [engine_image.unpacked_layer(diff_id) for diff_id in diff_ids]
            if not self.is_ordered:
                self._announce(planned, jobs)
            self._begin_compilers(making, result_of(foundation), stack)
            if self.is_ordered:
                held = {} if self.has_below else result_of(upper)[1]
                for layer in below if _is_unfinished(jobs) else ():
                    self.on_layer(held.get(layer.diff_id, layer))
            of_wheels = list(self._finished(planned, jobs, upper))
            on_top = list(self._on_top(planned, of_wheels))
            whole, kept = result_of(upper)
            for done in self._compiling:  # the threads read files that the end of the block removes
                result_of(done)
        layers = [
            *((kept.get(layer.diff_id, layer), "the Dockerfile, below its wheels") for layer in below),
            *zip(of_wheels, (layer.title for layer in planned), strict=True),
            *((layer, overlaps.TITLE) for layer in on_top),
            *((kept[diff_id], "the Dockerfile, above its wheels") for diff_id in whole.above),
        ]
        composed = image.image(layers, whole.settings, architecture=whole.architecture, created=self.created)
        return Composed(image=composed, layers=len(layers), made=len(jobs))

    def _upper(self, foundation: Future[str]) -> tuple[skeleton.Skeleton, dict[str, Layer]]:
        """Build and check the whole skeleton. Put those of its layers that are above the wheels into the store. Unless
        ``has_below`` is true, also store its layers below the wheels.

        Return the skeleton, and the stored layers by diff id.
        """
        whole = skeleton.skeleton(self.engine, result_of(foundation), self.build("").id)
        checked = DaemonPool(1).submit(self.check, whole.image)
        wanted = whole.above if self.has_below else (*whole.below, *whole.above)
        tell = engine_image.tell_nobody if self.is_ordered else self.on_layer
        kept = engine_image.keep_layers(self.engine, whole.image, wanted, self.store, tell)
        result_of(checked)
        return whole, kept

    def _finished(
        self, planned: Sequence[WheelLayer], jobs: Mapping[str, Future[Layer]], upper: Future[Any]
    ) -> Iterator[Layer]:
        """Yield the layers of the wheels, lowest first. Each layer is yielded as soon as this layer and all layers below it
        exist.

        ``upper`` is the job that runs :meth:`_upper`. If this job fails meanwhile, its error is raised at once, because further
        downloads of wheels would be useless.
        """
        for count, layer in enumerate(planned, 1):
            made = _awaited(jobs[layer.key], upper) if layer.key in jobs else self._stored(layer.key)
            self._tell(Progress(stage="build", message="writing layers", done=count, total=len(planned)))
            # If all layers exist already, do not send this layer alone: the whole image is then loaded as one archive.
            if self.is_ordered and _is_unfinished(jobs):
                self.on_layer(made)
            yield made

    def _on_top(self, planned: Sequence[WheelLayer], made: Sequence[Layer]) -> Iterator[Layer]:
        """Yield a top layer for each prefix that needs one. A prefix needs a top layer if its packages have different files at
        the same path, and a wrong file is in a higher layer than the right file."""
        for prefix in self.lock.prefixes:
            pairs = [(plan, layer) for plan, layer in zip(planned, made, strict=True) if plan.prefix == prefix]
            top = overlaps.layer_on_top([plan for plan, _ in pairs], [layer for _, layer in pairs], self.store)
            if top is not None:
                yield top

    def _announce(self, planned: Sequence[WheelLayer], jobs: Mapping[str, Future[Layer]]) -> None:
        """Call ``on_layer`` with each layer of wheels as soon as the layer is made. The order does not matter here: only an
        engine needs the lower layers first."""

        def tell(job: Future[Layer]) -> None:
            if job.exception() is None:
                self.on_layer(job.result())

        for layer in planned:
            if layer.key in jobs:
                jobs[layer.key].add_done_callback(tell)
            else:
                self.on_layer(self._stored(layer.key))

    def _stored(self, key: str) -> Layer:
        found = self.store.find(key)
        assert found is not None
        return found

    def _planned(self, prefix: Prefix, foundation: Future[str]) -> Sequence[WheelLayer]:
        """Plan the layers of wheels of ``prefix``. This method waits for the engine only if the lock does not identify the
        Python of the prefix, or if packages are built from source."""
        python = layer_plan.interpreter(self.lock, prefix) or self._ask_interpreter(prefix, result_of(foundation))
        wheels = [downloads.wheel(artifact) for artifact in prefix.artifacts if artifact.filename.endswith(".whl")]
        return layer_plan.wheel_layers(
            prefix, layer_plan.ranked([*wheels, *self._built(prefix, foundation)], self.order[prefix.name]), python
        )

    def _ask_interpreter(self, prefix: Prefix, foundation: str) -> str:
        """Ask the interpreter for its version, its build date and its compiler."""
        argv = [f"{prefix.path}/bin/python", "-c", "import sys; print(sys.version)"]
        done = self.engine.run(foundation, argv, entrypoint=[], network="none")
        if done.code != 0:
            raise BuildError(f"The Python of {prefix.path} does not start: {done.output.strip()[-300:]}", code="no-bytecode")
        return done.output

    def _built(self, prefix: Prefix, foundation: Future[str]) -> list[Wheel]:
        """Build the wheels of source packages in a stage of the skeleton, and return these wheels."""
        if not downloads.has_sdists(prefix):
            return []
        result_of(foundation)  # wait: otherwise, the engine would run the shared steps of both stages twice
        stage = self.build("sdists")
        folder = f"/wheels/{prefix.name}"
        done = self.engine.run(stage.id, ["true"], entrypoint=[], network="none", collect=[folder])
        found = []
        for path, content in sorted(done.files.items()):
            sha256 = hashlib.sha256(content).hexdigest()
            target = self.wheels / sha256 / Path(path).name
            if not target.is_file():
                files.write_atomic(target, content)
            found.append(Wheel(filename=target.name, sha256=sha256, size=len(content)))
            future: Future[Path] = Future()
            future.set_result(target)
            self.downloads.files[sha256] = future
        return found

    def _begin_files(
        self, lacking: Sequence[WheelLayer], stack: contextlib.ExitStack
    ) -> tuple[dict[str, Future[Layer]], list[tuple[Prefix, layer_jobs.LayerJobs]]]:
        """Start to make the layers that need no engine. Return the jobs of all layers by the key of the layer, and, for each
        prefix, the object that runs its jobs.

        ``stack`` closes the resources of the jobs.
        """
        writers = DaemonPool(_CONVERTERS)
        jobs: dict[str, Future[Layer]] = {layer.key: Future() for layer in lacking}
        found = []
        for prefix in self.lock.prefixes:
            layers = [layer for layer in lacking if layer.prefix == prefix]
            if layers:
                making = layer_jobs.LayerJobs(
                    layers={layer.key: layer for layer in layers},
                    downloads={wheel: self.downloads.files[wheel.sha256] for layer in layers for wheel in layer.wheels},
                    jobs=jobs,
                    writers=writers,
                    store=self.store,
                    opened=stack.enter_context(wheel_layer.OpenWheels(self.wrong_records)),
                    on_begin=self.on_begin,
                    recorded=self.recorded,
                )
                making.begin_files()
                found.append((prefix, making))
        return jobs, found

    def _begin_compilers(
        self, making: Sequence[tuple[Prefix, layer_jobs.LayerJobs]], foundation: str, stack: contextlib.ExitStack
    ) -> None:
        """Start to make the layers that contain bytecode. ``stack`` removes the containers of the compilers."""
        for prefix, layers in making:
            if layers.needs_bytecode:
                compiler = bytecode.compiler(self.engine, foundation, prefix, opened=layers.opened, on_progress=self._tell)
                started = stack.enter_context(compiler) if layers.needs_compiler else None
                self._compiling.append(DaemonPool(1).submit(layers.compile_all, started))

    def _tell(self, news: Progress) -> None:
        with self._said:
            self.on_progress(news)


def _is_unfinished(jobs: Mapping[str, Future[Layer]]) -> bool:
    return not all(job.done() for job in jobs.values())


def _awaited(job: Future[Layer], upper: Future[Any]) -> Layer:
    waited: Sequence[Future[Any]] = (upper, job)
    for done in finished(waited):
        if done is job:
            break
        done.result()
    return job.result()
