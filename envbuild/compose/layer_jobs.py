"""Makes the layers of one prefix, each as soon as its wheels are downloaded and their bytecode is compiled."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, InvalidStateError, wait
from dataclasses import dataclass, field
from pathlib import Path

from envbuild.compose import kept_bytecode, wheel_layer
from envbuild.compose.bytecode import Compiler
from envbuild.compose.members import PartOfFile
from envbuild.compose.model import InstallPlace, Layer
from envbuild.compose.plan import Wheel, WheelLayer
from envbuild.compose.store import LayerStore, Watch
from envbuild.index.thread_pool import DaemonPool


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerJobs:
    """The jobs that make ``layers``. ``jobs`` are their results, by the same keys; ``writers`` are threads that write to
    ``store``. ``on_begin`` gets each layer of a huge wheel when its writer begins."""

    layers: Mapping[str, WheelLayer]
    downloads: Mapping[Wheel, Future[Path]]
    jobs: Mapping[str, Future[Layer]]
    writers: DaemonPool
    store: LayerStore
    opened: wheel_layer.OpenWheels
    on_begin: Watch | None = None
    kept: dict[Wheel, dict[str, PartOfFile]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for layer in self.layers.values():
            for wheel in layer.wheels if layer.holds != "files" else ():
                kept = kept_bytecode.find(self.store, layer, wheel)
                if kept is not None:
                    self.kept[wheel] = kept

    @property
    def needs_bytecode(self) -> bool:
        """Whether a layer holds bytecode."""
        return any(layer.holds != "files" for layer in self.layers.values())

    @property
    def needs_compiler(self) -> bool:
        """Whether the store lacks the bytecode of a wheel."""
        return any(not self.kept.keys() >= set(layer.wheels) for layer in self.layers.values() if layer.holds != "files")

    def begin_files(self) -> None:
        """Write each layer without bytecode as soon as its wheels are downloaded."""
        for layer in self.layers.values():
            if layer.holds == "files":
                (wheel,) = layer.wheels
                self.downloads[wheel].add_done_callback(functools.partial(self._begin, layer, {}))

    def compile_all(self, compiler: Compiler | None) -> None:
        """Compile the wheels as they arrive, several in one run if possible, and write each layer as soon as it is complete.

        Bytecode that the store has is taken from there. ``compiler`` is None if the store has all of it. New bytecode is kept
        by another thread, so that the next wheels need not wait for it.
        """
        keeper = DaemonPool(1)
        keeping: list[Future[None]] = []
        try:
            waiting = [layer for layer in self.layers.values() if layer.holds != "files"]
            layer_of = {wheel: layer for layer in waiting for wheel in layer.wheels}
            left = {self.downloads[wheel]: wheel for wheel in layer_of}
            code: dict[Wheel, dict[str, PartOfFile]] = {}
            while left:
                arrived, _ = wait(left, return_when=FIRST_COMPLETED)
                batch = [wheel for download, wheel in left.items() if download in arrived]
                left = {download: wheel for download, wheel in left.items() if download not in arrived}
                new = self._compiled(compiler, [wheel for wheel in batch if wheel not in self.kept])
                code |= new | {wheel: self.kept[wheel] for wheel in batch if wheel in self.kept}
                for layer in [layer for layer in waiting if code.keys() >= set(layer.wheels)]:
                    waiting.remove(layer)
                    self._begin(layer, {path: part for wheel in layer.wheels for path, part in code[wheel].items()})
                for wheel, made in new.items():
                    keeping.append(keeper.submit(kept_bytecode.keep, self.store, layer_of[wheel], wheel, made))
            if compiler is not None:
                compiler.workshop.close()
            for done in keeping:
                done.result()
        except BaseException as error:  # reading the result raises it again
            for job in self.jobs.values():
                with contextlib.suppress(InvalidStateError):
                    job.set_exception(error)

    def _compiled(self, compiler: Compiler | None, wheels: Sequence[Wheel]) -> dict[Wheel, dict[str, PartOfFile]]:
        if not wheels:
            return {}
        assert compiler is not None
        return dict(zip(wheels, compiler.compiled([self.downloads[wheel].result() for wheel in wheels]), strict=True))

    def _begin(self, layer: WheelLayer, code: wheel_layer.Bytecode, _download: Future[Path] | None = None) -> None:
        self.writers.submit(self._write, layer, code)

    def _write(self, layer: WheelLayer, code: wheel_layer.Bytecode) -> None:
        job = self.jobs[layer.key]
        try:
            wheels = [] if layer.holds == "bytecode" else [self.downloads[wheel].result() for wheel in layer.wheels]
            made = self._add(layer, wheels, code)
            with contextlib.suppress(InvalidStateError):
                job.set_result(made)
        except BaseException as error:  # reading the result raises it again
            with contextlib.suppress(InvalidStateError):
                job.set_exception(error)

    def _add(self, layer: WheelLayer, wheels: Sequence[Path], code: wheel_layer.Bytecode) -> Layer:
        prefix = layer.prefix
        place = InstallPlace(prefix=prefix.path, python=prefix.python.version, installer=prefix.backend)
        return self.store.add(
            layer.key,
            lambda stream: wheel_layer.write(stream, [(path, True) for path in wheels], place, code, self.opened),
            about=layer.title,
            watch=self.on_begin if layer.holds == "files" else None,
        )
