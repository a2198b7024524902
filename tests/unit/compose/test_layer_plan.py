"""The division of wheels into layers, and the inputs of the key of each layer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from envbuild.compose.layer_plan import Wheel, interpreter, wheel_layers
from envbuild.lock import lock_file
from envbuild.model.lock import Lock, Prefix
from envbuild.workspace import find

NAME = "opencv-5.0.0.93-cpu-py311-debian12"


@pytest.fixture(scope="module")
def lock() -> Lock:
    return lock_file.read(find().lock_file(NAME))


@pytest.fixture
def prefix(lock: Lock) -> Prefix:
    return lock.prefixes[0]


def wheel(name: str, size: int, letter: str = "a") -> Wheel:
    return Wheel(filename=f"{name}-1-py3-none-any.whl", sha256=letter * 64, size=size)


def test_large_wheels_have_a_layer_each_and_small_ones_share_the_last(prefix: Prefix) -> None:
    wheels = [wheel("a", 10), wheel("b", 5_000_000), wheel("c", 20), wheel("d", 2_000_000)]
    layers = wheel_layers(prefix, wheels, "python")
    assert [[each.filename[0] for each in layer.wheels] for layer in layers] == [["b"], ["d"], ["a", "c"]]
    assert [layer.title for layer in layers] == ["b-1-py3-none-any", "d-1-py3-none-any", "2 small packages of /opt/env"]


def test_huge_wheels_and_their_bytecode_lie_below_the_large_and_the_small_ones(prefix: Prefix) -> None:
    """An engine loads the lowest layers first.

    If a large wheel has the same module as a huge one, its module and its bytecode both win.
    """
    wheels = [wheel("a", 300_000_000), wheel("b", 5_000_000), wheel("c", 20), wheel("d", 60_000_000)]
    layers = wheel_layers(prefix, wheels, "python")
    found = [("".join(each.filename[0] for each in layer.wheels), layer.holds) for layer in layers]
    assert found == [("a", "files"), ("d", "files"), ("ad", "bytecode"), ("b", "all"), ("c", "all")]
    assert layers[2].title == "the bytecode of a-1-py3-none-any, d-1-py3-none-any"


def test_the_files_of_a_huge_wheel_do_not_depend_on_the_interpreter(prefix: Prefix) -> None:
    def keys(python: str) -> list[str]:
        return [layer.key for layer in wheel_layers(prefix, [wheel("a", 300_000_000)], python)]

    one, other = keys("one"), keys("other")
    assert one[0] == other[0]
    assert one[1] != other[1]
    assert one[0] != one[1]


def test_there_are_fewer_layers_than_engines_take(prefix: Prefix) -> None:
    wheels = [wheel(f"w{number}", 2_000_000 + number) for number in range(200)]
    layers = wheel_layers(prefix, wheels, "python")
    assert len(layers) <= 80
    assert sorted(w.filename for layer in layers for w in layer.wheels) == sorted(w.filename for w in wheels)
    assert min(w.size for layer in layers[:-1] for w in layer.wheels) > max(w.size for w in layers[-1].wheels)


def test_no_wheels_make_no_layers(prefix: Prefix) -> None:
    assert wheel_layers(prefix, [], "python") == ()


def test_a_key_depends_on_all_that_decides_the_bytes_and_on_nothing_else(prefix: Prefix) -> None:
    def key(prefix: Prefix = prefix, name: str = "a", size: int = 5_000_000, letter: str = "a", python: str = "python") -> str:
        return wheel_layers(prefix, [wheel(name, size, letter)], python)[0].key

    same = {key(), key(name="b"), key(size=6_000_000), key(replace(prefix, name="other", frameworks=()))}
    others = {
        key(letter="b"),
        key(python="another"),
        key(replace(prefix, path="/opt/other")),
        key(replace(prefix, backend="pip")),
        key(replace(prefix, python=replace(prefix.python, version="3.12"))),
    }
    assert len(same) == 1
    assert len(others) == 5
    assert not same & others


def test_the_interpreter_is_known_by_its_packages(lock: Lock) -> None:
    prefix, apt = lock.prefixes[0], lock.apt
    assert apt is not None
    known = interpreter(lock, prefix)
    assert known is not None

    def changed(name: str) -> str | None:
        steps = tuple(
            replace(step, packages=tuple(replace(p, sha256="0" * 64) if p.name == name else p for p in step.packages))
            for step in apt.steps
        )
        return interpreter(replace(lock, apt=replace(apt, steps=steps)), prefix)

    assert changed("tini") == known
    assert changed("libpython3.11-minimal") != known
    assert changed("python3.11-minimal") != known


def test_a_lock_that_pins_no_packages_does_not_know_the_interpreter(lock: Lock) -> None:
    base = replace(lock.base, bootstrap=None)
    assert interpreter(replace(lock, apt=None, base=base), lock.prefixes[0]) is None
