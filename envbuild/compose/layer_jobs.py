"""Makes the layers of one prefix, each as soon as its wheels are downloaded and their bytecode is compiled."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, InvalidStateError, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from envbuild.compose import bytecode_cache, wheel_layer
from envbuild.compose.bytecode import Compiler
from envbuild.compose.growing import GrowingLayer
from envbuild.compose.layer import OtherLayerError
from envbuild.compose.layer_plan import Holds, Wheel, WheelLayer
from envbuild.compose.members import PartOfFile
from envbuild.compose.model import InstallPlace, Layer
from envbuild.compose.store import LayerStore
from envbuild.index.thread_pool import DaemonPool

# Called with the recorded layer (None if it is not recorded) and with the layer that is being written.
OnBegin = Callable[[Layer | None, GrowingLayer], object]

_READERS = 3  # wheels that are compiled at the same time; a huge wheel (more than 50 MB) is not counted


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerJobs:
    """The jobs that make ``layers``. ``jobs`` has a future for each layer, under the key of the layer. ``writers`` are threads
    that write to ``store``. ``on_begin`` gets each layer of a huge wheel (more than 50 MB) when the writing of this layer
    begins. ``recorded`` has layers that are known before they are made, by their keys."""

    layers: Mapping[str, WheelLayer]
    downloads: Mapping[Wheel, Future[Path]]
    jobs: Mapping[str, Future[Layer]]
    writers: DaemonPool
    store: LayerStore
    opened: wheel_layer.OpenWheels
    on_begin: OnBegin | None = None
    recorded: Mapping[str, Layer] = field(default_factory=dict)
    kept: dict[Wheel, dict[str, PartOfFile]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for layer in self.layers.values():
            for wheel in layer.wheels if layer.holds != "files" else ():
                kept = bytecode_cache.find(self.store, layer, wheel)
                if kept is not None:
                    self.kept[wheel] = kept

    @property
    def needs_bytecode(self) -> bool:
        """Whether any of the layers contains bytecode."""
        return any(layer.holds != "files" for layer in self.layers.values())

    @property
    def needs_compiler(self) -> bool:
        """Whether the store lacks the bytecode of at least one wheel."""
        return any(not self.kept.keys() >= set(layer.wheels) for layer in self.layers.values() if layer.holds != "files")

    def begin_files(self) -> None:
        """Write each layer that holds no bytecode, as soon as its wheel is downloaded."""
        for layer in self.layers.values():
            if layer.holds == "files":
                (wheel,) = layer.wheels
                self.downloads[wheel].add_done_callback(functools.partial(self._begin, layer, {}))

    def compile_all(self, compiler: Compiler | None) -> None:
        """Compile the wheels as they arrive, a few at the same time, and write each layer as soon as it is complete.

        If the store has the bytecode of a wheel, that bytecode is used. ``compiler`` is None if the store has the bytecode of
        all wheels.
        """
        pool = DaemonPool(_READERS + 1)
        try:
            waiting = [layer for layer in self.layers.values() if layer.holds != "files"]
            layer_of = {wheel: layer for layer in waiting for wheel in layer.wheels}
            code: dict[Wheel, dict[str, PartOfFile]] = {}
            arrived: list[Wheel] = []
            left: dict[Future[Any], Wheel] = {self.downloads[wheel]: wheel for wheel in layer_of}
            while left:
                for done in wait(left, return_when=FIRST_COMPLETED).done:
                    wheel, result = left.pop(done), done.result()
                    if done is not self.downloads[wheel]:
                        code[wheel] = result
                    elif wheel in self.kept:
                        code[wheel] = self.kept[wheel]
                    else:
                        arrived.append(wheel)
                # The largest wheel comes first: if it came last, its bytecode would be written and sent by one core alone.
                arrived.sort(key=lambda wheel: wheel.size)
                compiling = [layer_of[wheel].holds for done, wheel in left.items() if done is not self.downloads[wheel]]
                while arrived and _may_begin(layer_of[arrived[-1]].holds, compiling):
                    wheel = arrived.pop()
                    compiling.append(layer_of[wheel].holds)
                    assert compiler is not None
                    compiled = functools.partial(compiler.compiled, self.downloads[wheel].result())
                    left[pool.submit(bytecode_cache.keep, self.store, layer_of[wheel], wheel, compiled)] = wheel
                for layer in [layer for layer in waiting if code.keys() >= set(layer.wheels)]:
                    waiting.remove(layer)
                    self._begin(layer, {path: part for wheel in layer.wheels for path, part in code[wheel].items()})
            if compiler is not None:
                compiler.workshop.close()
        except BaseException as error:  # raised again where the result is read
            for job in self.jobs.values():
                with contextlib.suppress(InvalidStateError):
                    job.set_exception(error)

    def _begin(self, layer: WheelLayer, code: wheel_layer.Bytecode, _download: Future[Path] | None = None) -> None:
        self.writers.submit(self._write, layer, code)

    def _write(self, layer: WheelLayer, code: wheel_layer.Bytecode) -> None:
        job = self.jobs[layer.key]
        try:
            wheels = [] if layer.holds == "bytecode" else [self.downloads[wheel].result() for wheel in layer.wheels]
            made = self._add(layer, wheels, code)
            with contextlib.suppress(InvalidStateError):
                job.set_result(made)
        except BaseException as error:  # raised again where the result is read
            with contextlib.suppress(InvalidStateError):
                job.set_exception(error)

    def _add(self, layer: WheelLayer, wheels: Sequence[Path], code: wheel_layer.Bytecode) -> Layer:
        prefix = layer.prefix
        place = InstallPlace(prefix=prefix.path, python=prefix.python.version, installer=prefix.backend)
        requested = [(path, True) for path in wheels]

        def add(recorded: Layer | None) -> Layer:
            def write(stream: BinaryIO) -> Layer:
                return wheel_layer.write(stream, requested, place, code, self.opened, recorded=recorded)

            watch = functools.partial(self.on_begin, recorded) if self.on_begin and layer.holds == "files" else None
            return self.store.add(layer.key, write, about=layer.title, watch=watch)

        try:
            return add(self.recorded.get(layer.key))
        except OtherLayerError:
            return add(None)


def _may_begin(holds: Holds, compiling: Sequence[Holds]) -> bool:
    """Whether a wheel may be compiled now. A huge wheel begins at once, and smaller wheels that arrive later wait for its end.

    ``holds`` and ``compiling`` say what the layers of this wheel and of the wheels that are being compiled hold.
    """
    if "bytecode" in compiling:
        return False
    return holds == "bytecode" or len(compiling) < _READERS
