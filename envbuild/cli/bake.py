"""``envbuild bake NAME…``: write a ``docker-bake.json`` for ``docker buildx bake``."""

from __future__ import annotations

from pathlib import Path

import click

from envbuild.cli import options, output_file
from envbuild.cli.progress_display import display
from envbuild.cli.session import Session
from envbuild.errors import UsageError


@click.command("bake")
@click.argument("names", metavar="[NAME…]", nargs=-1, shell_complete=options.complete_name)
@click.option("--all", "every", is_flag=True, help="Every environment that has a folder in images/environments/.")
@click.option(
    "--match", "pattern", default="", metavar="GLOB", help="All environments whose canonical name matches the pattern."
)
@click.option(
    "--to",
    "repository",
    required=True,
    metavar="HOST/REPOSITORY",
    help="The repository to which the images will be pushed; it is a part of their names.",
)
@click.option(
    "--moving-tags",
    is_flag=True,
    help=(
        "Also give the images the moving tags. `docker buildx bake --push` then moves these tags to images that "
        "were not tested."
    ),
)
@click.option(
    "--contexts",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help=("Also write the build contexts into this folder. Without this option, the file expects the contexts in ./contexts."),
)
@click.option(
    "--secret",
    default="",
    metavar="FILE",
    help="A file with the settings of package indexes. Builds get this file as the secret `envbuild`.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write to this file (default: standard output).",
)
@output_file.force
@options.common
@click.pass_obj
def command(
    session: Session,
    /,
    *,
    names: tuple[str, ...],
    every: bool,
    pattern: str,
    repository: str,
    moving_tags: bool,
    contexts: Path | None,
    secret: str,
    output: Path | None,
    force: bool,
) -> int:
    """Write a file with which `docker buildx bake` builds the image of each NAME, also on remote or Kubernetes builders.

    Each environment is a target of the file, and each framework is a group of targets. `envbuild render NAME --context DIR`
    writes the same build contexts.
    """
    from envbuild.compose.outputs import registry_client
    from envbuild.pipeline import bake_file
    from envbuild.pipeline.batch_selection import Selection, select

    output_file.require_output(output, force=force)
    if names and pattern:
        raise UsageError("Name environments, or give --match.", hint="--all means all environments.")
    registry_client.parse(repository)
    settings = bake_file.BakeSettings(
        repository=repository,
        moves_tags=moving_tags,
        secret=secret,
        contexts=str(contexts or bake_file.CONTEXTS),
    )
    bake_file.require_plain(settings.secret, settings.contexts)
    with display(session) as shown:
        tools = session.tools(on_progress=shown.news)
        jobs = select(tools, Selection(texts=names, every=every, pattern=pattern), options.chosen({}))
        baked = bake_file.bake(tools, jobs, settings)
        notes = bake_file.write_contexts(tools, jobs, baked, contexts) if contexts is not None else ()
    if output is not None:
        output_file.write(output, baked.text, force=force)
        session.out(f"{output}: {len(baked.targets)} target{'s' if len(baked.targets) != 1 else ''}")
    elif not session.json:
        session.raw(baked.text)
    session.document(
        {
            "schema": 1,
            "path": str(output or ""),
            "targets": baked.targets,
            "skipped": [{"name": each.name, "code": each.code, "message": each.message} for each in baked.skipped],
            "notes": list(notes),
            "text": baked.text,
        }
    )
    for skipped in baked.skipped:
        session.err(f"{skipped.name} is left out: {skipped.message}")
    for note in notes:
        session.err(f"note: {note}")
    return 0
