"""``evidence``: finds valid and stale proofs of environments, records proofs in the repository, and removes stale proofs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

from envbuild.errors import UnknownNameError, UsageError
from envbuild.pipeline import committed, evidence, proofs, resolving
from envbuild.pipeline.constraints import Constraints
from envbuild.pipeline.evidence import Evidence, Kind, Part, Proof, Unproved
from envbuild.pipeline.tools import Tools

Place = Literal["repository", "cache"]


@dataclass(frozen=True, kw_only=True, slots=True)
class StaleProof:
    """A stale proof, the place that has it, and its inputs that have changed."""

    proof: Proof
    place: Place
    changed: tuple[Part, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class EvidenceRow:
    """The evidence of one environment. ``unrecorded`` proofs are valid, but are only in the cache folder. The kinds in
    ``earlier`` were proved only by an earlier smoke test, for the same image.

    ``orphan`` is true if the repository has evidence of an environment that has no lock. All proofs of it are then stale.
    """

    name: str
    kinds: tuple[Kind, ...]
    proofs: tuple[Proof, ...]
    unrecorded: tuple[Proof, ...]
    stale: tuple[StaleProof, ...]
    unproved: tuple[Unproved, ...]
    contradicted: tuple[Kind, ...]
    earlier: tuple[Kind, ...]
    orphan: bool


def evidence_names(tools: Tools, texts: Sequence[str], constraints: Constraints, *, pattern: str = "") -> list[str]:
    """Return the canonical names for the requests ``texts``. ``pattern`` is a glob that the names must match.

    Without ``texts``, return all environments that have a folder or committed evidence. Raises :class:`UnknownNameError`
    (``nothing-matches``) if no name matches ``pattern``.
    """
    if texts:
        found = [resolving.resolve_request(tools.at([text]), [text], constraints).environment.name for text in texts]
    else:
        recorded = tools.workspace.committed_evidence("x").parent
        found = sorted({*committed.names(tools), *(path.stem for path in recorded.glob("*.json"))})
    matching = [name for name in dict.fromkeys(found) if not pattern or fnmatchcase(name, pattern)]
    if not matching and pattern:
        raise UnknownNameError(
            f"No environment matches {pattern!r}.", code="nothing-matches", hint="`envbuild evidence --all` lists the names."
        )
    return matching


def survey_evidence(tools: Tools, name: str) -> EvidenceRow:
    """Return the evidence of ``name``, with valid and stale proofs in separate fields.

    Raises :class:`InvalidInputError` for a damaged file.
    """
    subject = proofs.subject_of(tools, name)
    order: tuple[Place, Place] = ("repository", "cache")
    places = dict(zip(order, proofs.files_of(tools, name), strict=True))
    on_file = {place: evidence.read(path, name) for place, path in places.items()}
    if subject is None:
        nothing = Evidence(schema=1, name=name, proofs=())
        holding = dict.fromkeys(on_file, nothing)
    else:
        holding = {place: evidence.current(each, subject) for place, each in on_file.items()}
    stale = tuple(
        StaleProof(proof=proof, place=place, changed=evidence.stale_parts(proof, subject) if subject else ("lock",))
        for place, each in on_file.items()
        for proof in each.proofs
        if proof not in holding[place].proofs
    )
    joined = evidence.joined(holding["repository"], holding["cache"])
    renewed: tuple[Kind, ...] = ()
    if subject is not None:
        joined = evidence.current(joined, subject)
        renewed = evidence.renewed(joined, subject)
    return EvidenceRow(
        name=name,
        kinds=evidence.kinds(joined),
        proofs=joined.proofs,
        unrecorded=tuple(proof for proof in joined.proofs if proof not in on_file["repository"].proofs),
        stale=stale,
        unproved=joined.unproved,
        contradicted=tuple(each.kind for each in joined.contradicted),
        earlier=tuple(kind for kind in evidence.kinds(joined) if kind not in renewed),
        orphan=subject is None and places["repository"].exists(),
    )


def record_evidence(tools: Tools, names: Iterable[str]) -> list[Path]:
    """Copy the valid proofs of ``names`` from the cache folder into the repository, and return the changed files.

    Stale proofs in the repository are removed. Raises :class:`UsageError` (``not-a-checkout``) for a user's own recipe, and for
    an installed package.
    """
    require_checkout(tools)
    changed = []
    for name in names:
        committed, cached = proofs.files_of(tools, name)
        subject = proofs.subject_of(tools, name)
        if subject is None:
            continue
        held = [evidence.current(evidence.read(path, name), subject) for path in (committed, cached)]
        joined = evidence.current(evidence.joined(*held), subject)
        if evidence.write(committed, replace(joined, contradicted=())):
            changed.append(committed)
    return changed


def prune_evidence(tools: Tools, names: Iterable[str]) -> list[Path]:
    """Remove stale proofs from the cache folder and, in a checkout, from the repository. Return the changed files."""
    changed = []
    for name in names:
        subject = proofs.subject_of(tools, name)
        for path in proofs.files_of(tools, name):
            if not path.exists() or (not _is_checkout(tools) and path == tools.workspace.committed_evidence(name)):
                continue
            before = evidence.read(path, name)
            after = evidence.current(before, subject) if subject else Evidence(schema=1, name=name, proofs=())
            if after != before and evidence.write(path, after):
                changed.append(path)
    return changed


def require_checkout(tools: Tools) -> None:
    """Raise :class:`UsageError` unless evidence can be written to a checkout.

    The code is ``not-a-checkout`` for a user's own recipe and for an installed package, and ``not-writable`` for a checkout to
    which this user may not write.
    """
    if _is_checkout(tools):
        return
    if tools.user_recipe is None and tools.workspace.is_read_only:
        raise UsageError(
            f"You may not write to {tools.workspace.images}, so no evidence can be recorded in this checkout.",
            code="not-writable",
            hint="Proofs stay in the cache folder and count there. To record them, make the folder writable, or use a checkout "
            "of your own with --root FOLDER.",
        )
    what = "An environment of your own" if tools.user_recipe is not None else "An installed envbuild"
    raise UsageError(
        f"{what} has no repository to record evidence in.",
        code="not-a-checkout",
        hint="Proofs stay in the cache folder and count there. To record them, run the command in a checkout, or use "
        "--root FOLDER.",
    )


def _is_checkout(tools: Tools) -> bool:
    return tools.user_recipe is None and not tools.workspace.is_packaged
