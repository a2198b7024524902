"""The layers of a prefix are made as its wheels arrive, and do not depend on the order of arrival."""

from __future__ import annotations

import hashlib
import io
import random
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from wheel_files import Part, deflated, make_wheel

from envbuild.compose import bytecode_cache, layer_jobs, wheel_layer
from envbuild.compose.bytecode import Compiler
from envbuild.compose.layer import OtherLayerError
from envbuild.compose.layer_plan import Wheel, wheel_layers
from envbuild.compose.model import InstallPlace, Layer
from envbuild.compose.store import LayerStore
from envbuild.errors import BuildError
from envbuild.index.thread_pool import DaemonPool, result_of
from envbuild.lock import lock_file
from envbuild.model.lock import Prefix
from envbuild.workspace import find

HUGE, SMALL, OTHER = (
    Wheel(filename=f"{name}-1.0-py3-none-any.whl", sha256=letter * 64, size=size)
    for name, letter, size in (("huge", "a", 300_000_000), ("small", "b", 10), ("other", "c", 20))
)


class Container:
    """Replaces the container; closing it does nothing."""

    def close(self) -> None: ...


class FromNames:
    """Replaces the compiler; the bytecode of a wheel is the name of its file."""

    def __init__(self) -> None:
        self.workshop = Container()

    def compiled(self, wheel: Path) -> Iterator[tuple[str, bytes]]:
        yield f"/opt/env/lib/{wheel.stem}.pyc", wheel.name.encode()


class Failing(FromNames):
    def compiled(self, wheel: Path) -> Iterator[tuple[str, bytes]]:
        raise BuildError(f"{wheel.name} cannot be compiled.", code="no-bytecode")


@pytest.fixture(scope="module")
def prefix() -> Prefix:
    found = lock_file.read(find().lock_file("opencv-5.0.0.93-cpu-py311-debian12")).prefixes[0]
    return replace(found, path="/opt/env", backend="uv")


def place_of(prefix: Prefix) -> InstallPlace:
    return InstallPlace(prefix=prefix.path, python=prefix.python.version, installer=prefix.backend)


def begun(prefix: Prefix, folder: Path, wheels: Sequence[Wheel] = (HUGE, SMALL, OTHER)) -> layer_jobs.LayerJobs:
    layers = {layer.key: layer for layer in wheel_layers(prefix, wheels, "python")}
    return layer_jobs.LayerJobs(
        layers=layers,
        downloads={wheel: Future() for wheel in wheels},
        jobs={key: Future() for key in layers},
        writers=DaemonPool(2),
        store=LayerStore(folder),
        opened=wheel_layer.OpenWheels(),
    )


def made(prefix: Prefix, folder: Path, order: list[Wheel], compiler: FromNames | None = None) -> list[Layer]:
    """The layers, lowest first, if the wheels arrive in this order."""
    making = begun(prefix, folder / "store", sorted(order, key=lambda wheel: wheel.sha256))
    making.begin_files()
    compiling = DaemonPool(1).submit(making.compile_all, cast(Compiler, compiler or FromNames()))
    for wheel in order:
        (folder / wheel.sha256).mkdir(exist_ok=True)
        file = make_wheel(folder / wheel.sha256, [Part(name="toy/a.py", content=wheel.filename.encode())])
        making.downloads[wheel].set_result(file)
    result_of(compiling)
    return [result_of(job) for job in making.jobs.values()]


def test_layers_do_not_depend_on_the_order_of_arrival(prefix: Prefix, tmp_path: Path) -> None:
    found = []
    for number, order in enumerate(([HUGE, SMALL, OTHER], [OTHER, HUGE, SMALL], [SMALL, OTHER, HUGE])):
        (tmp_path / str(number)).mkdir()
        found.append(made(prefix, tmp_path / str(number), order))
    assert found[0] == found[1] == found[2]
    assert len(set(found[0])) == 3


def test_the_largest_wheel_is_compiled_first(prefix: Prefix, tmp_path: Path) -> None:
    order: list[str] = []

    class Noting(FromNames):
        def compiled(self, wheel: Path) -> Iterator[tuple[str, bytes]]:
            order.append(wheel.parent.name[0])
            return super().compiled(wheel)

    wheels = [replace(SMALL, sha256=letter * 64, size=number) for number, letter in enumerate("0123456789")]
    making = begun(prefix, tmp_path / "store", [*wheels, HUGE])
    for wheel in [*wheels, HUGE]:
        (tmp_path / wheel.sha256).mkdir()
        making.downloads[wheel].set_result(make_wheel(tmp_path / wheel.sha256, [Part(name="toy/a.py")]))
    making.compile_all(cast(Compiler, Noting()))
    assert order[0] == "a"
    assert sorted(order) == [*"0123456789a"]


def test_a_layer_with_one_wheel_less_compiles_nothing(prefix: Prefix, tmp_path: Path) -> None:
    """Compiled bytecode is kept, and equals bytecode that is compiled again."""
    made(prefix, tmp_path, [HUGE, SMALL, OTHER])
    assert not begun(prefix, tmp_path / "store", [HUGE, OTHER]).needs_compiler
    again = made(prefix, tmp_path, [HUGE, OTHER], Failing())
    (tmp_path / "new").mkdir()
    assert again == made(prefix, tmp_path / "new", [HUGE, OTHER])


def test_kept_bytecode_that_is_damaged_is_compiled_again(prefix: Prefix, tmp_path: Path) -> None:
    made(prefix, tmp_path, [SMALL])
    store = LayerStore(tmp_path / "store")
    (kept,) = (entry.layer for entry in store.entries() if entry.about == f"the bytecode of {SMALL.filename}")
    assert not begun(prefix, tmp_path / "store", [SMALL]).needs_compiler
    blob = store.blob(kept.digest)
    content = blob.read_bytes().replace(b"toy-1.0", b"TOY-1.0")
    blob.unlink()
    blob.write_bytes(content)
    assert begun(prefix, tmp_path / "store", [SMALL]).needs_compiler
    made(prefix, tmp_path, [SMALL, OTHER])
    assert not begun(prefix, tmp_path / "store", [SMALL]).needs_compiler


