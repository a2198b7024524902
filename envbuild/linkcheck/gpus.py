"""Find for which GPUs the libraries of an image have code, and for which GPUs its compilers can compile."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from envbuild.linkcheck.model import ElfFacts
from envbuild.linkcheck.rules import LinkRules
from envbuild.linkcheck.tree import folder_of_packages

_COUNTED = ("native", "ptx", "partly", "nothing")


def gpu_code(objects: Mapping[str, ElfFacts], rules: LinkRules) -> list[dict[str, Any]]:
    """For each object with GPU code: the GPUs of this code, and the library to which the object belongs. Objects whose GPU code
    was not read are included."""
    return [
        {
            "object": path,
            "library": _library(path, facts, rules),
            "native": list(facts.native),
            "ptx": list(facts.ptx),
            "some_native": list(facts.some_native),
            "some_ptx": list(facts.some_ptx),
            "whole": not facts.hides_code,
        }
        for path, facts in objects.items()
        if facts.native or facts.ptx or facts.some_native or facts.some_ptx or facts.hides_code
    ]


def _library(path: str, facts: ElfFacts, rules: LinkRules) -> str:
    """The family of an object. If the object has no family, the Python package that contains the object, or else the object's
    name."""
    name = facts.soname or posixpath.basename(path)
    if family := rules.family_of(name):
        return family.name
    folder = folder_of_packages(path)
    return path[len(folder) :].partition("/")[0] if folder else name


def gpus(code: Sequence[Mapping[str, Any]], known: Mapping[str, Sequence[str]]) -> list[dict[str, Any]]:
    """Return, as JSON, an entry for each compute capability, with the names of its GPUs. Each entry counts the objects that
    have native code, only PTX, code for some kernels, or nothing for this capability, and says what each library has.

    The value for a library is ``partly`` if some of its objects or kernels have code for the capability and others do not. The
    value is ``unknown`` if the GPU code of an object cannot be read.
    """
    told = []
    for capability in sorted(known, key=_version) if code else ():
        ways = [_way(each, capability) for each in code]
        counts = {way: ways.count(way) for way in _COUNTED}
        of_library: dict[str, set[str]] = {}
        for each, way in zip(code, ways, strict=True):
            of_library.setdefault(each["library"], set()).add(way)
        libraries = {library: _joined(found) for library, found in sorted(of_library.items())}
        told.append({"capability": capability, "gpus": sorted(known[capability]), **counts, "libraries": libraries})
    return told


def _joined(ways: set[str]) -> str:
    if len(ways) == 1 or "unknown" in ways:
        return "unknown" if "unknown" in ways else next(iter(ways))
    return "partly" if ways & {"nothing", "partly"} else "ptx"


def _way(code: Mapping[str, Any], capability: str) -> str:
    """How this code runs on a GPU with ``capability``: as native code, as PTX, in some kernels only, or not at all."""
    if way := _runs(code["native"], code["ptx"], capability):
        return way
    if _runs(code["some_native"], code["some_ptx"], capability):
        return "partly"
    return "nothing" if code["whole"] else "unknown"


def _runs(native: Iterable[str], ptx: Iterable[str], capability: str) -> str:
    """How code for these GPUs runs on a GPU with ``capability``; empty if it does not run.

    Native code runs on its own capability and on later ones of the same major version. Code for ``9.0a`` runs only on 9.0. Code
    for a family (``10.0f``) runs within the major version. PTX runs on its own capability and on all later ones.
    """
    major, minor = _version(capability)[:2]
    for each in native:
        m, n = _version(each.rstrip("af"))[:2]
        if (m, n) == (major, minor) or (m == major and n <= minor and not each.endswith("a")):
            return "native"
    plain = [each for each in ptx if not each.endswith(("a", "f"))]
    return "ptx" if any(_version(each)[:2] <= (major, minor) for each in plain) else ""


def compilers(objects: Mapping[str, ElfFacts], rules: LinkRules) -> list[dict[str, Any]]:
    """The compilers for GPUs in the image. For each compiler, ``highest`` is the highest compute capability that occurs in its
    file, or empty."""
    return [
        {"compiler": name, "object": path, "highest": _highest(facts.architectures)}
        for path, facts in objects.items()
        if (name := rules.compiler_of(posixpath.basename(path)))
    ]


def _highest(architectures: Iterable[str]) -> str:
    return max((each.rstrip("af") for each in architectures), key=_version, default="")


def _version(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")))
