"""From a request to an environment, or to a refusal that explains itself.

Pure: no clock, network, environment or working directory. The same matrix and request give the same answer, byte for byte.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from envbuild.lazily import exported
from envbuild.matrix.types import Matrix
from envbuild.model import Resolution
from envbuild.resolve.answer import answer
from envbuild.resolve.decide import choose_for, decide
from envbuild.resolve.details import details_of
from envbuild.resolve.overlaid import overlaid
from envbuild.resolve.parse import parse
from envbuild.resolve.request import Request

if TYPE_CHECKING:
    from envbuild.resolve.accept import refusals
    from envbuild.resolve.explanation import Explanation, explain, explanation_json
    from envbuild.resolve.listing import Filters, Row, catalogue, doubts
    from envbuild.resolve.stack import departures, explain_stack, resolve_stack

__all__ = [
    "Explanation",
    "Filters",
    "Request",
    "Row",
    "answer",
    "catalogue",
    "departures",
    "details_of",
    "doubts",
    "explain",
    "explain_stack",
    "explanation_json",
    "overlaid",
    "parse",
    "refusals",
    "resolve",
    "resolve_stack",
]

# A module here must not have the name of what it offers: importing it would take that name's place in the package.
__getattr__ = exported(
    __name__,
    accept="refusals",
    explanation="Explanation explain explanation_json",
    listing="Filters Row catalogue doubts",
    stack="departures explain_stack resolve_stack",
)


def resolve(matrix: Matrix, request: Request) -> Resolution:
    """The environment for a request, with reasons and warnings.

    Raises :class:`ConflictError` with the conflicting rows and the nearest alternatives where nothing satisfies it.
    """
    search, chosen = choose_for(matrix, request)
    if chosen is not None:
        return decide(search, chosen)
    from envbuild.resolve.refuse import refusal

    raise refusal(search)
