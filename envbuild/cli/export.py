"""``envbuild export NAME --format compose|devcontainer``: write a file with which another program starts the image."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from envbuild.cli import image_source, options, output_file
from envbuild.cli.progress_display import display
from envbuild.cli.session import Session


@click.command("export")
@options.naming()
@click.option("--format", "form", type=click.Choice(["compose", "devcontainer"]), required=True, help="The format of the file.")
@click.option(
    "-o",
    "--output",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Write compose.yaml or .devcontainer/devcontainer.json into FOLDER (default: print the text).",
)
@output_file.force
@options.shm_size
@image_source.image_source
@options.constraints
@options.common
@click.pass_obj
def command(
    session: Session, /, name: str, *, form: str, folder: Path | None, force: bool, shm_size: str, repository: str,
    key_file: Path | None, **values: Any
) -> int:  # fmt: skip
    """Write a Compose file or a devcontainer.json for the image of NAME.

    If a registry is named and has the image, the file names the image by its digest. Else the file names it by the tag that
    `envbuild make` sets on this machine.
    """
    from envbuild.attest import keys
    from envbuild.pipeline import exporting, resolving, running

    output_file.require_output(folder, force=force)
    image_source.require_registry_for_key(repository)
    with display(session) as shown:
        tools = session.tools([name], on_progress=shown.news)
        environment = resolving.resolve_buildable(tools, [name], options.chosen(values)).environment
        each = running.candidate(tools, name, environment)
        key = keys.public_key(key_file) if key_file else None
        asked = running.RunOptions(repository=repository, key=key, shm_size=shm_size)
        exported = exporting.export(tools, each, asked, form)
    if folder is None:
        session.raw(exported.text) if not session.json else None
    else:
        path = folder / exported.path
        output_file.write(path, exported.text, force=force)
        session.out(str(path))
    session.document({
        "schema": 1, "name": each.name, "image": exported.found.reference, "origin": exported.found.origin,
        "built": not exported.found.missing, "path": str(folder / exported.path) if folder else "", "text": exported.text,
    })  # fmt: skip
    if exported.found.missing:
        session.err(
            f"note: This machine does not have the image yet. To make it, run: envbuild make {tools.cli_name(each.name)}"
        )
    return 0