def test_another_interpreter_compiles_again(prefix: Prefix, tmp_path: Path) -> None:
    made(prefix, tmp_path, [SMALL])
    (layer,) = wheel_layers(prefix, [SMALL], "another python")
    assert bytecode_cache.find(LayerStore(tmp_path / "store"), layer, SMALL) is None


def test_the_files_of_a_huge_wheel_do_not_wait_for_the_compiler(prefix: Prefix, tmp_path: Path) -> None:
    making = begun(prefix, tmp_path / "store")
    making.begin_files()
    making.downloads[HUGE].set_result(make_wheel(tmp_path, [Part(name="toy/a.py")]))
    assert result_of(next(iter(making.jobs.values()))).unpacked > 0


def test_a_failed_download_is_the_error_of_the_layer(prefix: Prefix, tmp_path: Path) -> None:
    making = begun(prefix, tmp_path / "store")
    making.begin_files()
    for download in making.downloads.values():
        download.set_exception(BuildError("The index does not answer.", code="index-unreachable"))
    making.compile_all(cast(Compiler, FromNames()))
    for job in making.jobs.values():
        with pytest.raises(BuildError, match="does not answer"):
            result_of(job)


def test_a_compiler_that_fails_ends_all_layers_that_wait_for_it(prefix: Prefix, tmp_path: Path) -> None:
    making = begun(prefix, tmp_path / "store")
    file = make_wheel(tmp_path, [Part(name="toy/a.py")])
    for download in making.downloads.values():
        download.set_result(file)
    making.compile_all(cast(Compiler, Failing()))
    for job in making.jobs.values():
        with pytest.raises(BuildError, match="cannot be compiled"):
            result_of(job)


def packed_otherwise() -> Part:
    """A file whose compressed content is damaged in its last byte. Only unpacking finds this."""
    content = bytes(range(256)) * 40
    packed = bytearray(deflated(content))
    packed[-1] ^= 0xFF
    return Part(name="toy/data", content=content, packed=bytes(packed))


def layer_of_huge(prefix: Prefix, folder: Path, file: Path, recorded: Layer | None = None) -> Layer:
    """The layer with the files of the huge wheel ``file``. ``recorded`` is what the record says about the layer."""
    making = begun(prefix, folder, [HUGE])
    (key,) = (layer.key for layer in making.layers.values() if layer.holds == "files")
    making = replace(making, recorded={key: recorded} if recorded else {})
    making.begin_files()
    making.downloads[HUGE].set_result(file)
    return result_of(making.jobs[key])


def test_a_recorded_layer_is_the_same_layer(prefix: Prefix, tmp_path: Path) -> None:
    parts = [
        Part(name="toy/a.py", content=b"a = 1"),
        Part(name="toy/b", content=bytes(10**6), method=0),
        Part(name="toy/empty"),
    ]
    parts.append(Part(name="toy/large", content=random.Random(14).randbytes(3 * 10**6)))
    file = make_wheel(tmp_path, parts)
    made = layer_of_huge(prefix, tmp_path / "first", file)
    assert layer_of_huge(prefix, tmp_path / "second", file, made) == made
    first, second = LayerStore(tmp_path / "first"), LayerStore(tmp_path / "second")
    assert first.blob(made.digest).read_bytes() == second.blob(made.digest).read_bytes()


def test_a_recorded_layer_is_not_unpacked(prefix: Prefix, tmp_path: Path) -> None:
    """The record has the digest of the written bytes, so the damage in the wheel is not noticed."""
    (tmp_path / "whole").mkdir()
    whole = make_wheel(tmp_path / "whole", [replace(packed_otherwise(), packed=None)])
    made = layer_of_huge(prefix, tmp_path / "first", whole)
    stream = io.BytesIO()
    file = make_wheel(tmp_path, [packed_otherwise()])
    with pytest.raises(OtherLayerError):
        wheel_layer.write(stream, [(file, True)], place_of(prefix), {}, recorded=made)
    recorded = replace(made, digest=hashlib.sha256(stream.getvalue()).hexdigest())
    assert layer_of_huge(prefix, tmp_path / "store", file, recorded) == recorded


@pytest.mark.parametrize("wrong", [{"digest": "0" * 64}, {"size": 1}, {"unpacked": 1}, {"files": "0" * 64}])
def test_a_wrong_record_changes_nothing(prefix: Prefix, tmp_path: Path, wrong: dict[str, Any]) -> None:
    file = make_wheel(tmp_path, [Part(name="toy/a.py", content=b"a = 1")])
    made = layer_of_huge(prefix, tmp_path / "first", file)
    assert layer_of_huge(prefix, tmp_path / "second", file, replace(made, **wrong)) == made
    store = LayerStore(tmp_path / "second")
    assert list(store.blob_files()) == [made.digest]
    assert [entry.layer for entry in store.entries()] == [made]


def test_a_damaged_wheel_is_refused_although_its_layer_is_recorded(prefix: Prefix, tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    damaged = packed_otherwise()
    whole = make_wheel(tmp_path / "whole", [replace(damaged, packed=None)])
    made = layer_of_huge(prefix, tmp_path / "first", whole)
    with pytest.raises(BuildError, match="toy/data"):
        layer_of_huge(prefix, tmp_path / "second", make_wheel(tmp_path, [damaged]), made)
    assert not LayerStore(tmp_path / "second").blob_files()
