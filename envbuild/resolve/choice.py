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

    If the default release of an add-on's base framework does not fit, other releases of the base framework are tried. The first
    release that fits becomes part of the environment and of the environment's name.
    """
    search = Search(lookup_of(matrix), request)
    chosen = choose(search)
    named = with_bases(matrix, request) if chosen is None else None
    if named is not None:
        wider = Search(search.lookup, named)
        if (found := choose(wider)) is not None:
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
        if exact is not None and environment_of(search.lookup, request, exact).name.lower() == request.text.lower():
            return exact
    return chosen


def _exact(wanted: Wanted) -> Wanted:
    """Return ``wanted``, limited to the release with exactly the named version. If there is no such release, return ``wanted``
    unchanged."""
    version = wanted.version.removeprefix("==")
    known = any(release.version == version for release in wanted.framework.releases)
    return wanted._replace(version=f"==={version}") if known else wanted
