"""Add the libraries that objects open by a name that they compute at run time, so that the loader's search is checked for them.

Such a name is in no part of the object that the loader reads. The rules in ``images/linking.yaml`` list these names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from envbuild.linkcheck.model import Gap, LayerFacts
from envbuild.linkcheck.package_rules import holding
from envbuild.linkcheck.rules import LinkRules, Opens
from envbuild.linkcheck.tree import Tree, folder_of_packages


def find(tree: Tree, rules: LinkRules) -> dict[str, Opens]:
    """Map the path of each object that opens libraries by computed names to its rule."""
    of_folder = holding(tree.paths(), rules.opens)
    found: dict[str, Opens] = {}
    for path, _ in tree.objects() if of_folder else ():
        folder = folder_of_packages(path)
        for each in of_folder.get(folder, ()):
            if fnmatchcase(path[len(folder) :], each.objects):
                found.setdefault(path, each)
    return found


def added(layers: Iterable[LayerFacts], opening: Mapping[str, Opens]) -> list[LayerFacts]:
    """Return the layers after a change: the objects in ``opening`` also need the libraries that they open. So the check finds
    these libraries as the loader does, which searches for opened and for needed libraries in the same way."""
    return [
        replace(
            layer,
            objects={
                path: replace(facts, needed=tuple(dict.fromkeys([*facts.needed, *opening[path].libraries])))
                if path in opening
                else facts
                for path, facts in layer.objects.items()
            },
        )
        for layer in layers
    ]


def explained(gaps: Sequence[Gap], opening: Mapping[str, Opens], *, excuse: str) -> list[Gap]:
    """Return the gaps after a change: a gap about an opened library also says why the object opens it, and gets ``excuse``."""
    return [
        replace(gap, cause=f"{opening[gap.object].reason}; {gap.cause}", excuse=excuse)
        if gap.kind == "library" and gap.object in opening and gap.needs in opening[gap.object].libraries
        else gap
        for gap in gaps
    ]
