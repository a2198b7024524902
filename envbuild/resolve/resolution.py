"""Resolves a request to its environment with reasons and warnings, or to a refusal that explains itself."""

from __future__ import annotations

from envbuild.matrix.types import Matrix
from envbuild.model.resolution import Resolution
from envbuild.resolve.choice import choose_for
from envbuild.resolve.environment import environment_of
from envbuild.resolve.explain.build_details import details_of
from envbuild.resolve.explain.overlay_notes import overlaid_rows
from envbuild.resolve.explain.reasons import reasons
from envbuild.resolve.explain.unsupported_addons import refuse_unsupported
from envbuild.resolve.explain.warnings import warnings
from envbuild.resolve.request.model import Request
from envbuild.resolve.search.candidates import Candidate
from envbuild.resolve.search.search import Search


def resolve(matrix: Matrix, request: Request) -> Resolution:
    """The environment for a request, with reasons and warnings.

    Raises :class:`ConflictError` with the conflicting rows and the nearest alternatives if no environment satisfies the
    request.
    """
    refuse_unsupported(matrix, request)
    search, chosen = choose_for(matrix, request)
    if chosen is not None:
        return decide(search, chosen)
    from envbuild.resolve.explain.conflict_error import refusal

    raise refusal(search)


def decide(search: Search, chosen: Candidate) -> Resolution:
    """The resolution for a candidate that satisfies the request."""
    lookup, request = search.lookup, search.request
    environment = environment_of(lookup, request, chosen)
    return Resolution(
        request=request.text,
        environment=environment,
        reasons=reasons(lookup, request, chosen, environment),
        warnings=warnings(search, chosen),
        overlaid=overlaid_rows(lookup.matrix, environment, request.gpus),
        details=details_of(lookup.matrix, environment),
    )
