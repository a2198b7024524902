"""``envbuild publish NAME… --to HOST/REPOSITORY``: push proved images to a registry, with signed statements of the proofs."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from envbuild.cli import batch, make, options, publish_release, smoke_result, wording
from envbuild.cli.progress_display import display
from envbuild.cli.session import Session
from envbuild.model.progress import counted

if TYPE_CHECKING:
    from envbuild.compose.outputs.compression import Compression
    from envbuild.pipeline.batch import Job
    from envbuild.pipeline.building import Builder
    from envbuild.pipeline.constraints import Constraints
    from envbuild.pipeline.make import Made, MakeOptions, StageNote
    from envbuild.pipeline.publishing import Destination, Planned, Published
    from envbuild.pipeline.tools import Tools
    from envbuild.pipeline.unchanged_renderings import RenderingWatch

_NOT_PUBLISHED = "The image is not published, because its smoke test did not pass."


@click.command("publish")
@batch.options
@batch.also
@options.destination
@options.signing
@click.option(
    "--release",
    metavar="NAME",
    help=(
        "Record the images as the release NAME. As soon as all images are in the registry, all moving tags are set "
        "at the same time."
    ),
)
@click.option(
    "--rollback",
    is_flag=True,
    is_eager=True,
    help="Undo the current release: its tags move back to the images of the release before it.",
)
@click.option(
    "--database",
    "databases",
    multiple=True,
    type=click.Path(exists=True, resolve_path=True, path_type=Path),
    metavar="PATH",
    help=(
        "Attach a statement of the known vulnerabilities according to this local OSV database, which `audit` "
        "reads too. May be repeated."
    ),
)
@click.option(
    "--hold-tags", is_flag=True, hidden=True, help="Set only the tag that never moves; a release will move the others."
)
@click.option(
    "--allow",
    type=click.Choice(["inconclusive"]),
    help="Publish even if the smoke test was inconclusive. The signed statements then contain this verdict.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be made, sent and tagged, but make and send nothing.")
@options.compression
@options.judging
@options.builder
@options.engine
@options.offline
@options.constraints
@options.common
@click.pass_obj
def command(
    session: Session,
    /,
    names: tuple[str, ...],
    *,
    also: tuple[str, ...],
    repository: str,
    key_file: Path,
    release: str | None,
    rollback: bool,
    hold_tags: bool,
    databases: tuple[Path, ...],
    allow: str | None,
    dry_run: bool,
    compression: Compression | None,
    builder: Builder,
    **values: Any,
) -> int:
    """Make NAME, and push its image with signed statements of what was proved. An image without the proofs is not pushed.

    First, all stages of `make` run. Then the image is pushed under the tag that never moves. The image gets a signature, the
    bill of materials, the licences, the provenance, and the reports of `verify` and of the smoke test. The moving tags are set
    last. Layers and statements that the registry has are not sent again. With --release, the moving tags of many images are
    set together, and --rollback moves them back.
    """
    from envbuild.attest import keys
    from envbuild.compose.outputs import registry_client
    from envbuild.pipeline import publishing, release_index
    from envbuild.pipeline.make import MakeOptions

    registry_client.parse(repository)
    if session.workspace.policy is not None:
        from envbuild.pipeline import policy_checks

        policy_checks.require_repository(session.tools(), repository)  # refuse a forbidden repository before hours of work
    key = keys.signing_key(
        key_file, os.environ.get(options.PASSWORD, "")
    )  # read now, so that a wrong password is noticed before hours of building
    if session.workspace.policy is not None:
        from envbuild.pipeline import trusted_sources

        trusted_sources.keys_that_count(session.tools(), [key.public])  # others would refuse images signed with another key
    if rollback:
        publish_release.require_alone()
        return publish_release.roll_back(session, repository, key.public, dry_run=dry_run)
    if release is not None:  # an empty name is an error, because a variable of a script may be unset
        release_index.tag_of(release)
    several = batch.asked(names, values, always=bool(release))
    tools_from = {option: values.pop(option) for option in ("start_engine", "offline")}
    if not dry_run:
        publishing.require_access(repository)
    constraints, judging = options.split(values)
    smoke = options.smoke_options(judging)
    holds = hold_tags or bool(release)
    to = publishing.Destination(
        repository=repository,
        key=key,
        compression=compression,
        moves_tags=not holds,
        databases=databases,
        require_allowed=partial(_require_allowed, repository=repository, databases=databases),
    )
    asked = _Asked(to=to, allowed={allow} if allow else set(), constraints=options.chosen(constraints))

    def wanted(*requests: str) -> MakeOptions:
        return MakeOptions(smoke=smoke, aliases=options.aliases(requests, constraints), builder=builder)

    if several is not None:

        def attempt(tools: Tools, job: Job, watch: RenderingWatch) -> tuple[Mapping[str, Any], int]:
            return _without_sending(tools, job, watch, asked, wanted(*job.requests), dry_run=dry_run)

        return batch.run(
            session,
            several,
            constraints,
            attempt=attempt,
            builder=None if dry_run else builder,
            tools_from=tools_from,
            remembers=False,
            conclude=partial(publish_release.conclude, to=to, name=release, dry_run=dry_run) if release else None,
            child_options=("--hold-tags",) if release else (),
            resolve=_name_to_judge,
        )
    if dry_run:
        return _show_plan(session, names[0], asked, wanted(names[0], *also), tools_from)
    return _publish_one(session, names[0], asked, wanted(names[0], *also), tools_from)


def _name_to_judge(tools: Tools, text: str, constraints: Constraints) -> str:
    """Return the name of the environment that a request means, even if the policy excludes it: it is then judged alone."""
    from envbuild.pipeline import batch_selection

    if tools.workspace.policy is None:
        return batch_selection.name_to_build(tools, text, constraints)
    from envbuild.pipeline import policy_checks

    return policy_checks.name_to_check(tools, text, constraints)


def _require_allowed_before_making(tools: Tools, texts: Sequence[str], asked: _Asked) -> None:
    """Raise :class:`PolicyError` if the policy allows no image of this environment. The run and the dry run ask this first."""
    if tools.workspace.policy is None:
        return
    from envbuild.pipeline import policy_checks
    from envbuild.pipeline.policy_facts import Questions

    questions = Questions(databases=asked.to.databases, stored_only=tools.offline is not None)
    policy_checks.require_allowed_before_making(tools, texts, asked.constraints, questions, asked.to.repository)


def _require_allowed(tools: Tools, made: Made, *, repository: str, databases: tuple[Path, ...]) -> None:
    """Raise :class:`PolicyError` if a policy exists and does not allow publishing the image."""
    if tools.workspace.policy is None:
        return
    from envbuild.pipeline import policy_checks
    from envbuild.pipeline.policy_facts import Questions
    from envbuild.pipeline.stored_locks import Locked

    name = made.environment.name
    locked = Locked(lock=made.lock, digest=made.digest, path=tools.workspace.lock_file(name), kept=True)
    asked = Questions(databases=databases, stored_only=tools.offline is not None)
    policy_checks.require_allowed(tools, locked, asked, repository)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Asked:
    """Where images go, which verdicts other than pass are ``allowed``, and the constraints from the command line."""

    to: Destination
    allowed: Collection[str]
    constraints: Constraints


def _publish_one(session: Session, name: str, asked: _Asked, wanted: MakeOptions, tools_from: Mapping[str, Any]) -> int:
    from envbuild.pipeline import make as stages
    from envbuild.pipeline import publishing

    with display(session) as shown:
        tools = session.tools([name], on_progress=shown.news, **tools_from)
        _require_allowed_before_making(tools, [name], asked)
        made = stages.make(tools, [name], asked.constraints, wanted, lambda note: shown.line(make.stage_line(note)))
        made = replace(made, smoked=publishing.judged(made.smoked))
        is_wanted = publishing.may_be_published(made.smoked, asked.allowed)
        told = publishing.publish(tools, made, asked.to) if is_wanted else None
    if told is None:
        session.err(_NOT_PUBLISHED)
        return smoke_result.show(session, make.document(made), made.smoked)
    document = smoke_result.complete(make.document(made), made.smoked)
    document.pop("error", None)
    repository = asked.to.repository
    document |= {"nothing_to_do": made.nothing_to_do and told.nothing_to_do, "published": _document(repository, told)}
    session.document(document)
    _show(session, repository, told)
    if made.smoked.status != "pass":
        session.err(f"Published although the smoke test is {made.smoked.status}: {made.smoked.sentence}")
    return 0


def _without_sending(
    tools: Tools, job: Job, watch: RenderingWatch, asked: _Asked, wanted: MakeOptions, *, dry_run: bool
) -> tuple[Mapping[str, Any], int]:
    """Return the answer for an image that need not be sent.

    Nothing is sent if the registry has the image with all tags and statements, if the verdict forbids publishing, or in a dry
    run. Raises :class:`WorkNeededError` if something has to be made or sent. A child process then does this work.
    """
    from envbuild.pipeline import make as stages
    from envbuild.pipeline import publishing, unchanged

    _require_allowed_before_making(tools, [job.request], asked)
    made = stages.make(tools, [job.request], asked.constraints, wanted, _silent, watch=watch)
    made = replace(made, smoked=publishing.judged(made.smoked))
    if not publishing.may_be_published(made.smoked, asked.allowed):
        return smoke_result.complete(make.document(made), made.smoked), made.smoked.exit_code
    found = publishing.plan(tools, made, asked.to)
    if dry_run:
        return _plan_document(made.environment.name, asked.to, found, needs_making=False), 0
    if found is None or not found.nothing_to_do:
        raise unchanged.WorkNeededError
    document = smoke_result.complete(make.document(made), made.smoked)
    document.pop("error", None)
    published = {
        "repository": asked.to.repository, "digest": found.digest, "tags": list(found.all_tags), "moved": [],
        "sent_bytes": 0, "layers": found.all_layers, "present": found.all_layers, "mounted": 0,
        "statements": found.all_statements, "attached": 0,
    }  # fmt: skip
    return {**document, "published": published}, 0


def _silent(_note: StageNote) -> None:
    """Print nothing about a finished stage: here, no stage does any work."""


def _show_plan(session: Session, name: str, asked: _Asked, wanted: MakeOptions, tools_from: Mapping[str, Any]) -> int:
    """Print what `publish` would do. If a stage has work to do, the text says that the image would be made first."""
    from envbuild.pipeline import make as stages
    from envbuild.pipeline import publishing, resolving, unchanged

    with display(session) as shown:  # what is read from the image the first time takes half a minute
        tools = session.tools([name], on_progress=shown.news, **tools_from)
        _require_allowed_before_making(tools, [name], asked)
        canonical = resolving.resolve_request(tools, [name], asked.constraints).environment.name
        once = partial(stages.make, texts=[name], constraints=asked.constraints, options=wanted, on_stage=_silent)
        made = unchanged.without_work(unchanged.view(tools), canonical, once)
        if made is not None:
            made = replace(made, smoked=publishing.judged(made.smoked))
        is_wanted = made is None or publishing.may_be_published(made.smoked, asked.allowed)
        found = publishing.plan(tools, made, asked.to) if made is not None and is_wanted else None
    if made is not None and not is_wanted:
        session.err(_NOT_PUBLISHED)
        return smoke_result.show(session, make.document(made), made.smoked)
    session.document(_plan_document(canonical, asked.to, found, needs_making=made is None))
    line = _plan_line(found, needs_making=made is None)
    if made is None and (unpinned := _unpinned(tools, canonical)):
        line = f"cannot be made unless its lock can be completed: it pins no file of {', '.join(unpinned)}"
    with display(session) as shown:  # with several names, a child process prints this line
        (shown.line if session.json else session.out)(f"{canonical}  {line}")
    return 0


def _unpinned(tools: Tools, name: str) -> list[str]:
    """Return the frameworks of which the lock pins no file. `make` tries to complete such a lock from the package index."""
    from envbuild.pipeline import incomplete_locks
    from envbuild.pipeline.stored_locks import read_locked

    locked = read_locked(tools, name)
    return [each.name for each in incomplete_locks.unpinned_frameworks(locked.lock)] if locked else []


def _plan_document(name: str, to: Destination, found: Planned | None, *, needs_making: bool) -> dict[str, Any]:
    would: dict[str, Any] = {"make": needs_making}
    if found is not None:
        would |= {"tags": list(found.tags), "layers": found.layers, "bytes": found.size, "statements": found.statements}
        would |= {"digest": found.digest, "all_tags": list(found.all_tags)}
    elif not needs_making:
        would |= {"compress": to.compression}
    nothing = found is not None and found.nothing_to_do
    return {"schema": 1, "name": name, "nothing_to_do": nothing, "would": would}


def _plan_line(found: Planned | None, *, needs_making: bool) -> str:
    if needs_making:
        return "would be made, and published if it passes its tests"
    if found is None:
        return "would be compressed and published; which layers the registry lacks is known only after that"
    if found.nothing_to_do:
        return "is published"
    sent = f"{counted(found.layers, 'layer')} ({wording.size(found.size)}) and {counted(found.statements, 'statement')}"
    return f"would be published: {sent} to send, {counted(len(found.tags), 'tag')} to set"


def _document(repository: str, told: Published) -> dict[str, Any]:
    pushed = told.pushed
    return {
        "repository": repository, "digest": pushed.digest, "tags": list(told.tags), "moved": list(pushed.tags),
        "sent_bytes": pushed.sent, "layers": pushed.layers, "present": pushed.present, "mounted": pushed.mounted,
        "statements": told.attached, "attached": told.new,
    }  # fmt: skip


def _show(session: Session, repository: str, told: Published) -> None:
    pushed = told.pushed
    session.out(f"{repository}@{pushed.digest}")
    there = pushed.present + pushed.mounted
    session.out(f"  layers      {wording.size(pushed.sent)} sent, {there} of {counted(pushed.layers, 'layer')} already there")
    session.out(f"  statements  {told.new} attached, {told.attached - told.new} of {told.attached} already attached")
    if told.held:
        session.out("  tags        not moved: --release moves them when all images are pushed")
    else:
        session.out(f"  tags        {', '.join(told.tags)}")
