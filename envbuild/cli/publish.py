"""``envbuild publish NAME… --to HOST/REPOSITORY``: proved images in a registry, with signed statements of the proofs."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from envbuild.cli import batch, make, options, verdict, wording
from envbuild.cli.progress_display import display
from envbuild.cli.session import Session

if TYPE_CHECKING:
    from envbuild.compose.outputs.compression import Compression
    from envbuild.pipeline.building import Builder
    from envbuild.pipeline.make import Made, StageNote
    from envbuild.pipeline.publication import Destination, Planned, Published
    from envbuild.pipeline.tools import Tools

_NOT_PUBLISHED = "The image is not published, because its smoke test did not pass."


@click.command("publish")
@batch.options
@click.option("--to", "repository", required=True, metavar="HOST/REPOSITORY", help="The repository that gets the images.")
@options.signing
@click.option(
    "--allow",
    type=click.Choice(["inconclusive"]),
    help="Publish although the smoke test could not judge; the signed statements say so.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be made, sent and tagged; make and send nothing.")
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
    repository: str,
    key_file: Path,
    allow: str | None,
    dry_run: bool,
    compression: Compression | None,
    builder: Builder,
    **values: Any,
) -> int:
    """Make NAME, and push its image with signed statements of what was proved. What is not proved is not pushed.

    All stages of `make` come first. Then the image is pushed under the tag that never moves, and these are attached to it: a
    signature, the bill of materials, the provenance, and the reports of `verify` and of the smoke test. The moving tags come
    last. What the registry has is not sent again.
    """
    from envbuild.attest import keys
    from envbuild.compose.outputs import registry_client
    from envbuild.pipeline import publication, resolving
    from envbuild.pipeline.make import MakeOptions
    from envbuild.pipeline.make import make as run_stages

    registry_client.parse(repository)
    key = keys.signing_key(key_file, os.environ.get(options.PASSWORD, ""))  # before hours of building
    several = batch.asked(names, values)
    tools_from = {option: values.pop(option) for option in ("start_engine", "offline")}
    constraints, judging = options.split(values)
    smoke = options.smoke_options(judging)
    if several is not None:
        return batch.run(session, several, constraints, builder="" if dry_run else builder, tools_from=tools_from)
    name = names[0]
    wanted = MakeOptions(smoke=smoke, aliases=options.alias(name, constraints), builder=builder)
    to = publication.Destination(repository=repository, key=key, compression=compression)
    allowed = {allow} if allow else set()
    if dry_run:
        tools = session.tools([name], **tools_from)
        canonical = resolving.resolve_request(tools, [name], options.chosen(constraints)).environment.name
        stages = partial(run_stages, texts=[name], constraints=options.chosen(constraints), options=wanted, on_stage=_silent)
        return _show_plan(session, canonical, tools, stages, to, allowed)
    with display(session) as shown:
        tools = session.tools([name], on_progress=shown.news, **tools_from)
        made = run_stages(tools, [name], options.chosen(constraints), wanted, lambda note: shown.line(make.stage_line(note)))
        made = replace(made, smoked=publication.judged(made.smoked))
        told = publication.publish(tools, made, to) if publication.may_be_published(made.smoked, allowed) else None
    if told is None:
        session.err(_NOT_PUBLISHED)
        return verdict.show(session, make.document(made), made.smoked)
    document = verdict.complete(make.document(made), made.smoked)
    document.pop("error", None)
    document |= {"nothing_to_do": made.nothing_to_do and told.nothing_to_do, "published": _document(repository, told)}
    session.document(document)
    _show(session, repository, told)
    if made.smoked.status != "pass":
        session.err(f"Published although the smoke test is {made.smoked.status}: {made.smoked.sentence}")
    return 0


def _silent(_note: StageNote) -> None:
    """A dry run tells nothing of stages that have nothing to do."""


def _show_plan(  # noqa: PLR0917 - what a plan rests on
    session: Session,
    canonical: str,
    tools: Tools,
    stages: Callable[[Tools], Made],
    to: Destination,
    allowed: Collection[str],
) -> int:
    """What would be done. An image for which a stage has work to do is told as one that is made first."""
    from envbuild.pipeline import publication, unchanged

    made = unchanged.without_work(unchanged.view(tools), canonical, stages)
    if made is not None:
        made = replace(made, smoked=publication.judged(made.smoked))
    if made is not None and not publication.may_be_published(made.smoked, allowed):
        session.err(_NOT_PUBLISHED)
        return verdict.show(session, make.document(made), made.smoked)
    found = publication.plan(tools, made, to) if made is not None else None
    would: dict[str, Any] = {"make": found is None}
    if found is not None:
        would |= {"tags": list(found.tags), "layers": found.layers, "bytes": found.size, "statements": found.statements}
    nothing = found is not None and found.nothing_to_do
    session.document({"schema": 1, "name": canonical, "nothing_to_do": nothing, "would": would})
    with display(session) as shown:  # one of several says it beside its document
        (shown.line if session.json else session.out)(f"{canonical}  {_plan_line(found)}")
    return 0


def _plan_line(found: Planned | None) -> str:
    if found is None:
        return "would be made, and published if it passes"
    if found.nothing_to_do:
        return "is published"
    sent = f"{found.layers} layers ({wording.size(found.size)}) and {found.statements} statements"
    return f"would be published: {sent} would be sent, {len(found.tags)} tags set"


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
    session.out(f"  layers      {wording.size(pushed.sent)} sent, {there} of {pushed.layers} were there")
    session.out(f"  statements  {told.new} attached, {told.attached - told.new} of {told.attached} were there")
    session.out(f"  tags        {', '.join(told.tags)}")
