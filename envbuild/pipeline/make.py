"""``make``: runs the stages in order, and skips those for which nothing has changed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from envbuild import files
from envbuild.model.environment import Environment
from envbuild.model.lock import Lock
from envbuild.model.progress import counted
from envbuild.pipeline import building, image_checks, link_check, locking, proofs, resolving
from envbuild.pipeline.constraints import Constraints
from envbuild.pipeline.image_checks import Smoked
from envbuild.pipeline.render_environments import render_locked
from envbuild.pipeline.rendering import Rendering
from envbuild.pipeline.stored_locks import Locked, read_locked
from envbuild.pipeline.tools import Tools
from envbuild.pipeline.unchanged_renderings import RenderingWatch

if TYPE_CHECKING:
    from envbuild.build import BuildRecord
    from envbuild.pipeline.building import Builder
    from envbuild.smoketest import SmokeOptions

Outcome = Literal["done", "kept", "replayed"]


@dataclass(frozen=True, kw_only=True, slots=True)
class StageNote:
    """One finished stage. Its outcome is ``done`` now, ``kept`` from an earlier run, or ``replayed`` (a stored verdict)."""

    stage: str
    outcome: Outcome
    detail: str
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class MakeOptions:
    """The options of ``make`` in addition to the request. ``aliases`` are further tags for the image."""

    smoke: SmokeOptions
    aliases: tuple[str, ...] = ()
    builder: Builder = "auto"


@dataclass(frozen=True, kw_only=True, slots=True)
class Made:
    """The result of a ``make`` that reached the smoke test, with any verdict."""

    environment: Environment
    lock: Lock
    digest: str
    record: BuildRecord
    engine: str
    smoked: Smoked
    stages: tuple[StageNote, ...]
    seconds: float

    @property
    def nothing_to_do(self) -> bool:
        """Whether every stage was kept or replayed, so that no stage did any work."""
        return all(note.outcome != "done" for note in self.stages)


@dataclass(kw_only=True, slots=True)
class _Note:
    """The report of a stage about itself. ``elsewhere`` are seconds that count as time of another stage."""

    outcome: Outcome = "done"
    detail: str = ""
    elsewhere: float = 0.0


@dataclass(kw_only=True, slots=True)
class _Log:
    """Measures the time of each stage, and calls the listener when a stage ends."""

    listener: Callable[[StageNote], None]
    notes: list[StageNote] = field(default_factory=list)

    @contextmanager
    def stage(self, name: str) -> Iterator[_Note]:
        began = time.monotonic()
        note = _Note()
        yield note
        seconds = max(0.0, time.monotonic() - began - note.elsewhere)
        done = StageNote(stage=name, outcome=note.outcome, detail=note.detail, seconds=seconds)
        self.notes.append(done)
        self.listener(done)


def make(
    tools: Tools,
    texts: Sequence[str],
    constraints: Constraints,
    options: MakeOptions,
    on_stage: Callable[[StageNote], None],
    *,
    watch: RenderingWatch | None = None,
) -> Made:
    """Make a tested image from a request. Every stage writes its result to disk, so that the next run continues from there.

    The lock and the rendering come first. They stay valid if the engine or the base cannot be used afterwards. ``watch`` can be
    shared with other environments, so that their common files are looked at only once.
    """
    began = time.monotonic()
    log, watch = _Log(listener=on_stage), watch or RenderingWatch(tools)
    requests = () if constraints.any() or len(texts) > 1 else tuple(texts)
    with log.stage("resolve") as note:
        known = watch.recall(requests[0]) if requests else None
        environment = _environment(tools, texts, constraints, known)
        note.outcome, note.detail = "kept", environment.name
    lock_file = tools.workspace.running(environment.name, "make")
    with files.locked(lock_file, lambda message: tools.say("make", message)):
        locked, rendered = _lock_and_render(tools, environment, log, watch.recall(environment.name))
        record = _build(tools, locked, rendered.texts(), log, options)
        _link(tools, locked, record, log)
        smoked = _smoke(tools, locked, record, log, options)
        if known is None or not known.is_lock_whole:
            watch.note(replace(rendered, is_lock_whole=locked.kept and not locked.lock.missing), *requests)
    return Made(
        environment=environment,
        lock=locked.lock,
        digest=locked.digest,
        record=record,
        engine=tools.engine_name,
        smoked=smoked,
        stages=tuple(log.notes),
        seconds=time.monotonic() - began,
    )


def _environment(tools: Tools, texts: Sequence[str], constraints: Constraints, known: Rendering | None) -> Environment:
    """Return the environment that ``texts`` ask for.

    If ``known`` is a rendering of a complete lock, the environment is read from this lock.
    """
    locked = read_locked(tools, known.name) if known is not None and known.is_lock_whole else None
    return locked.lock.environment if locked else resolving.resolve_buildable(tools, texts, constraints).environment


def _lock_and_render(tools: Tools, environment: Environment, log: _Log, known: Rendering | None) -> tuple[Locked, Rendering]:
    """Make the lock and the rendering. If ``known`` is a current rendering of a complete lock, both are only read."""
    is_known = known is not None and known.is_lock_whole
    with log.stage("lock") as note:
        locked = read_locked(tools, environment.name) if is_known else None
        locked = locked or locking.lock_environment(tools, environment)
        count = sum(len(prefix.artifacts) for prefix in locked.lock.prefixes)
        missing = len(locked.lock.missing)
        note.outcome = "kept" if locked.kept else "done"
        note.detail = f"{counted(count, 'file')} pinned by sha256" + (f", {missing} not pinned" if missing else "")
        if not (missing or is_known):
            proofs.prove_lock(tools, environment.name, locked.digest, "locked")
    with log.stage("render") as note:
        rendered = known if known is not None and is_known else render_locked(tools, locked)
        note.outcome = "kept" if rendered.kept else "done"
        note.detail = str(rendered.folder)
    return locked, rendered


def _build(tools: Tools, locked: Locked, rendering: Mapping[str, str], log: _Log, options: MakeOptions) -> BuildRecord:
    """Build the image, and verify it before it gets a tag. The stage notes show building and verifying as two stages."""
    with log.stage("build") as note:
        record, verified = building.build_environment(
            tools, locked, rendering, aliases=options.aliases, builder=options.builder
        )
        note.outcome = "kept" if record.kept else "done"
        note.detail = f"{record.tags[0]}, by {tools.engine_name}"
        note.elsewhere = verified.seconds if verified else 0.0
    with log.stage("verify") as note:
        fresh = verified is not None and not verified.replayed
        verified = verified or image_checks.verify_image(tools, locked.lock, locked.digest, record.image, replay=True)
        note.outcome = "done" if fresh or not verified.replayed else "replayed"
        unchecked = sum(text.startswith("not checked") for text in verified.report["notes"])
        note.detail = "the image matches its lock" + (f"; {unchecked} not checked (`verify` lists them)" if unchecked else "")
        note.elsewhere = -verified.seconds if fresh else 0.0
    return record


def _link(tools: Tools, locked: Locked, record: BuildRecord, log: _Log) -> None:
    with log.stage("linkcheck") as note:
        linked = link_check.link_and_warn(tools, locked.lock, locked.digest, record.image)
        note.outcome = "replayed" if linked and linked.replayed else "done"
        found = f"{linked.report['objects']} objects find all libraries and symbols that they need" if linked else ""
        note.detail = found or "some libraries or symbols are missing (`linkcheck` lists them)"


def _smoke(tools: Tools, locked: Locked, record: BuildRecord, log: _Log, options: MakeOptions) -> Smoked:
    with log.stage("smoke") as note:
        smoked = image_checks.smoke_image(tools, locked.lock, locked.digest, record.image, options.smoke, replay=True)
        note.outcome = "replayed" if smoked.replayed else "done"
        note.detail = smoked.status
    return smoked
