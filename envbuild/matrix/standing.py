"""Releases that stand on another framework: their builds are the builds of what they stand on, with one package more.

Python, CUDA, cuDNN, NCCL, GPU code and everything else about such a build is that framework's row, so that it is written once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from envbuild.matrix.platform import Provenance
from envbuild.matrix.reading import NAME, URL, minors
from envbuild.matrix.types import FrameworkTable, Release, Requirement, Variant
from envbuild.strictyaml import Table

KEYS = ("upon", "package", "python", "local_version", "repository", "revision")
_THEIRS = ("python", "cuda", "cudnn", "nccl", "capabilities", "glibc", "systems", "index")
# From proved to refused: a build is as good as the least proved of its parts.
DOUBTS = ("ok", "end-of-life", "base-deleted", "unknown", "known-bad")

Find = Callable[[Table, str], FrameworkTable | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Own:
    """What a release adds to each build of what it stands on."""

    requirements: tuple[Requirement, ...]
    constraints: tuple[Requirement, ...]
    options: tuple[tuple[str, str], ...]
    contradicts: tuple[tuple[str, str], ...]
    origin: Provenance


@dataclass(frozen=True, kw_only=True, slots=True)
class _Terms:
    """``package`` is empty where what it stands on holds it already; ``pythons`` where it runs on all of that one's."""

    package: str
    pythons: tuple[str, ...]
    same_local_version: bool
    repository: str
    revision: str


def standing(levels: Sequence[Table], number: str, find: Find, own: Own) -> list[Variant]:
    """The builds of release ``number``. ``levels`` are its tables, the most particular first: a key is read from the first
    that has it.

    Where two that it stands upon bring the same CUDA in the same way, the first named is it.
    """
    of = {key: next((table for table in levels if key in table), levels[-1]) for key in KEYS}
    terms = _Terms(
        package=of["package"].text("package", "", pattern=NAME),
        pythons=minors(of["python"], "python"),
        same_local_version=of["local_version"].text("local_version", "", choices=("same",)) == "same",
        repository=of["repository"].text("repository", "", pattern=URL),
        revision=of["revision"].text("revision", "", pattern=r"\S+"),
    )
    bases = of["upon"].text_map("upon")
    if bool(terms.repository) != bool(terms.revision):
        levels[0].problem("`repository` goes with `revision`")
    if terms.package and not bases:
        of["package"].problem("only a release that stands `upon` another has its package here; others have it in a variant")
    found: list[Variant] = []
    for name, version in bases.items():
        if not terms.package and version != number:
            of["upon"].problem(f"without a package of its own it is {name} {version}, and must have that version", "upon")
        release = _release(of["upon"], find, name, version)
        if terms.package and release and not all(variant.pins(version) for variant in release.variants):
            of["upon"].problem(f"{name} {version} is on no package index: nothing can stand upon it yet", "upon")
        taken = {(variant.cuda, variant.cuda_libraries) for variant in found}
        theirs = [_built(variant, (name, version), terms, own) for variant in (release.variants if release else ())]
        found += [built for built in theirs if built.python and (built.cuda, built.cuda_libraries) not in taken]
    return found


def bounds(variants: Sequence[Variant], table: Table, find: Find) -> list[str]:
    """Until when what the builds stand on takes its dependencies: a package may be older than the patch that it runs upon."""
    below = dict.fromkeys(variant.upon[0][:2] for variant in variants if variant.upon)
    return [release.exclude_newer for name, version in below if (release := _release(table, find, name, version))]


def _release(table: Table, find: Find, name: str, version: str) -> Release | None:
    framework = find(table, name)
    if framework is None:
        return None
    for release in framework.releases:
        if release.version == version:
            return release
    table.problem(f"{name} {version} is in no row", "upon")
    return None


def _built(variant: Variant, of: tuple[str, str], terms: _Terms, own: Own) -> Variant:
    """``variant`` of what is stood on, ``of`` which framework and version, as a build of ours."""
    built = replace(
        variant,
        requirements=(*variant.requirements, *own.requirements),
        constraints=(*variant.constraints, *own.constraints),
        python=tuple(python for python in variant.python if not terms.pythons or python in terms.pythons),
        options=tuple(sorted({**dict(variant.options), **dict(own.options)}.items())),
        upon=((*of, variant.name), *variant.upon),
        contradicts=own.contradicts,
        origin=_origin(own.origin, variant.origin),
    )
    if not terms.package:
        return built
    held = tuple(Requirement(requirement=pin, python="", source=variant.origin.source) for pin in variant.pins(of[1]))
    return replace(
        built,
        package=terms.package,
        requirement=terms.package,
        local_version=variant.local_version if terms.same_local_version else "",
        requirements=(*held, *built.requirements),
        repository=terms.repository,
        revision=terms.revision,
        files=(),
        nvcc=False,
    )


def _origin(ours: Provenance, theirs: Provenance) -> Provenance:
    """Our row's provenance; what it says of Python, CUDA and the libraries comes from the other's documents."""
    worst = max(ours, theirs, key=lambda origin: DOUBTS.index(origin.status))
    fields = {field: theirs.sources[:1] for field in _THEIRS} | dict(theirs.fields) | dict(ours.fields)
    return replace(
        ours,
        sources=tuple(dict.fromkeys((*ours.sources, *theirs.sources))),
        status=worst.status,
        note=worst.note or ours.note,
        fields=tuple(fields.items()),
    )
