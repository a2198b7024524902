"""``envbuild ci github|gitlab``: write the CI pipeline that plans, builds, tests and publishes the images of a checkout."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from envbuild.cli import cache, options, output_file
from envbuild.cli.session import Session


@click.command("ci")
@click.argument("system", type=click.Choice(["github", "gitlab"]))
@options.destination
@click.option("--branch", default="main", metavar="NAME", show_default=True, help="The branch from which images are published.")
@click.option(
    "--shards",
    type=click.IntRange(1, 100),
    default=8,
    metavar="N",
    show_default=True,
    help="The largest number of jobs that run at once.",
)
@click.option(
    "--disk",
    default="14GB",
    metavar="SIZE",
    show_default=True,
    help=("The free disk space on the machine of each job. The work is divided so that each job needs no more, if possible."),
)
@click.option(
    "--install",
    default="",
    metavar="COMMAND",
    help="The shell command with which a job installs envbuild (default: a pip command).",
)
@click.option(
    "--key",
    "key_files",
    multiple=True,
    envvar=options.KEY,
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help=(
        "A public key, which is written into the pipeline: the catalogue then checks the signatures of the images with it "
        f"(default: the variable {options.KEY}). May be repeated. Without a key, the catalogue checks no signature."
    ),
)
@click.option(
    "-o",
    "--output",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Write the files into FOLDER (default: print them).",
)
@output_file.force
@options.common
@click.pass_obj
def command(
    session: Session,
    /,
    *,
    system: str,
    repository: str,
    branch: str,
    shards: int,
    disk: str,
    install: str,
    key_files: tuple[Path, ...],
    folder: Path | None,
    force: bool,
) -> int:
    """Write the pipeline of a CI system. Its jobs plan the work, build and test images, test them on GPUs, and publish
    images that passed.

    Without --output, the pipeline is printed. If a GPU image changed and no runner with a GPU tested it, the pipeline fails as
    inconclusive.
    """
    from envbuild.compose.outputs import registry_client
    from envbuild.pipeline import ci_files

    registry_client.parse(repository)
    cache.parse_size(disk)
    workspace = session.workspace
    pipeline = ci_files.Pipeline(
        repository=repository,
        branch=branch,
        shards=shards,
        disk="".join(disk.split()),  # a job passes this value to a shell without quotes
        install=install or ci_files.install_command(workspace),
        keys=_public_keys(key_files),
    )
    text = ci_files.text(workspace, system, pipeline)
    path = folder / ci_files.PATHS[system] if folder else None
    if path is None:
        if not session.json:
            session.raw(text)
    else:
        output_file.write(path, text, force=force)
        session.out(str(path))
    session.document({"schema": 1, "system": system, "path": str(path or ""), "text": text})
    if not key_files:
        session.err("note: The catalogue of this pipeline checks no signature, because no public key was given with --key.")
    return 0


def _public_keys(paths: Sequence[Path]) -> tuple[str, ...]:
    if not paths:
        return ()
    from envbuild.attest import keys

    return tuple(dict.fromkeys(keys.public_text(path) for path in paths))
