"""The program that compiles modules in a container. It runs on every Python that images use, from 2.7 on."""

from __future__ import annotations

STABLE = (3, 11)  # the first Python 3 whose bytecode does not depend on what else the process has compiled
BATCH = 400  # modules that one process of compileall compiles, the same number as in step.sh; another number changes some bytes
# The program makes the same bytecode as the function `compile` of step.sh. The bytecode contains the hash of the source; before
# Python 3.7, it contains the source's time instead. A module that cannot be compiled is not an error: it gets no bytecode.
#
# On Python 2, and on Python 3 from STABLE on, the program compiles in its own process, without files. On Python 3 before
# STABLE, marshal marks names that the same process uses elsewhere, so some bytes depend on the other modules. On these
# versions, only compileall gives the same bytes as step.sh. A new process of compileall starts for each wheel, so the order in
# which wheels arrive does not matter.
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
            made = head + marshal.dumps(module)  # `module` must be a variable: marshal marks objects with several references
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
    answer = []
    for target, made in by_compileall(modules) if is_slow else here(modules):
        answer += [struct.pack(">II", len(target), len(made)), target, made]
    sink.write(b"".join(answer))  # at once: each write costs work in several programs of the engine
    sink.flush()
"""


def depends_on_company(python: str) -> bool:
    """Whether the bytecode of a module depends on the other modules that the same process compiles. ``python`` is a version
    such as ``3.9``."""
    return (3,) <= tuple(int(part) for part in python.split(".")) < STABLE


def text(epoch: int) -> str:
    """Return the program. Before Python 3.7, it writes ``epoch`` (seconds since 1970) into the bytecode as the time of the
    source."""
    return _PROGRAM.replace("WHEN", str(epoch)).replace("STABLE", str(STABLE)).replace("BATCH", str(BATCH))
