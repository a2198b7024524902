"""The layers of a prefix are made as its wheels arrive, and do not depend on the order of arrival."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from wheel_files import Part, make_wheel

from envbuild.compose import bytecode_cache, layer_jobs, wheel_layer
from envbuild.compose.bytecode import Compiler
from envbuild.compose.layer_plan import Wheel, wheel_layers
from envbuild.compose.model import Layer
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
