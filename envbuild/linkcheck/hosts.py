"""Check whether an image's glibc is new enough for libraries of the host.

With its option ``--nv``, Apptainer mounts libraries of the host into the container, and programs load them first.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envbuild import files
from envbuild.errors import InvalidInputError
from envbuild.linkcheck.model import ElfFacts
from envbuild.workspace import HOST_LIBRARIES

_LIBC, _VERSION = "libc.so.6", "GLIBC_"


@dataclass(frozen=True, kw_only=True, slots=True)
class HostLibraries:
    """Facts about the libraries of hosts. ``hosts`` maps each host to its libraries, and each of these libraries to the glibc
    version that it needs. ``loads`` maps a library to the libraries that it loads."""

    hosts: Mapping[str, Mapping[str, str]]
    loads: Mapping[str, Sequence[str]]


def load(images: Path) -> HostLibraries:
    """Read ``images/host-libraries.json``. Raises :class:`InvalidInputError` if the file is damaged."""
    path = images / HOST_LIBRARIES
    try:
        told = json.loads(files.read_text(path))
        hosts = {
            str(host): {str(name): str(glibc) for name, glibc in libraries.items() if _numbers(glibc)}
            for host, libraries in told["hosts"].items()
        }
        loads = {str(name): [str(each) for each in others] for name, others in told["loads"].items()}
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise InvalidInputError(
            f"{path} cannot be read: {str(error)[:200]}.", code="host-libraries", hint="Restore the file."
        ) from error
    return HostLibraries(hosts=hosts, loads=loads)


def check(objects: Mapping[str, ElfFacts], known: HostLibraries) -> dict[str, Any]:
    """Return, as JSON, the image's glibc and an entry for each host.

    The entry has the host's libraries that the image uses, the highest glibc that these libraries need, and the libraries among
    them that need a newer glibc than the image has.
    """
    glibc = _glibc(objects)
    used = _used(objects)
    told = []
    for host, libraries in known.hosts.items():
        bound = sorted(_closure(used & libraries.keys(), known.loads) & libraries.keys())
        needs = max((libraries[name] for name in bound), key=_numbers, default="")
        lacking = [name for name in bound if glibc and _numbers(libraries[name]) > _numbers(glibc)]
        told.append({"host": host, "libraries": bound, "glibc": needs, "too_new": lacking})
    return {"glibc": glibc, "bound": told}


def notes(told: Mapping[str, Any]) -> list[str]:
    """Notes about hosts with libraries that the image cannot load."""
    return [
        f"Apptainer's --nv loads libraries of the host into the container: on {each['host']}, {', '.join(each['too_new'])} "
        f"need glibc {each['glibc']}, but the image has glibc {told['glibc']}"
        for each in told["bound"]
        if each["too_new"]
    ]


def _glibc(objects: Mapping[str, ElfFacts]) -> str:
    """The highest glibc version that a C library of the image defines; empty if the image has no C library."""
    found = {
        version.removeprefix(_VERSION)
        for facts in objects.values()
        if facts.soname == _LIBC
        for version in facts.defines
        if version.startswith(_VERSION) and version.removeprefix(_VERSION)[:1].isdigit()
    }
    return max(found, key=_numbers, default="")


def _used(objects: Mapping[str, ElfFacts]) -> set[str]:
    """The libraries that the objects need, and the driver libraries whose names the objects contain."""
    needed = {name for facts in objects.values() for name in facts.needed}
    return needed | {f"{name}.1" for facts in objects.values() for name in facts.opens}


def _closure(names: Iterable[str], loads: Mapping[str, Sequence[str]]) -> set[str]:
    found: set[str] = set()
    left = list(names)
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += loads.get(name, ())
    return found


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")))
