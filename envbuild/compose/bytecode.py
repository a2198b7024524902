"""Bytecode of wheels' modules, compiled by the interpreter of the image itself, in one container for many wheels."""

from __future__ import annotations

import contextlib
import struct
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from queue import Empty, SimpleQueue

from envbuild.compose import wheel_layer
from envbuild.compose.layer import EPOCH
from envbuild.compose.model import InstallPlace
from envbuild.engine.client import Engine
from envbuild.engine.containers import Workshop
from envbuild.engine.dialogue import Dialogue, EndedError
from envbuild.errors import BuildError
from envbuild.index.thread_pool import DaemonPool, result_of
from envbuild.model.lock import Prefix
from envbuild.model.progress import OnProgress, Progress

CHUNK = 1 << 18  # bytes of sources in a request: some 50 ms of work
_AHEAD = 2  # requests of one wheel that wait for each processor, so that no processor waits for sources
# The same bytecode as `compile` of step.sh, for the same reasons: the hash of the source stands in it, or before Python 3.7
# its time. No file is written in the container. A module that cannot be compiled is not an error: it gets no bytecode.
_PROGRAM = """
import io, marshal, struct, sys
source, sink = io.open(0, "rb", closefd=False), io.open(1, "wb", closefd=False)
try:
    from importlib import util
    from os import fsdecode
    place, magic = util.cache_from_source, util.MAGIC_NUMBER
except ImportError:
    import imp
    place, magic, fsdecode = (lambda path: path + "c"), imp.get_magic(), (lambda path: path)

def compiled(path, content):
    if sys.version_info < (3,):
        content = content.replace(b"\\r\\n", b"\\n").replace(b"\\r", b"\\n")
    module = compile(content, path, "exec", 0, True)
    code = marshal.dumps(module)  # of a variable: marshal marks objects that have several references
    if sys.version_info >= (3, 7):
        return magic + struct.pack("<I", 3) + util.source_hash(content) + code
    told = struct.pack("<I", EPOCH)
    return magic + told + (struct.pack("<I", len(content) & 0xFFFFFFFF) if sys.version_info >= (3,) else b"") + code

try:
    from os import sched_getaffinity
    processors = len(sched_getaffinity(0))
except ImportError:
    from multiprocessing import cpu_count
    processors = cpu_count()
source.read(1)
sink.write(b"READY" + struct.pack(">I", processors))
sink.flush()
while True:
    head = source.read(4)
    if len(head) < 4:
        break
    modules = []
    for _ in range(*struct.unpack(">I", head)):
        sizes = struct.unpack(">II", source.read(8))
        modules.append([source.read(size) for size in sizes])
    for path, content in modules:
        try:
            path = fsdecode(path)
            made, target = compiled(path, content), place(path)
            target = target if isinstance(target, bytes) else target.encode("utf-8", "surrogateescape")
        except Exception:
            made, target = b"", b""
        sink.write(struct.pack(">II", len(target), len(made)) + target + made)
    sink.flush()
""".replace("EPOCH", str(EPOCH))

_Modules = list[tuple[str, bytes]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Compiler:
    """Compiles for ``prefix`` in ``workshop``, a container with the interpreter. Threads may share it.

    One program for each processor runs in the container. The ``idle`` ones wait for modules.
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
        """Yield the bytecode of ``wheel``: absolute path in the image, and content. Sources are read a little ahead.

        Raises :class:`BuildError` (``no-bytecode``) if the container fails.
        """
        self.on_progress(Progress(stage="build", message=f"compiling the bytecode of {wheel.name}"))
        running: deque[Future[_Modules]] = deque()
        for chunk in _chunks(wheel_layer.sources(wheel, self.place, self.opened)):
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
                f"{modules[0][0]} and {len(modules) - 1} other modules has ended.",
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
    """Yield a compiler for ``prefix`` of ``image``; it works within the block."""
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
    """The source file of a bytecode file: ``a/b.py`` for ``a/__pycache__/b.cpython-311.pyc`` and for Python 2's ``a/b.pyc``."""
    parts = PurePosixPath(path)
    if parts.parent.name == "__pycache__":
        return str(parts.parent.parent / f"{parts.name.split('.')[0]}.py") if parts.name.count(".") == 2 else _dotted(parts)
    return str(parts.with_suffix(".py"))


def _dotted(path: PurePosixPath) -> str:
    """Return the module's path if the module's own name contains a dot."""
    return str(path.parent.parent / f"{path.name.rsplit('.', 2)[0]}.py")


def _dialogue(workshop: Workshop, prefix: Prefix) -> tuple[Dialogue, int]:
    """Start a program that compiles; returns it, and the number of processors that the container has."""
    # -S, because uv's prefixes need no site module; the site module of pip's finds the standard library.
    argv = [f"{prefix.path}/bin/python", *(("-S",) if prefix.backend == "uv" else ()), "-W", "ignore", "-c", _PROGRAM]
    found = workshop.talk(argv, {"LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "0"})
    try:
        found.send(b"?")
        answer = found.receive(9)
    except EndedError as error:
        raise _not_started(prefix, str(error)) from error
    if not answer.startswith(b"READY"):  # words of the engine: it does not find the program, for example
        raise _not_started(prefix, answer.decode(errors="replace"))
    return found, struct.unpack(">I", answer[5:])[0]


def _not_started(prefix: Prefix, why: str) -> BuildError:
    return BuildError(f"The Python of {prefix.path} does not start: {why.strip()[-300:]}", code="no-bytecode")


def _received(dialogue: Dialogue) -> tuple[str, bytes]:
    length, size = struct.unpack(">II", dialogue.receive(8))
    return dialogue.receive(length).decode(), bytes(dialogue.receive(size))


def _chunks(modules: Iterable[tuple[str, bytes]]) -> Iterator[_Modules]:
    """Divide the modules into requests."""
    chunk: _Modules = []
    size = 0
    for path, content in modules:
        chunk.append((path, content))
        size += len(content)
        if size >= CHUNK:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk
