"""``envbuild add NAME PACKAGE…``: add the user's packages to an environment."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from envbuild.cli import options
from envbuild.cli.progress_display import display
from envbuild.cli.session import Session
from envbuild.errors import UsageError

if TYPE_CHECKING:
    from envbuild.pipeline.adding import AddResult


@click.command("add")
@options.naming("name")
@click.argument("packages", nargs=-1, metavar="PACKAGE…")
@click.option(
    "--apt", multiple=True, metavar="PACKAGE", help="Also install a package of the operating system; may be repeated."
)
@click.option(
    "--newer", is_flag=True, help="Allow versions of PACKAGE that were published after the date limit of the framework."
)
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(),
    help="If NAME is a request: the folder for the new envbuild.yaml (default: the current folder).",
)
@options.common
@click.pass_obj
def command(
    session: Session, /, name: str, folder: Path, *, packages: tuple[str, ...], apt: tuple[str, ...], newer: bool
) -> int:
    """Add each PACKAGE to the envbuild.yaml of NAME, and pin it and its dependencies by hash.

    NAME is the path of an envbuild.yaml. If NAME is a request, such as a name from `envbuild list`, a new envbuild.yaml is
    written into the current folder. A PACKAGE is a requirement such as 'pandas>=1.0', or a framework of the matrix. Packages
    that are pinned already keep their versions if the new packages allow these versions. The new packages get a separate
    layer.
    """
    from envbuild.pipeline import adding

    if not packages and not apt:
        raise UsageError("Name at least one package to add.", hint="For example: envbuild add . pandas")
    with display(session) as shown:
        tools = session.tools(on_progress=shown.news)
        additions = adding.sort_words(tools, packages, apt=apt, newer=newer)
        added = adding.add(tools, name, additions, folder)
    _tell(session, added)
    return 0


def _tell(session: Session, added: AddResult) -> None:
    from envbuild.cli import lock_upgrade

    changes = added.difference.changes if added.difference is not None else ()
    path = str(added.path) if added.path.is_absolute() else f"./{added.path}"
    if not added.changed:
        session.out(f"{path}: nothing to add, because it already lists all of these packages")
    else:
        session.out(f"{path} {'written' if added.is_new else 'changed'}; {added.lock_path.name} pins its packages")
        if changes:
            session.out(lock_upgrade.table(changes))
        for gap in added.lock.missing:
            session.out(f"  not pinned: {gap.what}: {gap.why}")
        session.err(f"To build it, run: envbuild make {path}")
    session.document(
        {
            "schema": 1,
            "path": str(added.path),
            "lock": str(added.lock_path),
            "environment": added.lock.environment.name,
            "new": added.is_new,
            "changed": added.changed,
            **lock_upgrade.packages(changes),
        }
    )
