"""Find the releases of a base framework that are compatible with an add-on, and the builds of the add-on on these releases.

A pair is a release of an add-on together with a release of its base framework. A pair is *tested* by upstream, *allowed* but
not tested (chosen with a warning), or *known bad* (refused).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

from envbuild.matrix.platform import Provenance
from envbuild.matrix.types import Added, BadPair, FrameworkTable, Pairs, Release, Requirement, Variant
from envbuild.matrix.versions import numbers

Word = Literal["tested", "allowed"]
Make = Callable[[Pairs, Release], Iterable[Variant]]

_THEIRS = ("python", "cuda", "cudnn", "nccl", "capabilities", "glibc", "systems", "index")
# The statuses from best to worst. A build of an add-on has the worse status of its own row and the base framework's row.
DOUBTS = ("ok", "end-of-life", "base-deleted", "unknown", "known-bad")


def pairs_with(release: Release, framework: str) -> Pairs | None:
    """Return the facts of an add-on's release about its base ``framework``; None if ``framework`` is not a base framework of
    the add-on."""
    return next((pairs for pairs in release.pairs if pairs.framework == framework), None)


def word_of(release: Release, variant: Variant) -> Word | None:
    """Return what upstream says about the pair of a build and its base framework; None for a build without a base framework."""
    if not variant.upon:
        return None
    name, version, _ = variant.upon[0]
    pairs = pairs_with(release, name)
    return "tested" if pairs is None or pairs.is_tested(version, variant.cuda) else "allowed"


def source_of(release: Release, variant: Variant) -> str:
    """Return the document that supports the answer of :func:`word_of`."""
    pairs = pairs_with(release, variant.upon[0][0])
    if pairs is None:
        return variant.origin.source_of("upon")
    if word_of(release, variant) == "allowed":
        return pairs.allows_source
    return (variant.upon[0][1] == pairs.takes(variant.cuda) and pairs.default_source) or pairs.source


def bad_pair(pairs: Pairs, version: str) -> BadPair | None:
    """Return why ``version`` is known not to work, or None."""
    return next((bad for bad in pairs.bad if version in bad.releases), None)


def range_of(pairs: Pairs) -> str:
    """Describe the compatible releases: the range that upstream states, else the tested releases."""
    return f"{pairs.framework}{pairs.allows}" if pairs.allows else f"{pairs.framework} {', '.join(pairs.tested)}"


def other_builds(
    release: Release, base: FrameworkTable, accepts: Callable[[Release], bool], make: Make | None = None
) -> Iterator[Variant]:
    """Return the builds of an add-on's ``release`` that are based on releases of ``base`` other than the default release.
    Builds on tested releases come first.

    Callers that cache the builds pass ``make`` in place of :func:`upon`.
    """
    pairs = pairs_with(release, base.name)
    if pairs is None:
        return
    known = {each.version: each for each in base.releases}
    for version in (*pairs.tested, *pairs.allowed):
        if {version} != {pairs.taken, pairs.taken_cuda} and version in known and accepts(known[version]):
            yield from (built for built in (make or upon)(pairs, known[version]) if version != pairs.takes(built.cuda))


def upon(pairs: Pairs, below: Release) -> Iterator[Variant]:
    """Return the builds of an add-on on the release ``below`` of its base framework."""
    for variant in below.variants:
        built = built_upon(variant, (pairs.framework, below.version), pairs.added)
        if built.python and variant.name not in pairs.added.without:
            yield built


def built_upon(variant: Variant, of: tuple[str, str], added: Added) -> Variant:
    """Make a build of an add-on from ``variant``, a build of the base framework. ``of`` is the name and the version of the base
    framework. ``added`` are the additions of the add-on's release."""
    held: tuple[Requirement, ...] = ()
    package: dict[str, Any] = {}
    if added.package:
        held = tuple(Requirement(requirement=pin, python="", source="") for pin in variant.pins(of[1]))
        package = {
            "package": added.package,
            "requirement": added.package,
            "local_version": variant.local_version if added.same_local_version else "",
            "repository": added.repository,
            "revision": added.revision,
            "files": (),
            "nvcc": added.nvcc,
            "optional_nvcc": added.optional_nvcc,
        }
    rules = tuple(each for each in added.bad_capabilities if not each.cuda or variant.cuda in each.cuda)
    bad = {capability for each in rules for capability in each.capabilities}
    is_newer = bool(added.glibc and variant.glibc) and numbers(added.glibc) > numbers(variant.glibc)
    python = tuple(python for python in variant.python if not added.pythons or python in added.pythons)
    own = [field for field, is_own in (("glibc", is_newer), ("python", python != variant.python)) if is_own]
    return variant._replace(
        requirements=(*held, *variant.requirements, *added.requirements),
        constraints=(*variant.constraints, *added.constraints),
        asks=(*variant.asks, *added.asks),
        python=python,
        options=tuple(sorted({**dict(variant.options), **dict(added.options)}.items())),
        glibc=added.glibc if is_newer else variant.glibc,
        sass=tuple(each for each in variant.sass if each not in bad and each not in added.only_ptx),
        only_ptx=(*variant.only_ptx, *(each for each in added.only_ptx if each in variant.sass)),
        bad_capabilities=(*variant.bad_capabilities, *rules),
        upon=((*of, variant.name), *variant.upon),
        contradicts=added.contradicts,
        origin=_origin(added.origin, variant.origin, own),
        **package,
    )


def _origin(ours: Provenance, theirs: Provenance, own: Iterable[str]) -> Provenance:
    """Return the provenance of an add-on's build. ``ours`` is the provenance of the add-on's row, and ``theirs`` that of the
    base framework's row. For Python, CUDA and the libraries, the result names the documents of ``theirs``. For the fields in
    ``own``, which the add-on states itself, it names the documents of ``ours``."""
    worst = max(ours, theirs, key=lambda origin: DOUBTS.index(origin.status))
    fields = {field: theirs.sources[:1] for field in _THEIRS} | dict(theirs.fields)
    fields |= dict.fromkeys(own, ours.sources[:1]) | dict(ours.fields)
    return ours._replace(
        sources=tuple(dict.fromkeys((*ours.sources, *theirs.sources))),
        status=worst.status,
        note=worst.note or ours.note,
        fields=tuple(fields.items()),
    )
