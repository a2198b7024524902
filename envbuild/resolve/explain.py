"""The whole story of a request: the decision with what was passed over for it, or the refusal."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from envbuild.errors import Conflict, ConflictError
from envbuild.matrix.types import Matrix
from envbuild.model import Resolution
from envbuild.resolve.choose import Candidate, build_objections, mismatches
from envbuild.resolve.decide import choose, decide
from envbuild.resolve.facts import Facts, row_of
from envbuild.resolve.places import places
from envbuild.resolve.refuse import refusal
from envbuild.resolve.request import Request
from envbuild.resolve.rivals import Rival, rivals


@dataclass(frozen=True, kw_only=True, slots=True)
class Explanation:
    """Either ``resolution`` or ``error``.

    ``choices`` names the next best of each choice; ``passed_over`` the builds that come before the chosen one, each with its
    reason.
    """

    request: str
    resolution: Resolution | None
    choices: tuple[Rival, ...]
    passed_over: tuple[Conflict, ...]
    error: ConflictError | None


def explain(matrix: Matrix, request: Request) -> Explanation:
    """Why a request is answered as it is. A refusal is part of the answer here, not raised."""
    facts = Facts(matrix)
    chosen = choose(facts, request)
    if chosen is None:
        error = refusal(facts, request)
        return Explanation(request=request.text, resolution=None, choices=(), passed_over=(), error=error)
    return Explanation(
        request=request.text,
        resolution=decide(facts, request, chosen),
        choices=rivals(facts, request, chosen),
        passed_over=tuple(_passed_over(facts, request, chosen)),
        error=None,
    )


def _passed_over(facts: Facts, request: Request, chosen: Candidate) -> list[Conflict]:
    """For each build that comes before the chosen one: the first fact against it."""
    found: list[Conflict] = []
    for release in request.framework.releases:
        if not request.accepts_release(release):
            continue
        for variant in release.variants:
            if release == chosen.release and variant == chosen.variant:
                return found
            row = row_of(request.framework.name, release, variant)
            against = build_objections(facts, request, release, variant)
            if against:
                first = against[0].conflict
                reason = first.reason if first.row == row else f"{first.row}: {first.reason}"
                found.append(Conflict(row=row, reason=reason, source=first.source))
                continue
            wrong = {part for place in places(facts, variant, request.image) for part in mismatches(request, place)}
            reason = (
                f"no place fits the request's {', '.join(sorted(wrong))}" if wrong else "no system of the matrix can serve it"
            )
            found.append(Conflict(row=row, reason=reason, source=variant.origin.source))
    return found


def explanation_json(explanation: Explanation) -> dict[str, Any]:
    """What ``explain --json`` prints."""
    from envbuild.resolve.answer import answer

    found: dict[str, Any] = {"schema": 1, "request": explanation.request}
    if explanation.resolution is not None:
        found["decision"] = answer(explanation.resolution, ())
        found["choices"] = [asdict(rival) for rival in explanation.choices]
        found["passed_over"] = [asdict(conflict) for conflict in explanation.passed_over]
    if explanation.error is not None:
        found["error"] = explanation.error.to_json()
    return found
