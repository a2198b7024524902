"""Explains a request completely: the decision with the rejected candidates, or the refusal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from envbuild.errors import Conflict, ConflictError
from envbuild.matrix.types import Matrix
from envbuild.model.resolution import Resolution
from envbuild.resolve.answer_json import answer_json
from envbuild.resolve.choice import choose_for
from envbuild.resolve.explain.conflict_error import refusal
from envbuild.resolve.explain.overlay_notes import marked
from envbuild.resolve.explain.runner_up import Rival, rivals
from envbuild.resolve.explain.unsupported_addons import refuse_unsupported
from envbuild.resolve.request.model import Request
from envbuild.resolve.resolution import decide
from envbuild.resolve.search.build import Build
from envbuild.resolve.search.candidates import Candidate, mismatches
from envbuild.resolve.search.compatibility import clashes_with, together
from envbuild.resolve.search.placement import places
from envbuild.resolve.search.search import Option, Search


@dataclass(frozen=True, kw_only=True, slots=True)
class Explanation:
    """The explanation of a request. Either ``resolution`` or ``error`` is set, the other is None.

    ``choices`` has the runner-up of each choice. ``passed_over`` has the builds that come before the chosen build in the order
    of choice, each with the reason why it was not chosen.
    """

    request: str
    resolution: Resolution | None
    choices: tuple[Rival, ...]
    passed_over: tuple[Conflict, ...]
    error: ConflictError | None


def explain(matrix: Matrix, request: Request) -> Explanation:
    """Explain the answer to a request. If no environment satisfies the request, the error is not raised but is part of the
    explanation. Only the error about an unsupported add-on is raised."""
    refuse_unsupported(matrix, request)
    search, chosen = choose_for(matrix, request)
    if chosen is None:
        return Explanation(request=request.text, resolution=None, choices=(), passed_over=(), error=refusal(search))
    return Explanation(
        request=request.text,
        resolution=decide(search, chosen),
        choices=rivals(search, chosen),
        passed_over=marked(matrix, _passed_over(search, chosen)),
        error=None,
    )


def _passed_over(search: Search, chosen: Candidate) -> Iterator[Conflict]:
    """Yield the builds that come before the chosen build of their framework, each with the first fact against it. The fact is
    about the build alone, or about the build together with the other chosen builds."""
    for build in chosen.builds:
        others = [each for each in chosen.builds if each != build]
        for option in search.options(search.request.wanted_of(build.framework)):
            if option.build == build:
                break
            yield _against(search, option, others)


def _against(search: Search, option: Option, others: Sequence[Build]) -> Conflict:
    row, lookup = option.build.row, search.lookup
    if found := option.objections or clashes_with(lookup, option.build, others):
        first, *rest = sorted((item.conflict for item in found), key=lambda conflict: conflict.row != row)
        reason = first.reason if first.row == row else f"{first.row}: {first.reason}"
        if not option.objections and rest:
            reason += f"; {rest[-1].row} {rest[-1].reason}"
        return Conflict(row=row, reason=reason, source=first.source)
    builds = [*others, option.build]
    beside = " together with the other frameworks" if others else ""
    asked = (search.request.cudnn, search.request.nccl)
    request = search.request
    whole = together(builds)
    possible = places(lookup, whole, request.image, asked, supply=request.python_from, gpus=request.capabilities)
    wrong = {part.kind for place in possible for part in mismatches(search.request, place)}
    if any(not mismatches(search.request, place) for place in possible):
        reason = f"it is for CUDA {option.build.variant.cuda}; builds of all frameworks for one CUDA are preferred"
    elif wrong:
        reason = f"no system or base fits both this build and the requested {', '.join(sorted(wrong))}{beside}"
    else:
        reason = f"no system of the matrix supports it{beside}"
    return Conflict(row=row, reason=reason, source=option.build.variant.origin.source)


def explanation_json(explanation: Explanation) -> dict[str, Any]:
    """The JSON object that ``explain --json`` prints."""
    found: dict[str, Any] = {"schema": 1, "request": explanation.request}
    if explanation.resolution is not None:
        found["decision"] = answer_json(explanation.resolution, ())
        found["choices"] = [asdict(rival) for rival in explanation.choices]
        found["passed_over"] = [conflict._asdict() for conflict in explanation.passed_over]
    if explanation.error is not None:
        found["error"] = explanation.error.to_json()
    return found
