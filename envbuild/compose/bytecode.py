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

STABLE = (3, 11)  # the first Python 3 whose bytecode does not depend on what else is in the process
CHUNK = 1 << 18  # bytes of sources in a request: some 50 ms of work
BATCH = 400  # modules that one process of compileall compiles, as in step.sh; they decide about some bytes
_BATCHES = 4  # in a request
_AHEAD = 2  # requests of one wheel that wait for each processor, so that no processor waits for sources
# The same bytecode as `compile` of step.sh, for the same reasons: the hash of the source stands in it, or before Python 3.7
# its time. A module that cannot be compiled is not an error: it gets no bytecode.
#
# Python 2 and Pythons from STABLE on compile in this process, without files. In between, marshal marks each name that something
# else in the process refers to, so that only compileall itself gives the bytecode of compileall. Each wheel has its own
# processes there, so that the bytes do not depend on the order in which wheels arrive.
_PROGRAM = """
import io, marshal, os, struct, subprocess, sys
source, sink = io.open(0, "rb", closefd=False), io.open(1, "wb", closefd=False)
try:
    from importlib.util import MAGIC_NUMBER, cache_from_source, source_hash
except ImportError:
    pass
try:
    processors = len(os.sched_getaffinity(0))
except AttributeError:
    from multiprocessing import cpu_count
    processors = cpu_count()
is_slow = (3,) <= sys.version_info < STABLE

def by_compileall(modules):
    paths = [os.fsdecode(name) for name, _ in modules]
    for path, (_, content) in zip(paths, modules):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as stream:
            stream.write(content)
        os.utime(path, (WHEN, WHEN))
    argv = [sys.executable] + ["-S"] * sys.flags.no_site + ["-m", "compileall", "-qq"]
    size, nowhere = BATCH, subprocess.DEVNULL
    environment = dict(os.environ, SOURCE_DATE_EPOCH=str(WHEN))
    for running in [
        subprocess.Popen(argv + paths[at:at + size], env=environment, stdin=nowhere, stdout=nowhere, stderr=nowhere)
        for at in range(0, len(paths), size)
    ]:
        running.wait()
    for path in paths:
        target = cache_from_source(path)
        try:
            with open(target, "rb") as stream:
                yield os.fsencode(target), stream.read()
            os.unlink(target)
        except EnvironmentError:
            yield b"", b""
        os.unlink(path)

def here(modules):
    for name, content in modules:
        try:
            if sys.version_info < (3,):
                import imp
                target, head = name + b"c", imp.get_magic() + struct.pack("<I", WHEN)
                module = compile(content.replace(b"\\r\\n", b"\\n").replace(b"\\r", b"\\n"), name, "exec", 0, True)
            else:
                path = os.fsdecode(name)
                target = os.fsencode(cache_from_source(path))
                head = MAGIC_NUMBER + struct.pack("<I", 3) + source_hash(content)
                module = compile(content, path, "exec", 0, True)
            made = head + marshal.dumps(module)  # of a variable: marshal marks what is referred to several times
        except Exception:
            target, made = b"", b""
        yield target, made

source.read(1)
sink.write(b"READY" + struct.pack(">I", 1 if is_slow else processors))
sink.flush()
while True:
    head = source.read(4)
    if len(head) < 4:
        break
    modules = []
    for _ in range(*struct.unpack(">I", head)):
        sizes = struct.unpack(">II", source.read(8))
        modules.append([source.read(size) for size in sizes])
    for target, made in by_compileall(modules) if is_slow else here(modules):
        sink.write(struct.pack(">II", len(target), len(made)) + target + made)
    sink.flush()
"""

_Modules = list[tuple[str, bytes]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Compiler:
    """Compiles for ``prefix`` in ``workshop``, a container with the interpreter. Threads may share it.

    One program for each processor runs in the container, or one that starts others. The ``idle`` ones wait for modules.
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
        version = tuple(int(part) for part in self.prefix.python.version.split("."))
        most = (BATCH * _BATCHES, 1 << 60) if (3,) <= version < STABLE else (1 << 30, CHUNK)
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
    program = _PROGRAM.replace("WHEN", str(EPOCH)).replace("STABLE", str(STABLE)).replace("BATCH", str(BATCH))
    argv = [f"{prefix.path}/bin/python", *(("-S",) if prefix.backend == "uv" else ()), "-W", "ignore", "-c", program]
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


def _chunks(modules: Iterable[tuple[str, bytes]], most: int, most_bytes: int) -> Iterator[_Modules]:
    """Divide the modules into requests of at most this number, and about this number of bytes."""
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
