"""``envbuild publish NAME… --to HOST/REPOSITORY``: proved images in a registry, with signed statements of the proofs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from envbuild.cli import batch, make, options, verdict, wording
from envbuild.cli.progress_display import display
from envbuild.cli.session import Session

if TYPE_CHECKING:
    from envbuild.compose.outputs.compression import Compression
    from envbuild.pipeline.building import Builder
    from envbuild.pipeline.publication import Published

_PASSWORD = "COSIGN_PASSWORD"  # noqa: S105 - the name of cosign's variable


@click.command("publish")
@batch.options
@click.option("--to", "repository", required=True, metavar="HOST/REPOSITORY", help="The repository that gets the images.")
@click.option(
    "--key",
    "key_file",
    required=True,
    type=click.Path(dir_okay=False, resolve_path=True, path_type=Path),
    metavar="FILE",
    help=f"The private key that signs, such as cosign.key; {_PASSWORD} holds its password.",
)
@click.option(
    "--allow",
    type=click.Choice(["inconclusive"]),
    help="Publish although the smoke test could not judge; the signed statements say so.",
)
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
    from envbuild.pipeline import publication
    from envbuild.pipeline.make import MakeOptions
    from envbuild.pipeline.make import make as run_stages

    registry_client.parse(repository)
    key = keys.signing_key(key_file, os.environ.get(_PASSWORD, ""))  # before hours of building
    several = batch.asked(names, values)
    tools_from = {option: values.pop(option) for option in ("start_engine", "offline")}
    constraints, judging = options.split(values)
    smoke = options.smoke_options(judging)
    if several is not None:
        return batch.run(session, several, constraints, builder=builder, tools_from=tools_from)
    name = names[0]
    wanted = MakeOptions(smoke=smoke, aliases=options.alias(name, constraints), builder=builder)
    with display(session) as shown:
        tools = session.tools([name], on_progress=shown.news, **tools_from)
        made = run_stages(tools, [name], options.chosen(constraints), wanted, lambda note: shown.line(make.stage_line(note)))
        if not publication.may_be_published(made.smoked, {allow} if allow else set()):
            shown.line("publish  not published, because the smoke test did not pass")
            told = None
        else:
            to = publication.Destination(repository=repository, key=key, compression=compression)
            told = publication.publish(tools, made, to)
    if told is None:
        return verdict.show(session, make.document(made), made.smoked)
    document = verdict.complete(make.document(made), made.smoked)
    document.pop("error", None)
    document |= {"nothing_to_do": made.nothing_to_do and told.nothing_to_do, "published": _document(repository, told)}
    session.document(document)
    _show(session, repository, told)
    if made.smoked.status != "pass":
        session.err(f"Published although the smoke test is {made.smoked.status}: {made.smoked.sentence}")
    return 0


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
