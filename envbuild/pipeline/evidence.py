"""Evidence: the proofs about an environment, and the hashes on which each proof depends.

This module uses no matrix, lock or engine. :mod:`envbuild.pipeline.proofs` decides when a proof is recorded.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from envbuild import codec, files
from envbuild.errors import InvalidInputError, Problem
from envbuild.pipeline import stage_cache

Kind = Literal["locked", "downloaded", "rendered", "built", "verified", "linked", "smoke-cpu", "smoke-gpu"]
# The kinds of proof, in the order of the stages.
KINDS: tuple[Kind, ...] = ("locked", "downloaded", "rendered", "built", "verified", "linked", "smoke-cpu", "smoke-gpu")
Part = Literal["lock", "rendering", "guest"]
# The inputs on which each kind of proof depends. A proof is stale if the hash of one of these inputs has changed. But a smoke
# proof of an earlier guest still counts, until there is a newer one. docs/decisions/0012 has the reasons.
RESTS_ON: Mapping[Kind, tuple[Part, ...]] = {
    "locked": ("lock",),
    "downloaded": ("lock",),
    "rendered": ("lock", "rendering"),
    "built": ("lock", "rendering"),
    "verified": ("lock", "rendering"),
    "linked": ("lock", "rendering"),
    "smoke-cpu": ("lock", "rendering", "guest"),
    "smoke-gpu": ("lock", "rendering", "guest"),
}
_SCHEMA = 1
_LATER: Any = {"left_out_if_default": True}


class Subject(NamedTuple):
    """The hashes (sha256) on which proofs depend: of the lock, of the rendered files, and of the guest."""

    lock: str
    rendering: str
    guest: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Proof:
    """One proof: its date (UTC), the engine (empty if none was used), and the hashes on which the proof depends.

    If this kind of proof does not depend on ``rendering`` or ``guest``, these fields are empty, and are left out in the file.
    ``gpus`` has the name of each GPU that a smoke test used: with one GPU, nothing is proved about data parallelism.
    """

    kind: Kind
    date: str
    engine: str
    lock: str
    rendering: str = field(default="", metadata=_LATER)
    guest: str = field(default="", metadata=_LATER)
    gpus: tuple[str, ...] = field(default=(), metadata=_LATER)


@dataclass(frozen=True, kw_only=True, slots=True)
class Unchecked:
    """A file that could not be checked, and the reason. ``host`` is the file's server; empty for this machine's own index."""

    file: str
    host: str
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Unproved:
    """The last attempt at a proof that neither proved nor refuted it: its date (UTC), the files that could not be checked, and
    the sentence of a smoke test that was inconclusive (``why``)."""

    kind: Kind
    date: str
    lock: str
    files: tuple[Unchecked, ...]
    why: str = field(default="", metadata=_LATER)


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """The content of the evidence file of one environment. The JSON leaves out empty fields, except ``proofs``.

    ``contradicted`` exists only in the cache folder. It lists the kinds of proof that failed on this machine. On this machine,
    proofs of such a kind in the repository do not count.
    """

    schema: int
    name: str
    proofs: tuple[Proof, ...]
    unproved: tuple[Unproved, ...] = field(default=(), metadata=_LATER)
    contradicted: tuple[Proof, ...] = field(default=(), metadata=_LATER)


def proof(kind: Kind, subject: Subject, *, date: str, engine: str, gpus: tuple[str, ...] = ()) -> Proof:
    """Make a proof that has only those hashes of ``subject`` on which its kind depends."""
    parts = {part: getattr(subject, part) for part in RESTS_ON[kind]}
    return Proof(kind=kind, date=date, engine=engine, gpus=gpus, **parts)


def stale_parts(proof: Proof, subject: Subject) -> tuple[Part, ...]:
    """Return the inputs of ``proof`` that have changed; empty if the proof is valid. A missing hash counts as changed."""
    return tuple(part for part in RESTS_ON[proof.kind] if getattr(proof, part) != getattr(subject, part))


def rests_on_guest(held: Evidence) -> bool:
    """Whether a proof or a contradiction in ``held`` depends on the guest."""
    return any("guest" in RESTS_ON[each.kind] for each in (*held.proofs, *held.contradicted))


def is_earlier(proof: Proof, subject: Subject) -> bool:
    """Whether this is a smoke proof of the same image, but of an earlier guest."""
    return bool(proof.guest) and stale_parts(proof, subject) == ("guest",)


def current(held: Evidence, subject: Subject) -> Evidence:
    """Return ``held`` without the proofs, failed attempts and contradictions that are stale for ``subject``.

    A smoke proof of an earlier guest stays, unless ``held`` has a proof of the same kind and GPUs with the current guest.
    """
    renewed = {(each.kind, each.gpus) for each in held.proofs if not stale_parts(each, subject)}
    earlier = {each for each in held.proofs if is_earlier(each, subject) and (each.kind, each.gpus) not in renewed}
    return replace(
        held,
        proofs=tuple(each for each in held.proofs if each in earlier or not stale_parts(each, subject)),
        unproved=tuple(each for each in held.unproved if each.lock == subject.lock),
        contradicted=tuple(each for each in held.contradicted if not stale_parts(each, subject)),
    )


def renewed(held: Evidence, subject: Subject) -> tuple[Kind, ...]:
    """Return the kinds of proof in ``held``, except those that only an earlier version of the smoke test proved."""
    return kinds(replace(held, proofs=tuple(each for each in held.proofs if not stale_parts(each, subject))))


def joined(committed: Evidence, cached: Evidence) -> Evidence:
    """Add the evidence of this machine (``cached``) to the committed evidence.

    Committed proofs of a kind are left out if ``cached`` has a contradiction of this kind.
    """
    refuted = {each.kind for each in cached.contradicted}
    proofs = [each for each in committed.proofs if each.kind not in refuted]
    known = {replace(each, date="") for each in proofs}
    proofs += [each for each in cached.proofs if replace(each, date="") not in known]
    proved = {each.kind for each in proofs}
    tried = {each.kind: each for each in (*committed.unproved, *cached.unproved)}
    return replace(
        committed,
        proofs=_ordered(proofs),
        unproved=tuple(each for kind, each in tried.items() if kind not in proved),
        contradicted=cached.contradicted,
    )


def kinds(held: Evidence) -> tuple[Kind, ...]:
    """Return the kinds of proof in ``held``, in the order of the stages."""
    found = {each.kind for each in held.proofs}
    return tuple(kind for kind in KINDS if kind in found)


def with_proof(held: Evidence, proof: Proof) -> Evidence:
    """Return ``held`` with ``proof`` added, unless ``held`` already has a proof that differs from it only in the date."""
    if any(replace(each, date="") == replace(proof, date="") for each in held.proofs):
        proofs = held.proofs
    else:
        proofs = _ordered([*held.proofs, proof])
    return replace(
        held,
        proofs=proofs,
        unproved=tuple(each for each in held.unproved if each.kind != proof.kind),
        contradicted=tuple(each for each in held.contradicted if each.kind != proof.kind),
    )


def with_unproved(held: Evidence, unproved: Unproved) -> Evidence:
    """Return ``held`` with ``unproved`` in place of the earlier failure of this kind.

    If the two failures differ only in their date, ``held`` stays as it is.
    """
    if any(replace(each, date=unproved.date) == unproved for each in held.unproved):
        return held
    kept = (each for each in held.unproved if each.kind != unproved.kind)
    return replace(held, unproved=(*kept, unproved))


def without(held: Evidence, contradiction: Proof) -> Evidence:
    """Return ``held`` after a failed run: with ``contradiction`` added, and without the proofs of the same kind."""
    kept = tuple(each for each in held.contradicted if each.kind != contradiction.kind)
    proofs = tuple(each for each in held.proofs if each.kind != contradiction.kind)
    return replace(held, proofs=proofs, contradicted=(*kept, contradiction))


def kind_of_smoke(report: Mapping[str, Any]) -> Kind:
    """Return the kind of proof that a smoke report gives: ``smoke-gpu`` if GPUs were used, else ``smoke-cpu``."""
    mode = report.get("mode")
    return "smoke-gpu" if isinstance(mode, Mapping) and mode.get("device") == "cuda" else "smoke-cpu"


def devices_of(report: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the GPUs of the machine in a smoke report, and in the reports of its parts."""
    for each in _parts(report):
        yield from (device for device in each.get("devices") or () if isinstance(device, dict))


