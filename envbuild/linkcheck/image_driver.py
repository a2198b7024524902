"""Find which objects of an image load a driver library that the image itself contains.

NVIDIA's package cuda-compat puts such a library into an image. It counts only for objects whose search finds it: the package's
folder is in no search path unless somebody adds it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from envbuild.linkcheck.loader import Loader
from envbuild.linkcheck.model import ElfFacts, LayerFacts
from envbuild.linkcheck.rules import OF_CUDA, STUBS, DriverLibrary, LinkRules
from envbuild.linkcheck.tree import Tree


def loaded(
    layers: Sequence[LayerFacts], objects: Mapping[str, ElfFacts], environment: Mapping[str, str], rules: LinkRules
) -> dict[str, frozenset[str]]:
    """Map objects to the driver libraries (paths in the image) that the loader finds for them.

    The result has objects that are linked with a driver library, and libraries of CUDA, which open the driver's library by its
    name. Objects for which the loader finds nothing in the image are left out. ``layers`` are in order, the lowest first.
    """
    held = {each.library for each in rules.driver} & {facts.soname for path, facts in objects.items() if STUBS not in path}
    if not held:
        return {}
    probes = {path: facts for path, facts in _probes(objects, rules) if held.intersection(facts.needed)}
    # In this tree, each object needs only the driver's libraries, so the loader searches for nothing else.
    loader = Loader(Tree([*layers, LayerFacts(objects=probes, files=[*probes])]), environment)
    found: dict[str, frozenset[str]] = {}
    for path in probes:
        process = loader.load(path, program=None, held={})
        files = {each.real for each in process.found.values() if STUBS not in each.real} if process is not None else set()
        if files:
            found[path] = frozenset(files)
    return found


def _probes(objects: Mapping[str, ElfFacts], rules: LinkRules) -> Iterator[tuple[str, ElfFacts]]:
    for path, facts in objects.items():
        names = tuple(each.library for each in rules.driver if _uses(facts, each))
        if names:
            yield path, replace(facts, needed=names, versions={}, wanted=())


def _uses(facts: ElfFacts, driver: DriverLibrary) -> bool:
    by_name = bool(OF_CUDA.fullmatch(facts.soname)) or driver.library.removesuffix(".1") in facts.opens
    return driver.library in facts.needed or by_name
