"""Thousands of random wheels: their layers have the same contents, and a damaged wheel is refused or gives the same files.

tests/integration/test_composed_wheels.py, run by `make prove`, compares ten thousand wheels with the output of unzip and tar.
"""

from __future__ import annotations

import io
import random
import tempfile
from pathlib import Path

import pytest
from fuzzing import fuzz
from hypothesis.strategies import integers
from random_wheels import installed, random_wheel
from wheel_files import unpack

from envbuild.compose import wheel_layer
from envbuild.compose.model import InstallPlace
from envbuild.errors import BuildError

PLACE = InstallPlace(prefix="/opt/env", python="3.11", installer="uv")
NUMBERS = integers(0, 2**40)
FOLDER = tempfile.TemporaryDirectory()  # one folder for all, because making a thousand folders takes longer than the wheels


def layer_of(file: Path) -> dict[str, tuple[int, bytes | None]]:
    """The files in the layer of the wheel. A layer that is recorded, and so made without unpacking, has the same bytes."""
    stream, again = io.BytesIO(), io.BytesIO()
    layer = wheel_layer.write(stream, [(file, True)], PLACE, {})
    assert wheel_layer.write(again, [(file, True)], PLACE, {}, recorded=layer) == layer
    assert again.getvalue() == stream.getvalue()
    return unpack(stream.getvalue())


def layers_hold_what_is_in_the_wheels(number: int) -> None:
    file = random_wheel(Path(FOLDER.name), number)
    found, wanted = layer_of(file), installed(file, PLACE.prefix, PLACE.python)
    record = next(path for path in wanted if path.endswith("/RECORD"))
    assert wanted.pop(record)[0] == found[record][0]
    missing = {path: told for path, told in wanted.items() if found.get(path) != told}
    assert not missing, number
    own = {f"{record.removesuffix('RECORD')}{name}" for name in ("RECORD", "INSTALLER", "REQUESTED")}
    more = {path for path in found.keys() - wanted.keys() - own if found[path][1] is not None}
    assert {path.rpartition("/")[0] for path in more} <= {"opt/env/bin"}, number
    listed = found[record][1].decode().count("\n")
    assert listed >= sum(content is not None for _, content in found.values()) - 1, number  # RECORD does not list RECORD.jws


def damage_is_refused_or_changes_nothing(number: int) -> None:
    """Some bytes of the archive are changed. Values that are neither content nor name, such as a time, may differ."""
    chance = random.Random(number)
    file = random_wheel(Path(FOLDER.name), number % 1000)
    wanted = layer_of(file)
    data = bytearray(file.read_bytes())
    begin = chance.randrange(len(data))
    for at in range(begin, min(begin + chance.choice([1, 1, 2, 8]), len(data))):
        data[at] = chance.randrange(256)
    file.write_bytes(data)
    try:
        found = layer_of(file)
    except BuildError as error:
        assert error.code == "bad-wheel", number
        return
    # Modes and empty folders are not compared, because only the central directory has them.
    assert {path: content for path, (_, content) in found.items()} == {
        path: content for path, (_, content) in wanted.items()
    }, number


test_some_layers_hold_what_is_in_the_wheels = fuzz(2000, NUMBERS)(layers_hold_what_is_in_the_wheels)
test_some_damage_is_refused_or_changes_nothing = fuzz(1000, NUMBERS)(damage_is_refused_or_changes_nothing)
test_much_damage_is_refused_or_changes_nothing = pytest.mark.prove(fuzz(10_000, NUMBERS)(damage_is_refused_or_changes_nothing))
