"""Bytecode for composed images is the same as `compileall` writes. The programs run on this machine, not in containers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from wheel_files import Part, make_wheel

from envbuild.compose import bytecode, compile_program, wheel_layer
from envbuild.engine.client import Engine
from envbuild.engine.dialogue import EndedError
from envbuild.errors import BuildError
from envbuild.lock import lock_file
from envbuild.model.lock import Prefix
from envbuild.model.progress import ignore_progress
from envbuild.workspace import find

FUNCTION = b'"""Words."""\nNAMES = {"a", "b", "c"}\n\n\ndef one(two=(1, 2.5, "x")):\n    return lambda: (two, NAMES)\n'
SOURCES = {
    "toy/__init__.py": b"",
    "toy/plain.py": FUNCTION,
    "toy/newlines.py": b"x = 1\r\ny = '''a\r\nb'''\r\n",
    "toy/latin.py": "# -*- coding: latin-1 -*-\nname = 'é'\n".encode("latin-1"),
    "toy/a.b.py": b"dotted = True\n",
    "toy/noisy.py": b"x = '\\d' is 1\n",
    "toy/wrong.py": b"print 'for Python 2'\n",
    "toy/zero.py": b"x = 1\0\n",
}
INVALID = ("toy/wrong.py", "toy/zero.py")


class Process:
    """Replaces a program in a container."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str]) -> None:
        self.process = subprocess.Popen(argv, env={**os.environ, **env}, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def send(self, data: bytes) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(data)
            self.process.stdin.flush()
        except OSError as error:
            raise EndedError("it was killed") from error

    def receive(self, size: int) -> bytes:
        assert self.process.stdout is not None
        found = self.process.stdout.read(size)
        if len(found) < size:
            raise EndedError("it was killed")
        return found

    def rest(self, _seconds: float) -> bytes:
        assert self.process.stdout is not None
        return self.process.stdout.read()

    def close(self) -> None:
        self.process.communicate(timeout=60)


class Machine:
    """Replaces the engine."""

    def __init__(self) -> None:
        self.running: list[Process] = []

    @contextmanager
    def workshop(self, _image: str) -> Iterator[Any]:
        def talk(argv: Sequence[str], env: Mapping[str, str]) -> Process:
            self.running.append(Process(argv, env))
            return self.running[-1]

        yield SimpleNamespace(talk=talk)


@pytest.fixture
def prefix(tmp_path: Path) -> Prefix:
    """A prefix with this Python, at its place in an image."""
    (tmp_path / "env/bin").mkdir(parents=True)
    (tmp_path / "env/bin/python").symlink_to(sys.executable)
    found = lock_file.read(find().lock_file("opencv-5.0.0.93-cpu-py311-debian12")).prefixes[0]
    return replace(found, path=str(tmp_path / "env"), backend="uv")


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    return make_wheel(tmp_path, [Part(name=name, content=content) for name, content in SOURCES.items()])


@contextmanager
def compiler(machine: Machine, prefix: Prefix) -> Iterator[bytecode.Compiler]:
    engine = cast(Engine, machine)
    with (
        wheel_layer.OpenWheels() as opened,
        bytecode.compiler(engine, "", prefix, opened=opened, on_progress=ignore_progress) as found,
    ):
        yield found


@pytest.mark.parametrize(("size", "stable"), [(1, (3, 11)), (100, (3, 11)), (bytecode.CHUNK, (3, 11)), (1, (3, 99))])
def test_bytecode_equals_that_of_compileall(
    wheel: Path, prefix: Prefix, monkeypatch: pytest.MonkeyPatch, size: int, stable: tuple[int, int]
) -> None:
    """However the modules are divided among the programs. Modules that cannot be compiled get no bytecode."""
    monkeypatch.setattr(bytecode, "CHUNK", size)
    monkeypatch.setattr(compile_program, "STABLE", stable)
    machine = Machine()
    with compiler(machine, prefix) as compiling:
        found = dict(compiling.compiled(wheel))
    assert 1 <= len(machine.running) <= compiling.processors
    assert not [*Path(prefix.path).rglob("*.py*c"), *Path(prefix.path).rglob("*.py")]
    site = Path(prefix.path) / f"lib/python{prefix.python.version}/site-packages"
    for name, content in SOURCES.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_bytes(content)
    settings = {"SOURCE_DATE_EPOCH": "1577836800", "PYTHONHASHSEED": "0"}
    subprocess.run([sys.executable, "-S", "-m", "compileall", "-qq", str(site)], env=settings, check=False)
    assert found == {str(path): path.read_bytes() for path in site.rglob("*.pyc")}
    assert {bytecode.source_of(path) for path in found} == {str(site / name) for name in SOURCES if name not in INVALID}


def test_a_program_that_is_killed_is_an_error(wheel: Path, prefix: Prefix) -> None:
    machine = Machine()
    with compiler(machine, prefix) as compiling:
        machine.running[0].process.send_signal(signal.SIGKILL)
        machine.running[0].process.wait(60)
        with pytest.raises(BuildError, match="ended too early") as caught:
            list(compiling.compiled(wheel))
    assert caught.value.code == "no-bytecode"
    assert caught.value.details == ("it was killed",)


@pytest.mark.parametrize("script", ["exit 1", "echo This is no program that compiles."])
def test_a_python_that_does_not_start_is_an_error(prefix: Prefix, script: str) -> None:
    python = Path(prefix.path) / "bin/python"
    python.unlink()
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    with pytest.raises(BuildError, match="does not start") as caught, compiler(Machine(), prefix):
        pass
    assert caught.value.code == "no-bytecode"