def gpus_of(report: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the name of each GPU that the smoke test of ``report`` used: as many as took part in its largest training, or one
    if nothing was trained.

    Empty if the test used the CPU. Also empty if the machine has several kinds of GPUs, because the report lists all GPUs of
    the machine, and does not say which of them were used.
    """
    kinds = {str(each.get("name", "")) for each in devices_of(report)}
    if kind_of_smoke(report) != "smoke-gpu" or len(kinds) != 1:
        return ()
    used = max((int(run["n"]) for each in _parts(report) for run in each.get("runs") or ()), default=1)
    return (*kinds,) * used


def _parts(report: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    parts = report.get("parts")
    yield report
    yield from (part.get("report") or {} for part in (parts if isinstance(parts, list) else ()))


def read(path: Path, name: str) -> Evidence:
    """Return the evidence in ``path``, stale proofs included. If there is no file, the evidence is empty.

    Raises :class:`InvalidInputError` if the file is not a valid evidence file.
    """
    if not path.exists():
        return Evidence(schema=_SCHEMA, name=name, proofs=())
    held = codec.decode(Evidence, stage_cache.read_json(path), str(path))
    if problems := [Problem(where=f"{path}{place}", line=0, message=told) for place, told in _wrong_values(held, name)]:
        raise InvalidInputError(
            f"{path} does not have the expected form.",
            hint="envbuild writes this file: delete it, and prove the environment again with `envbuild evidence NAME --prove`.",
            problems=problems,
        )
    return held


def write(path: Path, held: Evidence) -> bool:
    """Write the evidence to ``path``, or delete the file if the evidence is empty. Return whether something changed."""
    if not (held.proofs or held.unproved or held.contradicted):
        existed = path.exists()
        path.unlink(missing_ok=True)
        return existed
    text = codec.dumps(held)
    if path.exists() and files.read_bytes(path) == text.encode():
        return False
    files.write_atomic(path, text)
    return True


def _wrong_values(held: Evidence, name: str) -> Iterator[tuple[str, str]]:
    """Yield the place and the problem of each value that has the right type but is impossible, such as a date in month 13."""
    if held.schema != _SCHEMA:
        yield ".schema", f"schema must be {_SCHEMA}, not {held.schema}: this envbuild can read no other schema"
    if held.name != name:
        yield ".name", f"name must be {name!r}, the name of the file, not {held.name!r}"
    for place in ("proofs", "unproved", "contradicted"):
        for index, each in enumerate(getattr(held, place)):
            if not _is_date(each.date):
                yield f".{place}[{index}].date", f"{each.date!r} is not a date such as 2026-11-22"


def _is_date(text: str) -> bool:
    try:
        return datetime.date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _ordered(proofs: Sequence[Proof]) -> tuple[Proof, ...]:
    return tuple(sorted(proofs, key=lambda each: (KINDS.index(each.kind), each.engine)))
