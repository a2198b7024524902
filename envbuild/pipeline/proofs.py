"""Records proofs in the cache folder. Only ``evidence --record`` copies them into the repository."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from envbuild import files
from envbuild.errors import EnvbuildError
from envbuild.model.progress import Progress
from envbuild.pipeline import evidence
from envbuild.pipeline.evidence import Evidence, Kind, Subject, Unchecked
from envbuild.pipeline.stored_locks import read_lock
from envbuild.pipeline.tools import Tools

if TYPE_CHECKING:
    from envbuild.build import BuildRecord
    from envbuild.model.lock import Lock


def subject_of(tools: Tools, name: str, *, with_guest: bool = True) -> Subject | None:
    """Return the current subject of proofs of ``name``: the hashes of its lock, rendering and guest. None without a lock.

    The hash of the guest needs the recipes. With ``with_guest=False`` no recipe is read, and the hash of the guest is empty.
    The hash of the lock is the hash of the file's bytes. So the lock is parsed only to find the guest, or for a user's recipe.
    Raises :class:`InvalidInputError` if a damaged lock is parsed.
    """
    from envbuild import image_inputs

    path = tools.workspace.lock_file(name)
    if not path.exists():
        return None
    lock = read_lock(path) if with_guest or tools.workspace.user_recipe is not None else None
    written = image_inputs.rendered_files(tools.workspace.rendering(name))
    try:
        custom = lock.environment.custom if lock is not None else None
        rendered = image_inputs.rendering_digest(tools.workspace, custom, written) if written else ""
    except EnvbuildError:
        rendered = ""  # a user's file that the image needs is missing, so proofs about the image are stale
    guest = ""
    if with_guest and lock is not None:
        guest = image_inputs.guest_digest(tools.workspace, lock, tools.recipes_of(lock.environment))
    return Subject(lock=files.sha256_of(path), rendering=rendered, guest=guest)


def held(tools: Tools, name: str) -> Evidence:
    """Return the valid evidence of ``name``, from the repository and from the cache folder, without stale proofs."""
    return _held(tools, name)[0]


def held_kinds(tools: Tools, name: str) -> tuple[Kind, ...]:
    """Return the kinds of the valid proofs of ``name``, in the order of the stages."""
    return evidence.kinds(held(tools, name))


def renewed_kinds(tools: Tools, name: str) -> tuple[Kind, ...]:
    """Return the kinds of the valid proofs of ``name``, without those that only an earlier guest proved."""
    return evidence.renewed(*_held(tools, name))


def _held(tools: Tools, name: str) -> tuple[Evidence, Subject]:
    """Return the valid evidence of ``name``, and the hashes on which it depends."""
    nothing = Evidence(schema=1, name=name, proofs=()), Subject("", "", "")
    if not tools.workspace.has_evidence(name) or not tools.workspace.lock_file(name).exists():
        return nothing
    found = [evidence.read(path, name) for path in files_of(tools, name)]
    subject = subject_of(tools, name, with_guest=any(map(evidence.rests_on_guest, found)))
    if subject is None:
        return nothing
    joined = evidence.joined(*(evidence.current(each, subject) for each in found))
    return evidence.current(joined, subject), subject


def proved_instead(tools: Tools, name: str) -> dict[str, tuple[Kind, ...]]:
    """Return the environments with the frameworks and the CUDA of ``name`` that passed a smoke test, with their kinds of proof.

    They differ in Python, system or base. Empty if ``name`` itself passed a smoke test.
    """
    trained = {"smoke-cpu", "smoke-gpu"}
    if trained & {*held_kinds(tools, name)}:
        return {}
    found = {each: held_kinds(tools, each) for each in tools.workspace.with_same_build(name)}
    return {each: kinds for each, kinds in found.items() if trained & {*kinds}}


def files_of(tools: Tools, name: str) -> tuple[Path, Path]:
    """Return the paths of the evidence files of ``name``: in the repository, and in the cache folder."""
    return tools.workspace.committed_evidence(name), tools.workspace.evidence_file(name)


def prove_lock(tools: Tools, name: str, digest: str, kind: Kind) -> None:
    """Record a proof of this ``kind``, which depends only on the lock with this ``digest``."""
    _record(tools, name, kind, Subject(lock=digest, rendering="", guest=""), engine="")


def prove_rendering(tools: Tools, lock: Lock, digest: str, written: dict[str, str]) -> None:
    """Record the proof that the files ``written`` were rendered from ``lock``, which has this ``digest``."""
    from envbuild import image_inputs

    contents = {path: text.encode() for path, text in written.items()}
    found = image_inputs.rendering_digest(tools.workspace, lock.environment.custom, contents)
    _record(tools, lock.environment.name, "rendered", Subject(lock=digest, rendering=found, guest=""), engine="")


def prove_image(
    tools: Tools,
    record: BuildRecord | None,
    image: str,
    kind: Kind,
    *,
    replayed: bool = False,
    gpus: tuple[str, ...] = (),
) -> None:
    """Record a proof of ``image``. Its build record says from which lock, rendering and guest the image was made. ``gpus`` are
    the names of the GPUs that a smoke test used.

    Nothing is recorded if these inputs have changed since, or if the record is about another image. The proof names the engine
    that is used now; for a ``replayed`` result, it names the engine that built the image.
    """
    if record is None or record.image != image:
        return
    subject = Subject(lock=record.lock, rendering=record.rendering, guest=record.guest)
    engine = record.engine if replayed else tools.engine.info.name
    if not _record(tools, record.name, kind, subject, engine=engine, gpus=gpus):
        message = f"warning: not recorded as evidence ({kind}): lock, rendering or smoke test changed after the image was built"
        tools.on_progress(Progress(stage="evidence", message=message, log=True))


def contradict(tools: Tools, name: str, kind: Kind) -> None:
    """Record that a run contradicts proofs of ``kind``. Committed proofs of this kind then do not count on this machine."""
    subject = subject_of(tools, name)
    if subject is not None:
        failed = evidence.proof(kind, subject, date=_today(), engine="")
        path = tools.workspace.evidence_file(name)
        evidence.write(path, evidence.without(evidence.current(evidence.read(path, name), subject), failed))


def leave_open(  # noqa: PLR0917 - all these arguments describe one attempt
    tools: Tools, name: str, digest: str, kind: Kind, unchecked: tuple[Unchecked, ...] = (), why: str = ""
) -> None:
    """Record that the environment with this lock could not be proved: the files ``unchecked`` could not be checked, or the
    smoke test was inconclusive, and ``why``."""
    subject = subject_of(tools, name)
    if subject is None or subject.lock != digest:
        return
    unproved = evidence.Unproved(kind=kind, date=_today(), lock=digest, files=unchecked, why=why)
    path = tools.workspace.evidence_file(name)
    evidence.write(path, evidence.with_unproved(evidence.current(evidence.read(path, name), subject), unproved))


def _record(tools: Tools, name: str, kind: Kind, proved: Subject, *, engine: str, gpus: tuple[str, ...] = ()) -> bool:
    """Add a proof of ``proved`` to the evidence in the cache folder.

    If ``proved`` is not the current subject, write nothing and return False.
    """
    new = evidence.proof(kind, proved, date=_today(), engine=engine, gpus=gpus)
    try:
        subject = subject_of(tools, name)
    except EnvbuildError:
        subject = None  # the lock was damaged in the meantime; the next run reports that
    if subject is None or evidence.stale_parts(new, subject):
        return False
    path = tools.workspace.evidence_file(name)
    evidence.write(path, evidence.current(evidence.with_proof(evidence.read(path, name), new), subject))
    return True


def _today() -> str:
    return datetime.datetime.now(tz=datetime.UTC).date().isoformat()
