"""Find what the objects of an image need from the NVIDIA driver."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from envbuild import files
from envbuild.errors import InvalidInputError
from envbuild.linkcheck.model import ElfFacts, Gap, RequiredDriver
from envbuild.linkcheck.rules import OF_CUDA, STUBS, LinkRules
from envbuild.model.progress import counted
from envbuild.workspace import DRIVER_SYMBOLS

_SHOWN = 5
_RUNTIME = "libcudart.so."
_NOTHING: Mapping[str, Collection[str]] = {}


@dataclass(frozen=True, kw_only=True, slots=True)
class DriverSymbols:
    """The symbols of the driver's libraries. ``libraries`` maps each library to its symbols, and each symbol to the oldest
    driver that has it. Only some drivers were read.

    ``headers`` maps each library to functions, and each function to the first CUDA whose header declares it. These are only
    functions that the oldest driver that was read lacks.
    """

    libraries: Mapping[str, Mapping[str, str]]
    drivers: tuple[str, ...]
    headers: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def before(self, driver: str) -> str:
        """The newest driver that was read and is older than ``driver``; empty if ``driver`` is the oldest one that was read."""
        at = self.drivers.index(driver)
        return self.drivers[at - 1] if at else ""

    def first(self, library: str, symbol: str, toolkits: Mapping[str, str]) -> _First | None:
        """The oldest driver that is known to have ``symbol``. ``toolkits`` maps each CUDA version to the driver that came with
        it."""
        read = self.libraries.get(library, {}).get(symbol, "")
        declared = toolkits.get(self.headers.get(library, {}).get(symbol, ""), "")
        if not read and not declared:
            return None
        lacks = self.before(read) if read else self.drivers[-1]
        return _First(min(filter(None, (read, declared)), key=_version), lacks)


class _First(NamedTuple):
    """``driver`` is the oldest driver that is known to have a symbol. ``lacks`` is the newest driver that was read and lacks
    the symbol; it may be empty."""

    driver: str
    lacks: str


def load(images: Path) -> DriverSymbols:
    """Read ``images/driver-symbols.json``. Raises :class:`InvalidInputError` if the file is damaged."""
    path = images / DRIVER_SYMBOLS
    try:
        told = json.loads(files.read_text(path))
        libraries, headers = _symbols(told["libraries"]), _symbols(told["headers"])
        drivers = sorted({driver for symbols in libraries.values() for driver in symbols.values()}, key=_version)
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise InvalidInputError(
            f"{path} cannot be read: {str(error)[:200]}.", code="driver-symbols", hint="Restore the file."
        ) from error
    return DriverSymbols(libraries=libraries, drivers=tuple(drivers), headers=headers)


def _symbols(told: Mapping[str, Mapping[str, Sequence[str]]]) -> dict[str, dict[str, str]]:
    return {
        library: {symbol: version for version, lines in by_version.items() for line in lines for symbol in line.split()}
        for library, by_version in told.items()
    }


def _version(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")))


def driver_needs(
    objects: Mapping[str, ElfFacts],
    rules: LinkRules,
    known: DriverSymbols,
    toolkits: Mapping[str, str],
    in_image: Mapping[str, Collection[str]] = _NOTHING,
) -> list[dict[str, Any]]:
    """Return, as JSON, an entry for each library of the driver.

    The entry has the objects that are linked with the library, the objects that contain its name, and a driver that has all
    symbols that the linked objects need. ``lacks`` is a driver that was read and lacks one of these symbols. ``toolkits`` maps
    each CUDA version to the driver that came with it. ``in_image`` maps objects to driver libraries of the image itself that
    the loader finds for them; no other driver library of the image counts.
    """
    names = {each.library for each in rules.driver}
    libraries = [facts for path, facts in objects.items() if STUBS not in path and facts.soname not in names]
    offered = {symbol for facts in libraries for symbol in facts.offers}
    told = []
    for each in rules.driver:
        name = each.library.removesuffix(".1")
        linked = {path: facts for path, facts in objects.items() if each.library in facts.needed}
        wanted = set[str]()
        for path, facts in linked.items():
            own = {symbol for file in in_image.get(path, ()) for symbol in objects[file].offers}
            wanted |= {s for s in facts.wanted if re.match(each.symbols, s) and s not in offered and s not in own}
        found = {symbol: first for symbol in wanted if (first := known.first(each.library, symbol, toolkits)) is not None}
        driver = max((first.driver for first in found.values()), key=_version, default="")
        newest = sorted(symbol for symbol, first in found.items() if first.driver == driver)
        told.append(
            {
                "library": each.library,
                "linked": sorted(linked),
                "opened": sorted(path for path, facts in objects.items() if name in facts.opens and path not in linked),
                "symbols": len(wanted),
                "driver": driver,
                "lacks": max((first.lacks for first in found.values() if first.lacks), key=_version, default=""),
                "newest": newest[:_SHOWN],
                "by": min((path for path, facts in linked.items() if newest and newest[0] in facts.wanted), default=""),
                "unknown": sorted(wanted - set(found)),
            }
        )
    return told


def driver_gaps(needs: Iterable[Mapping[str, Any]], driver: RequiredDriver) -> list[Gap]:
    """The gaps on a machine with ``driver``. A gap exists if a driver that is known to lack a needed symbol is as new as
    ``driver``, or newer."""
    return [
        Gap(
            kind="driver",
            object=each["by"],
            needs=f"{each['library']}: {each['newest'][0]}",
            cause=f"{driver.whose} is {driver.version}, and the driver {each['lacks']} does not have this symbol yet; "
            f"{each['driver']} has it",
            remedy=f"a driver newer than {each['lacks']}, such as {each['driver']}",
        )
        for each in needs
        if driver.version and each["lacks"] and _version(driver.version) <= _version(each["lacks"])
    ]


def cuda_of(
    objects: Mapping[str, ElfFacts],
    floors: Mapping[str, str],
    in_image: Mapping[str, Collection[str]] = _NOTHING,
    opened: Mapping[str, Iterable[str]] = _NOTHING,
) -> dict[str, str]:
    """The versions of CUDA to which libraries of the image belong, each with the path of one such library. The result includes
    versions for which ``floors`` has no driver. ``opened`` maps objects to the names of libraries that they open. The CUDA
    whose runtime an object opens counts, too, because the image may lack the runtime itself.

    Libraries in ``in_image`` are left out: the loader finds a driver library of the image itself for them. Such an image has
    NVIDIA's package cuda-compat, which makes CUDA run on older drivers.
    """
    found: dict[str, str] = {}
    names = [(facts.soname, path) for path, facts in objects.items()]
    names += [(name, path) for path, libraries in opened.items() for name in libraries if name.startswith(_RUNTIME)]
    for name, path in names:
        if (match := OF_CUDA.fullmatch(name)) and path not in in_image:
            minor = ".".join(name.partition(".so.")[2].split(".")[:2])
            found.setdefault(minor if minor in floors else match[1], path)
    return dict(sorted(found.items()))


def lowest_driver(cuda: Iterable[str], floors: Mapping[str, str]) -> str:
    """The lowest driver that is new enough for all these versions of CUDA, by NVIDIA's tables (``floors``); empty if none of
    them is in the tables."""
    return max((floors[each] for each in cuda if each in floors), key=_version, default="")


def cuda_gaps(cuda: Mapping[str, str], floors: Mapping[str, str], driver: RequiredDriver) -> list[Gap]:
    """The gaps if ``driver`` is too old for the image's CUDA libraries. ``floors`` maps each CUDA version to its lowest
    driver."""
    return [
        Gap(
            kind="driver",
            object=path,
            needs=f"CUDA {each}",
            cause=f"{driver.whose} is {driver.version}, and CUDA {each} needs {floors[each]} or newer",
            remedy=f"the driver {floors[each]} or newer, or a build for an older CUDA",
        )
        for each, path in cuda.items()
        if driver.version and each in floors and _version(driver.version) < _version(floors[each])
    ]


def cuda_notes(cuda: Mapping[str, str], floors: Mapping[str, str]) -> tuple[str, ...]:
    """Notes about versions of CUDA whose lowest driver is not known."""
    return tuple(
        f"the matrix has no lowest driver for CUDA {each}, so no driver was checked for its libraries, such as {path}"
        for each, path in cuda.items()
        if each not in floors
    )


def driver_notes(needs: Sequence[Mapping[str, Any]], driver: RequiredDriver) -> tuple[str, ...]:
    """Notes about what could not be checked for the driver that the user named."""
    if not driver.version or not driver.is_named:
        return ()
    if not any(each["linked"] or each["opened"] for each in needs):
        return (f"driver {driver.version}: no object of the image uses a library of the driver",)
    notes = []
    for each in needs:
        if each["driver"] and _version(each["lacks"] or "0") < _version(driver.version) < _version(each["driver"]):
            notes.append(
                f"driver {driver.version}: not known whether its {each['library']} has all symbols ({each['symbols']}); "
                f"the driver {each['driver']} has those that are known"
            )
        if each["unknown"]:
            notes.append(f"driver {driver.version}: not known whether it has {', '.join(each['unknown'][:_SHOWN])}")
        if each["opened"]:
            objects = counted(len(each["opened"]), "object")
            notes.append(
                f"driver {driver.version}: it was not checked which symbols of {each['library']} are looked for by {objects}"
            )
    return tuple(notes)
