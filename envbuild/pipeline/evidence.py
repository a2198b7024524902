"""What was proved of an environment: written by ``make``, bound to the lock's hash, never part of the lock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from envbuild import codec, files
from envbuild.pipeline import stored
from envbuild.workspace import Workspace

Kind = Literal["locked", "downloaded", "rendered", "built", "verified", "smoke-cpu", "smoke-gpu"]
# The order in which an environment earns them, and in which they are written.
KINDS: tuple[Kind, ...] = ("locked", "downloaded", "rendered", "built", "verified", "smoke-cpu", "smoke-gpu")


@dataclass(frozen=True, kw_only=True, slots=True)
class Proof:
    """One thing proved: when (UTC date), by which engine (empty where none took part), of which lock (sha256)."""

    kind: Kind
    date: str
    engine: str
    lock: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Unchecked:
    """A file that could not be checked, and why. ``host`` is where it was looked for, empty for this machine's own index."""

    file: str
    host: str
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Unproved:
    """What kept a proof from being had of a lock, when it was last tried (UTC date)."""

    kind: Kind
    date: str
    lock: str
    files: tuple[Unchecked, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """The evidence file of one environment. JSON leaves ``unproved`` out where there is none."""

    schema: int
    name: str
    proofs: tuple[Proof, ...]
    unproved: tuple[Unproved, ...] = field(default=(), metadata={"left_out_if_default": True})


def kind_of_smoke(report: Mapping[str, Any]) -> Kind:
    """What a smoke report is evidence of: of GPUs only where they were used."""
    mode = report.get("mode")
    return "smoke-gpu" if isinstance(mode, Mapping) and mode.get("device") == "cuda" else "smoke-cpu"


def read(workspace: Workspace, name: str) -> tuple[Proof, ...]:
    """The proofs on file for ``name``, stale ones included; none where there is no file.

    Raises :class:`InvalidInputError` for a file that is not evidence.
    """
    return load(workspace, name).proofs


def load(workspace: Workspace, name: str) -> Evidence:
    """The whole file, or an empty one; raises as :func:`read` does."""
    path = workspace.evidence_file(name)
    shipped = workspace.images / "evidence" / path.name
    path = path if path.exists() else shipped
    if not path.exists():
        return Evidence(schema=1, name=name, proofs=())
    return codec.decode(Evidence, stored.read_json(path), path.name)


def kinds(proofs: Sequence[Proof], lock: str) -> tuple[str, ...]:
    """The kinds that hold for the lock with this hash, in order; a proof of another lock proves nothing of this one."""
    held = {proof.kind for proof in proofs if proof.lock == lock}
    return tuple(kind for kind in KINDS if kind in held)


def record(workspace: Workspace, name: str, proof: Proof) -> bool:
    """Add ``proof``, dropping those of other locks; false (and nothing written) where this engine has proved it before."""
    before = load(workspace, name)
    kept = [old for old in before.proofs if old.lock == proof.lock]
    if any((old.kind, old.engine) == (proof.kind, proof.engine) for old in kept):
        return False
    proofs = sorted([*kept, proof], key=lambda each: (KINDS.index(each.kind), each.engine))
    open_ = tuple(each for each in before.unproved if each.lock == proof.lock and each.kind != proof.kind)
    _write(workspace, Evidence(schema=1, name=name, proofs=tuple(proofs), unproved=open_))
    return True


def leave_open(workspace: Workspace, name: str, unproved: Unproved) -> None:
    """Note what kept a proof from being had, in the place of what was noted before; the date alone changes nothing."""
    before = load(workspace, name)
    others = [old for old in before.unproved if old.lock == unproved.lock]
    same = [old for old in others if old.kind == unproved.kind]
    if not (same and replace(same[0], date=unproved.date) == unproved):
        kept = (each for each in others if each.kind != unproved.kind)
        _write(workspace, replace(before, unproved=(*kept, unproved)))


def withdraw(workspace: Workspace, name: str, kind: Kind) -> None:
    """Take back a proof that a later run has contradicted."""
    before = load(workspace, name)
    after = tuple(old for old in before.proofs if old.kind != kind)
    if after != before.proofs:
        _write(workspace, replace(before, proofs=after))


def _write(workspace: Workspace, evidence: Evidence) -> None:
    files.write_atomic(workspace.evidence_file(evidence.name), codec.dumps(evidence))
