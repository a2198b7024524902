"""Finds the builds of an add-on that fit a release of its base framework, and says what upstream states about such a pair."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from envbuild.matrix.pairs import pairs_with, source_of, upon, word_of
from envbuild.matrix.types import FrameworkTable, Matrix, Pairs, Release, Variant
from envbuild.model.environment import Framework
from envbuild.resolve.request.model import Request, Wanted
from envbuild.resolve.search.build import Build
from envbuild.resolve.search.lookup import Lookup


def builds_upon(lookup: Lookup, pairs: Pairs, below: Release) -> tuple[Variant, ...]:
    """The builds of an add-on that are based on one release of its base framework."""
    # The key has the id of ``pairs``. The cached value also holds ``pairs``, so that no other object can get the same id.
    return lookup.once("upon", (id(pairs), below.version), lambda: (pairs, tuple(upon(pairs, below))))[1]


def siblings(lookup: Lookup, build: Build) -> Sequence[Variant]:
    """Return all builds of the release to which ``build`` belongs. For an add-on, return only those that are based on the same
    release of the base framework."""
    release, variant = build.release, build.variant
    pairs = pairs_with(release, variant.upon[0][0]) if variant.upon else None
    if pairs is None or {variant.upon[0][1]} == {pairs.taken, pairs.taken_cuda}:
        return release.variants
    below = _release(lookup.matrix, pairs.framework, variant.upon[0][1])
    return builds_upon(lookup, pairs, below) if below else ()


def held_variants(lookup: Lookup, framework: Framework) -> Iterator[Variant]:
    """Return the variants of the matrix that may be meant by a framework of an earlier decision. For an add-on, these are the
    variants that are based on the release which the decision pins. Otherwise, these are all variants that the framework's
    release has today."""
    release = _release(lookup.matrix, framework.name, framework.version)
    if release is None:
        return
    found = [built for pairs in release.pairs for built in _pinned(lookup, pairs, set(framework.requirements))]
    yield from found
    yield from (variant for variant in release.variants if not (found and variant.upon))


def _pinned(lookup: Lookup, pairs: Pairs, pins: set[str]) -> Iterator[Variant]:
    for version in dict.fromkeys((pairs.taken, pairs.taken_cuda, *pairs.tested, *pairs.allowed)) if pairs.added.package else ():
        below = _release(lookup.matrix, pairs.framework, version)
        if below is not None:
            yield from (
                built for built in builds_upon(lookup, pairs, below) if pins.issuperset(pins_upon(lookup.matrix, built))
            )


def pins_upon(matrix: Matrix, variant: Variant) -> tuple[str, ...]:
    """The requirements that install the base framework of an add-on; empty if the add-on and its base framework are in the same
    package."""
    name, version, build = variant.upon[0]
    below = _release(matrix, name, version)
    theirs = next((each for each in below.variants if each.name == build), None) if below else None
    return theirs.pins(version) if theirs is not None and theirs.package != variant.package else ()


def warnings(builds: Sequence[Build]) -> Iterator[str]:
    """Warn about each add-on whose pair with the base release is allowed but not tested by upstream."""
    for build in builds:
        if word_of(build.release, build.variant) == "allowed":
            yield (
                f"{_pair(build)}: upstream allows this combination but has not tested it "
                f"[{source_of(build.release, build.variant)}]."
            )


def reasons(build: Build) -> Iterator[tuple[str, str, str]]:
    """Yield what upstream says about an add-on and its base framework, as (choice, reason, document)."""
    word = word_of(build.release, build.variant)
    pairs = pairs_with(build.release, build.variant.upon[0][0]) if build.variant.upon else None
    if word is None or pairs is None:
        return
    rest = f" ({pairs.framework}{pairs.allows})" if word == "allowed" and pairs.allows else ""
    said = "tested by upstream" if word == "tested" else f"allowed but not tested by upstream{rest}"
    yield _pair(build), f"{said}{_default(pairs, build)}", source_of(build.release, build.variant)


def _default(pairs: Pairs, build: Build) -> str:
    """If upstream did not test the pair, but the pair is the default of the add-on's row, say so. Also name the releases that
    upstream tested."""
    version, cuda = build.variant.upon[0][1], build.variant.cuda
    tested = [each for each in pairs.tested if pairs.is_tested(each, cuda)]
    if version in tested or version != pairs.takes(cuda) or not tested:
        return ""
    return f"; it is the default of {build.framework.name} {build.release.version}; upstream tested {', '.join(tested)}"


def preferred(builds: Sequence[Build], below: Build, versions: Sequence[str]) -> str:
    """The reason why an add-on among ``builds`` is based on ``below`` although the add-on also works with a newer version in
    ``versions`` (newest first).

    The result is empty if the add-on works with none of the newer versions.
    """
    ours = below.release.version
    for build in builds:
        pairs = pairs_with(build.release, below.framework.name)
        if pairs is None or not build.variant.upon or build.variant.upon[0][:2] != (below.framework.name, ours):
            continue
        newer = [each for each in versions[: versions.index(ours)] if each in (*pairs.tested, *pairs.allowed)]
        above, cuda = f"{build.framework.name} {build.release.version}", build.variant.cuda
        tested = next((each for each in newer if pairs.is_tested(each, cuda)), "")
        if newer and pairs.is_tested(ours, cuda) and not tested:
            return f"the newest that upstream tested with {above}; {newer[0]} is allowed but not tested"
        if newer and ours == pairs.takes(cuda):
            rest = f"{tested} is also tested" if tested else f"{newer[0]} is also allowed but not tested"
            return f"the default of {above}; {rest}"
    return ""


def _pair(build: Build) -> str:
    name, version, _ = build.variant.upon[0]
    return f"{build.framework.name} {build.release.version} on {name} {version}"


def with_bases(matrix: Matrix, request: Request) -> Request | None:
    """Return the request with the base frameworks of its add-ons added, in any release. A base framework is added only if
    several of its releases are compatible. None if there is nothing to add."""
    named = {wanted.framework.name for wanted in request.wanted}
    missing: dict[str, FrameworkTable] = {}
    for wanted in request.wanted:
        for release in wanted.framework.releases:
            for pairs in release.pairs if wanted.accepts(release) else ():
                if len(pairs.tested) + len(pairs.allowed) > 1 and pairs.framework not in named:
                    missing[pairs.framework] = next(table for table in matrix.frameworks if table.name == pairs.framework)
    if not missing:
        return None
    more = tuple(Wanted(framework=table, version="", cuda="") for table in missing.values())
    return request._replace(wanted=(*request.wanted, *more))


def _release(matrix: Matrix, name: str, version: str) -> Release | None:
    releases = (release for table in matrix.frameworks if table.name == name for release in table.releases)
    return next((release for release in releases if release.version == version), None)
