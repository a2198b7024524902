"""Decides into which layers the wheels of a lock go. The functions are pure, so a layer's key is known before the layer
exists."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from envbuild.compose import compile_program
from envbuild.compose.wheel_layer import RULES
from envbuild.model.lock import Lock, Prefix

# Bytes. A larger wheel has its own layer, which all images with this wheel share. The smaller wheels of a prefix share one
# layer: one more layer takes an engine about as long as one more megabyte.
_LARGE = 1_000_000
# Bytes. A larger ("huge") wheel has its files and its bytecode in separate layers. So the layers with the files can be loaded
# while all other layers are made. The layers with the files also stay the same when the interpreter changes.
_HUGE = 50_000_000
# Some bytecode depends on which modules one process compiles. This text goes into the keys of layers with such bytecode. If the
# key of such a layer was made without this text, the layer is older: its bytecode depends on the order in which wheels arrived.
_BATCHES = ", each wheel by itself"
_MOST = 80  # layers of wheels in an image; an engine allows 127 layers in total
_PYTHON_PACKAGE = re.compile(r"(lib)?python[0-9.]+(-(minimal|stdlib|distutils|lib2to3))?")


@dataclass(frozen=True, kw_only=True, slots=True)
class Wheel:
    """A wheel to install, either pinned or built from a pinned source package. ``size`` is in bytes.

    If two wheels have a file at the same path, the file of the wheel with the higher ``rank`` stays.
    """

    filename: str
    sha256: str
    size: int
    rank: int = 0

    @property
    def project(self) -> str:
        """The canonical name of the wheel's project."""
        return re.sub(r"[-_.]+", "-", self.filename.partition("-")[0]).lower()


Holds = Literal["all", "files", "bytecode"]


@dataclass(frozen=True, kw_only=True, slots=True)
class WheelLayer:
    """A layer with the files that ``wheels`` install in ``prefix``, or with the bytecode of the wheels, or with both.

    ``key`` is a sha256 (hex) of everything that determines the layer's bytes. ``python`` identifies the interpreter.
    """

    prefix: Prefix
    wheels: tuple[Wheel, ...]
    holds: Holds
    key: str
    python: str = ""

    @property
    def title(self) -> str:
        """The text that describes the layer in the image's history."""
        names = [wheel.filename.removesuffix(".whl") for wheel in self.wheels]
        told = names[0] if len(names) == 1 else f"{len(names)} small packages of {self.prefix.path}"
        return told if self.holds != "bytecode" else f"the bytecode of {', '.join(names)}"


def ranked(wheels: Iterable[Wheel], order: Sequence[str]) -> list[Wheel]:
    """The wheels in the order of installation, with their ranks. ``order`` has the canonical names of their projects in this
    order."""
    place = {name: number for number, name in enumerate(order)}
    found = sorted(wheels, key=lambda wheel: (place.get(wheel.project, len(place)), wheel.project))
    return [replace(wheel, rank=number) for number, wheel in enumerate(found)]


def wheel_layers(prefix: Prefix, wheels: Sequence[Wheel], python: str) -> tuple[WheelLayer, ...]:
    """Plan the layers of ``wheels``, and return them, lowest first.

    First comes a layer with the files of each huge wheel, then one layer with the bytecode of all huge wheels. Above them is a
    layer for each large wheel, and then one layer for all small wheels.

    Wheels of more than 50 MB are huge. Other wheels of more than 1 MB are large; this limit is higher if there would be too
    many layers. Wheels of the same class keep the given order. Huge wheels are lowest, so that an engine can load them while
    other layers are still being made.

    The bytecode of all huge wheels is directly above their files. The bytecode of any other wheel is in the same layer as its
    files. So if a wheel in a higher layer has a module at the same path, it replaces both the module and the bytecode.
    ``python`` identifies the interpreter that makes the bytecode.
    """
    if compile_program.depends_on_company(prefix.python.version):
        python += _BATCHES
    sizes = sorted((wheel.size for wheel in wheels), reverse=True)
    limit = max(_LARGE, sizes[_MOST - 1]) if len(sizes) >= _MOST else _LARGE
    huge = tuple(wheel for wheel in wheels if wheel.size > max(limit, _HUGE))
    large = [wheel for wheel in wheels if wheel.size > limit and wheel not in huge]
    small = tuple(wheel for wheel in wheels if wheel.size <= limit)
    groups: list[tuple[tuple[Wheel, ...], Holds]] = [((wheel,), "files") for wheel in huge]
    groups += [(huge, "bytecode"), *(((wheel,), "all") for wheel in large), (small, "all")]
    return tuple(
        WheelLayer(prefix=prefix, wheels=group, holds=holds, key=_key(prefix, group, holds, python), python=python)
        for group, holds in groups
        if group
    )


def interpreter(lock: Lock, prefix: Prefix) -> str | None:
    """The identity of the interpreter of ``prefix``, from the lock alone; None if the lock does not pin the interpreter's
    files."""
    python = prefix.python
    if python.is_fetched:
        pins = [file.sha256 for file in python.files]
    else:
        packages = {package.name: package.sha256 for package in lock.image_packages()}
        pins = [sha256 for name, sha256 in sorted(packages.items()) if _PYTHON_PACKAGE.fullmatch(name)]
    return hashlib.sha256(" ".join([python.executable, *pins]).encode()).hexdigest() if pins else None


def _key(prefix: Prefix, wheels: Sequence[Wheel], holds: Holds, python: str) -> str:
    parts = {
        "rules": RULES,
        "wheels": [wheel.sha256 for wheel in wheels],
        "prefix": prefix.path,
        "holds": holds,
        "python": [prefix.python.version, "" if holds == "files" else python],
        "installer": prefix.backend,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
