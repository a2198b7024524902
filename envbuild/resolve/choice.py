"""Chooses the candidate for a request: the first candidate, in the order of choice, that satisfies the request."""

from __future__ import annotations

from envbuild.matrix.types import Matrix
from envbuild.resolve.environment import environment_of
from envbuild.resolve.request.model import Request, Wanted
from envbuild.resolve.search.addon_builds import with_bases
from envbuild.resolve.search.candidates import Candidate
from envbuild.resolve.search.lookup import lookup_of
from envbuild.resolve.search.search import Search


def choose_for(matrix: Matrix, request: Request) -> tuple[Search, Candidate | None]:
    """Return the first candidate that satisfies a request, and the search that found this candidate.

    The request may name an add-on without the release of its base framework. First, the default release of the base framework
    is tried. If it does not satisfy the request, other releases are tried. They are also tried if the default release is not
    ideal for the requested GPUs, for example because it has only PTX for them. Another release is chosen then only if it is
    better for these GPUs. The chosen release becomes part of the environment and of the environment's name.
    """
    search = Search(lookup_of(matrix), request)
    chosen = choose(search)
    rank = search.worst_rank_on_gpus(chosen.builds) if chosen is not None else ()
    try_others = chosen is None or (any(rank) and not _is_named(search, chosen))
    named = with_bases(matrix, request) if try_others else None
    if named is not None:
        wider = Search(search.lookup, named)
        found = choose(wider)
        if found is not None and (chosen is None or wider.worst_rank_on_gpus(found.builds) < rank):
            return wider, found
    return search, chosen


def choose(search: Search) -> Candidate | None:
    """The first candidate in the order of choice that satisfies the whole request, or None.

    A canonical name means exactly the environment with that name. This is true even if a version in the name is also the
    beginning of a newer version, as 2.5 is of 2.5.1.
    """
    request = search.request
    chosen = search.first()
    if chosen is None:
        return None
    wanted = tuple(_exact(each) for each in request.wanted)
    if not all(each.accepts(build.release) for each, build in zip(wanted, chosen.builds, strict=True)):
        again = Search(search.lookup, request._replace(wanted=wanted))
        exact = again.first()
        if exact is not None and _is_named(search, exact):
            return exact
    return chosen


def _is_named(search: Search, candidate: Candidate) -> bool:
    """Whether the request is the canonical name of a candidate."""
    request = search.request
    return environment_of(search.lookup, request, candidate).name.lower() == request.text.lower()


def _exact(wanted: Wanted) -> Wanted:
    """Return ``wanted``, limited to the release with exactly the named version. If there is no such release, return ``wanted``
    unchanged."""
    version = wanted.version.removeprefix("==")
    known = any(release.version == version for release in wanted.framework.releases)
    return wanted._replace(version=f"==={version}") if known else wanted
