"""Compile the modules of wheels to bytecode with the image's own interpreter. One container compiles many wheels."""

from __future__ import annotations

import contextlib
import struct
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from queue import Empty, SimpleQueue

from envbuild.compose import compile_program, wheel_layer
from envbuild.compose.layer import EPOCH
from envbuild.compose.model import InstallPlace
from envbuild.engine.client import Engine
from envbuild.engine.containers import Workshop
from envbuild.engine.dialogue import Dialogue, EndedError
from envbuild.errors import BuildError
from envbuild.index.thread_pool import DaemonPool, result_of
from envbuild.model.lock import Prefix
from envbuild.model.progress import OnProgress, Progress

CHUNK = 1 << 18  # bytes of source code in one request, which take about 50 ms to compile
_BATCHES = 4  # batches (see BATCH in compile_program) in one request
_MESSAGE_S = 2.0  # how long to wait for the rest of a message of the engine
_AHEAD = 2  # requests that one wheel may queue for each processor, so that no processor waits for source code
_Modules = list[tuple[str, bytes]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Compiler:
    """Compiles modules for ``prefix`` in ``workshop``, a container with the interpreter. Threads may share this object.

    The container runs one compiling program for each processor, or a single program that starts processes itself. The programs
    in ``idle`` wait for modules.
    """

    workshop: Workshop
    prefix: Prefix
    place: InstallPlace
    on_progress: OnProgress
    opened: wheel_layer.OpenWheels
    processors: int
    pool: DaemonPool
    idle: SimpleQueue[Dialogue] = field(default_factory=SimpleQueue)

    def compiled(self, wheel: Path) -> Iterator[tuple[str, bytes]]:
        """Compile the modules of ``wheel``. Yield each bytecode file: its absolute path in the image, and its content.

        While the first modules are compiled, the next ones are already sent to the container. Raises :class:`BuildError`
        (``no-bytecode``) if the container fails.
        """
        self.on_progress(Progress(stage="build", message=f"compiling the bytecode of {wheel.name}"))
        in_batches = compile_program.depends_on_company(self.prefix.python.version)
        most = (compile_program.BATCH * _BATCHES, 1 << 60) if in_batches else (1 << 30, CHUNK)
        running: deque[Future[_Modules]] = deque()
        for chunk in _chunks(wheel_layer.sources(wheel, self.place, self.opened), *most):
            running.append(self.pool.submit(self._compile, chunk))
            if len(running) > _AHEAD * self.processors:
                yield from result_of(running.popleft())
        while running:
            yield from result_of(running.popleft())

    def _compile(self, modules: _Modules) -> _Modules:
        parts = [struct.pack(">I", len(modules))]
        for path, content in modules:
            name = path.encode()
            parts += (struct.pack(">II", len(name), len(content)), name, content)
        try:
            try:
                dialogue = self.idle.get_nowait()
            except Empty:
                dialogue = _dialogue(self.workshop, self.prefix)[0]
            dialogue.send(b"".join(parts))
            made = [_received(dialogue) for _ in modules]
        except EndedError as error:
            raise BuildError(
                f"The bytecode of the packages in {self.prefix.path} could not be compiled: the program that compiles "
                f"{modules[0][0]} and {len(modules) - 1} other modules ended too early.",
                code="no-bytecode",
                hint="To build the image from its Dockerfile instead, use `--builder docker`.",
                details=tuple(str(error).splitlines()[-20:]),
            ) from error
        self.idle.put(dialogue)
        return [(path, content) for path, content in made if path]


@contextlib.contextmanager
def compiler(
    engine: Engine,
    image: str,
    prefix: Prefix,
    *,
    opened: wheel_layer.OpenWheels,
    on_progress: OnProgress,
) -> Iterator[Compiler]:
    """Yield a compiler for ``prefix`` of ``image``. The compiler works until the block ends."""
    place = InstallPlace(prefix=prefix.path, python=prefix.python.version, installer=prefix.backend)
    with engine.workshop(image) as workshop:
        first, processors = _dialogue(workshop, prefix)
        pool = DaemonPool(processors)
        made = Compiler(
            workshop=workshop,
            prefix=prefix,
            place=place,
            on_progress=on_progress,
            opened=opened,
            processors=processors,
            pool=pool,
        )
        made.idle.put(first)
        try:
            yield made
        finally:
            while not made.idle.empty():
                made.idle.get().close()


def source_of(path: str) -> str:
    """Return the path of the source file from which the bytecode file ``path`` was compiled.

    For example, the source ``a/b.py`` gives ``a/__pycache__/b.cpython-311.pyc``; with Python 2, it gives ``a/b.pyc``.
    """
    parts = PurePosixPath(path)
    if parts.parent.name == "__pycache__":
        return str(parts.parent.parent / f"{parts.name.split('.')[0]}.py") if parts.name.count(".") == 2 else _dotted(parts)
    return str(parts.with_suffix(".py"))


def _dotted(path: PurePosixPath) -> str:
    """Return the path of the source of the bytecode file ``path``. The name of this module contains a dot."""
    return str(path.parent.parent / f"{path.name.rsplit('.', 2)[0]}.py")


def _dialogue(workshop: Workshop, prefix: Prefix) -> tuple[Dialogue, int]:
    """Start a compiling program. Return a dialogue with it, and how many such programs may run at the same time."""
    # The option -S skips the site module, which uv's prefixes do not need. pip's prefixes need this module to find the standard
    # library.
    program = compile_program.text(EPOCH)
    argv = [f"{prefix.path}/bin/python", *(("-S",) if prefix.backend == "uv" else ()), "-W", "ignore", "-c", program]
    found = workshop.talk(argv, {"LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "0"})
    try:
        found.send(b"?")
        answer = found.receive(9)
    except EndedError as error:
        raise _not_started(prefix, str(error)) from error
    if not answer.startswith(b"READY"):  # a message of the engine, for example that the program does not exist
        raise _not_started(prefix, (bytes(answer) + found.rest(_MESSAGE_S)).decode(errors="replace"))
    return found, struct.unpack(">I", answer[5:])[0]


def _not_started(prefix: Prefix, why: str) -> BuildError:
    return BuildError(f"The Python of {prefix.path} does not start: {why.strip()[-300:]}", code="no-bytecode")


def _received(dialogue: Dialogue) -> tuple[str, bytes]:
    length, size = struct.unpack(">II", dialogue.receive(8))
    return dialogue.receive(length).decode(), bytes(dialogue.receive(size))


def _chunks(modules: Iterable[tuple[str, bytes]], most: int, most_bytes: int) -> Iterator[_Modules]:
    """Divide the modules into requests of at most ``most`` modules and about ``most_bytes`` bytes."""
    chunk: _Modules = []
    size = 0
    for path, content in modules:
        chunk.append((path, content))
        size += len(content)
        if len(chunk) == most or size >= most_bytes:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk
