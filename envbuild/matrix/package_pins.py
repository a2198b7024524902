"""Find which packages builds require, and whether several builds can share one set of packages.

The metadata of packages is read only when an environment is locked. Rows repeat a part of the metadata: the versions of cuDNN
and NCCL that a build requires from the CUDA vendor's wheels. One set of packages can contain only one version of each library.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable

from envbuild.matrix.types import LibraryNeed, Release, Requirement, Variant
from envbuild.matrix.versions import around, within

_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[[^\]]*\])?\s*([^;@]*)")

# A row that asks for these versions of a package says that the package must be absent.
NO_VERSION = "<0"

# A pin: a package, the Pythons on which it is required (empty for all), and its allowed versions.
Pin = tuple[str, str, str]


def pins_of(release: Release, variant: Variant) -> frozenset[Pin]:
    """Return the pins for the packages that a build requires."""
    stated = [(pin, "") for pin in variant.pins(release.version)]
    stated += [(item.requirement, item.python) for item in (*variant.requirements, *variant.constraints, *variant.asks)]
    read = [(*_read(requirement), python) for requirement, python in stated]
    brought = ((package, "", versions) for package, versions in brings(variant).items())
    return frozenset((*((package, python, versions) for package, versions, python in read), *brought))


def own_pins(choices: Iterable[Requirement]) -> frozenset[Pin]:
    """Convert requirements to pins."""
    return frozenset(
        (package, choice.python, versions) for choice in choices for package, versions in (_read(choice.requirement),)
    )


def brings(variant: Variant) -> dict[str, str]:
    """The CUDA vendor's wheels of cuDNN and NCCL that a build requires, with the allowed versions."""
    found: dict[str, str] = {}
    for library in ("cudnn", "nccl"):
        need: LibraryNeed | None = getattr(variant, library)
        if need is not None and need.taken_from == "wheels":
            bounds = [f">={need.minimum}"] * bool(need.minimum) + [f"<{need.below}"] * bool(need.below)
            versions = f"=={need.prefer}.*" if need.exact else ",".join(bounds)
            found[f"nvidia-{library}-cu{variant.cuda.partition('.')[0]}"] = versions
    return found


def packages_of(variant: Variant) -> set[str]:
    """The packages that a build requires, including the build's own package."""
    own = () if variant.repository or variant.distribution else (variant.requirement,)
    stated = (item.requirement for item in (*variant.requirements, *variant.constraints, *variant.asks))
    return {_read(requirement)[0] for requirement in (*own, *stated)} | set(brings(variant))


@functools.lru_cache(maxsize=4096)
def _read(requirement: str) -> tuple[str, str]:
    match = _REQUIREMENT.match(requirement)
    if match is None:
        return requirement, ""
    return re.sub(r"[-_.]+", "-", match[1]).lower(), match[2].strip(" ()")


def contradiction(pins: Iterable[Pin], python: str) -> str:
    """Return the name of a package if no version of it satisfies all ``pins`` on ``python``; else an empty text."""
    asked: dict[str, set[str]] = {}
    for package, pythons, versions in pins:
        if versions and within(python, pythons):
            asked.setdefault(package, set()).add(versions)
    return next((package for package in sorted(asked) if not _possible(frozenset(asked[package]))), "")


@functools.lru_cache(maxsize=4096)
def _possible(asked: frozenset[str]) -> bool:
    """Whether any version satisfies all of ``asked``."""
    if len(asked) == 1:
        return True
    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.version import InvalidVersion

    try:
        wanted = SpecifierSet(",".join(sorted(asked)))
        return any(wanted.contains(version, prereleases=True) for version in around(str(wanted)))
    except (InvalidSpecifier, InvalidVersion):
        return True  # invalid version conditions count as satisfiable
