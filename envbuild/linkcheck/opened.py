"""Add the libraries that objects open by name at run time, so that the loader's search is checked for them.

Such a name is in no part of the object that the loader reads. The rules in ``images/linking.yaml`` list these names.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from envbuild.linkcheck.model import ElfFacts, Gap, LayerFacts
from envbuild.linkcheck.package_rules import holding
from envbuild.linkcheck.rules import LinkRules, Opens
from envbuild.linkcheck.tree import Tree, folder_of_packages


def find(tree: Tree, rules: LinkRules, *, has_gpu: bool = True) -> dict[str, Opens]:
    """Map the path of each object that opens libraries by name to its rule; the rule's ``libraries`` are all of these names.

    Without ``has_gpu``, rules for packages that work without a GPU are left out.
    """
    opens = [each for each in rules.opens if has_gpu or not each.works_without_gpu]
    of_folder = holding(tree.paths(), [each for each in opens if each.packages])
    found: dict[str, Opens] = {}
    for path, facts in tree.objects():
        folder, name = folder_of_packages(path), posixpath.basename(path)
        of_packages = (each for each in of_folder.get(folder, ()) if fnmatchcase(path[len(folder) :], each.objects))
        rule = next(of_packages, None) or next((each for each in opens if each.has(name)), None)
        if rule is not None:
            found[path] = replace(rule, libraries=(*rule.libraries, *_constants(facts, rule)))
    return found


def _constants(facts: ElfFacts, rule: Opens) -> Iterable[str]:
    return (name for name in facts.opens if rule.names and re.fullmatch(rule.names, name))


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
    """Return the gaps after a change: a gap about an opened library also says why the object opens it. If its package works
    without a GPU, it gets ``excuse``."""
    return [_explained(gap, opening[gap.object], excuse) if gap.object in opening else gap for gap in gaps]


def _explained(gap: Gap, rule: Opens, excuse: str) -> Gap:
    if gap.kind != "library" or gap.needs not in rule.libraries:
        return gap
    return replace(gap, cause=f"{rule.reason}; {gap.cause}", excuse=excuse if rule.works_without_gpu else "")
