"""Makes the error for a request that no environment satisfies, with the conflicts and the alternatives."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from envbuild.errors import Conflict, ConflictError
from envbuild.matrix.libraries import describe
from envbuild.matrix.platform import SITE
from envbuild.resolve.explain.alternatives import alternatives
from envbuild.resolve.explain.conflicts import fewest
from envbuild.resolve.explain.minimal_conflicts import asked, cores, restricted
from envbuild.resolve.explain.overlay_notes import marked
from envbuild.resolve.request.model import BASE, Part, Request
from envbuild.resolve.search.build import Build
from envbuild.resolve.search.hardware import takes_compat
from envbuild.resolve.search.lookup import Lookup
from envbuild.resolve.search.objections import Objection
from envbuild.resolve.search.search import Search

_SHOWN_CONFLICTS = 8
_WORDS = {
    "cuda": "CUDA version", "cudnn": "cuDNN version", "nccl": "NCCL version", "python": "Python version",
    "python-from": "supply of Python",
    "system": "operating system", "gpu": "GPU",
}  # fmt: skip


def refusal(search: Search) -> ConflictError:
    """The error for a request that no environment satisfies."""
    request = search.request
    found = cores(search)
    core, against = clash(search, found)
    nearest = alternatives(search, found)
    shown = f" The most similar request that works: {nearest[0].name} ({nearest[0].changes})." if nearest else ""
    return ConflictError(
        f"No combination satisfies {request.text}.",
        hint=f"{_change(core, against)}{shown}",
        conflicts=marked(search.lookup.matrix, against),
        alternatives=nearest,
    )


def clash(search: Search, found: Sequence[tuple[Part, ...]]) -> tuple[tuple[Part, ...], list[Conflict]]:
    """Return the set of conflicting parts in ``found`` whose explanation has the fewest facts, and these facts."""
    request = search.request
    # Keep the requested versions and CUDA, even if the other parts already conflict without them: the message must be about the
    # requested versions.
    always = [part for part in asked(request) if part.kind in ("version", "cuda")]
    has_remedy = takes_compat(search.lookup, request)
    told = []
    for core in found:
        names = {part.framework for part in core}
        common = _common_bases(request, names)
        names |= common
        bases = [Part("framework", name) for name in common]
        kept = [part for part in always if not part.framework or part.framework in names]
        narrow = (restricted(request, {*core, *bases, *kept, *base}) for base in ((), (BASE,)))
        told += [(core, conflicts(search.lookup, each, has_remedy)) for each in narrow]
    return min(told, key=lambda pair: len(pair[1]))


def _common_bases(request: Request, names: Collection[str]) -> set[str]:
    """The requested frameworks that are the base framework of two or more add-ons in ``names``. Without such a framework, each
    add-on would use its own default base framework."""
    found: list[str] = []
    for wanted in request.wanted:
        if wanted.framework.name in names:
            found += {pairs.framework for release in wanted.framework.releases for pairs in release.pairs}
    return {wanted.framework.name for wanted in request.wanted if found.count(wanted.framework.name) > 1}


def _change(core: tuple[Part, ...], against: Sequence[Conflict]) -> str:
    """Say which parts of the request conflict. If no change of the request helps, say whether site rules are the reason."""
    words = [f"{part.framework} (any version)" if part.kind == "framework" else f"the {_word(part)}" for part in core]
    if not words and any(SITE in conflict.reason for conflict in against):
        return "The site rules of the policy leave no environment for this framework."
    if not words:
        return "The matrix has no environment for this framework at all."
    if len(words) == 1:
        return f"Change {words[0]}: with it, no environment works, even if you change all other parts."
    return f"Change {', '.join(words[:-1])} or {words[-1]}: they do not work together."


def _word(part: Part) -> str:
    return " ".join(filter(None, (part.framework, _WORDS.get(part.kind, part.kind))))


def conflicts(lookup: Lookup, request: Request, has_remedy: bool) -> list[Conflict]:
    """The conflicts of the combination of requested builds that has the fewest conflicts.

    ``has_remedy`` is true if the remedies of objections work on the requested GPUs; then the reasons name the remedies.
    """
    best = fewest(Search(lookup, request))
    if best is None:
        return []
    found = [
        item.conflict._replace(reason=f"{item.conflict.reason}{item.remedy if has_remedy else ''}") for item in best.against
    ]
    if len(best.builds) == 1:
        found += _supporting_facts(request, best.builds[0], best.against)
    elif best.placement_only:
        found += [_demands(build) for build in best.builds]
    return list(dict.fromkeys(found))[:_SHOWN_CONFLICTS]


def _demands(build: Build) -> Conflict:
    """Name the Python, glibc, CUDA and operating system that a build needs."""
    variant = build.variant
    wants = [f"Python {', '.join(variant.python)}", f"glibc {variant.glibc}"]
    wants += [f"CUDA {variant.cuda} in the image"] if variant.cuda_libraries == "system" else []
    wants += [f"one of {', '.join(variant.systems)}"] if variant.systems else []
    return Conflict(row=build.row, reason=f"needs {'; '.join(wants)}", source=variant.origin.source_of("python"))


def _supporting_facts(request: Request, build: Build, against: Sequence[Objection]) -> list[Conflict]:
    """The facts of the build's row that cause the objections of other rows, except facts that the request itself states."""
    variant = build.variant
    known: dict[str, str] = {
        "cuda": "" if request.cuda.startswith("==") else f"is built for CUDA {variant.cuda}",
        "glibc": f"needs glibc {variant.glibc} or newer",
        "python": "" if request.python.startswith("==") else f"supports Python {', '.join(variant.python)}",
        "cudnn": f"needs cuDNN {describe(variant.cudnn)}" if variant.cudnn else "",
        "nccl": f"needs NCCL {describe(variant.nccl)}" if variant.nccl else "",
    }
    wanted = dict.fromkeys(item.supporting_field for item in against if known.get(item.supporting_field))
    return [Conflict(row=build.row, reason=known[field], source=variant.origin.source_of(field)) for field in wanted]
