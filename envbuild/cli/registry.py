"""``envbuild registry list|prune HOST/REPOSITORY``: list the images of a repository, or remove those that nothing needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from envbuild.cli import options, wording
from envbuild.cli.session import Session
from envbuild.model.progress import counted

if TYPE_CHECKING:
    from envbuild.pipeline.retention import RegistryDocument


@click.group("registry")
@options.common
def command() -> None:
    """List the images of a repository in a registry, or remove images that no moving tag and no release needs."""


@command.command("list")
@click.argument("repository", metavar="HOST/REPOSITORY")
@options.common
@click.pass_obj
def list_images(session: Session, repository: str) -> int:
    """List everything that has a tag in the repository, and why it must be kept."""
    from envbuild import codec
    from envbuild.pipeline import retention

    found = retention.survey(repository)
    session.document({"schema": 1, "repository": repository, "images": codec.encode(found)})
    if not found:
        session.out(f"{repository} has no tags.")
        return 0
    session.out(wording.columns([["IMAGE", "DIGEST", "SIZE", "STATEMENTS", "NEEDED BY"], *map(_row, found)]))
    return 0


@command.command("prune")
@click.argument("repository", metavar="HOST/REPOSITORY")
@click.option(
    "--keep",
    required=True,
    type=click.IntRange(min=0),
    metavar="N",
    help=(
        "Keep the newest N images of each environment, and all images that have a moving tag or belong to a published release."
    ),
)
@click.option("--yes", is_flag=True, help="Remove the images. Without it, the command only shows what it would remove.")
@options.common
@click.pass_obj
def prune(session: Session, repository: str, *, keep: int, yes: bool) -> int:
    """Show the images of environments that no moving tag and no release needs, and with --yes remove them.

    The statements attached to these images are removed too. The newest N of these images of each environment are kept. The
    registry frees the space of unused layers when its own garbage collection runs. Do not publish to the repository while this
    command runs.
    """
    from envbuild import codec
    from envbuild.pipeline import retention

    done = retention.prune(repository, keep, dry_run=not yes)
    session.document({
        "schema": 1, "repository": repository, "dry_run": not yes, "removed": codec.encode(done.removed),
        "kept": codec.encode(done.kept), "statements": done.statements,
    })  # fmt: skip
    if done.removed:
        session.out(wording.columns([_row(each)[:3] for each in done.removed], indent="  "))
    verb = "removed" if yes else "would be removed"
    session.out(
        f"{counted(len(done.removed), 'image')} and {counted(done.statements, 'statement')} {verb}, {len(done.kept)} kept"
    )
    if done.removed and not yes:
        session.err("Nothing was removed. To remove these images, use --yes.")
    return 0


def _row(each: RegistryDocument) -> list[str]:
    name = each.tags[0] + (f" (+{len(each.tags) - 1})" if len(each.tags) > 1 else "")
    digest, size = each.digest.removeprefix("sha256:")[:12], wording.size(each.size) if each.size else ""
    return [name, digest, size, str(each.statements), ", ".join(each.needed_by) or "nothing"]
