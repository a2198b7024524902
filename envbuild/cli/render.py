"""``envbuild render NAME``: write the Dockerfile and requirements of a locked environment. ``--check`` only compares them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from envbuild import errors
from envbuild.cli import options
from envbuild.cli.session import Session

if TYPE_CHECKING:
    from envbuild.pipeline.constraints import Constraints
    from envbuild.pipeline.tools import Tools


@click.command("render")
@options.naming("names", several=True, required=False, metavar="NAME…")
@click.option("--all", "every", is_flag=True, help="All environments that have a folder in images/environments/.")
@click.option(
    "--check",
    is_flag=True,
    help=("Write nothing. List files that are missing, that differ from what would be written, or that belong to no lock."),
)
@click.option(
    "--context",
    "folder",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help=(
        "Write the build context of NAME into DIR. Plain `docker build DIR` then builds NAME on any machine, without envbuild."
    ),
)
@options.constraints
@options.common
@click.pass_obj
def command(
    session: Session, /, names: tuple[str, ...], every: bool, check: bool, folder: Path | None, **constraints: str | None
) -> int:
    """Write the Dockerfile and requirements of each NAME from its lock. The same lock gives the same files on every machine.

    In a checkout of envbuild, the files are written next to the lock. If envbuild is installed as a package, the files and the
    lock are written to ./NAME.
    """
    from envbuild.pipeline.render_environments import copied, render

    if bool(names) == every:
        raise errors.UsageError(
            "Name environments, or use --all.", hint="`envbuild render --all --check` compares all environments."
        )
    if folder is not None:
        if len(names) != 1 or check:
            raise errors.UsageError(
                "--context needs exactly one NAME, and cannot be combined with --check.",
                hint="For example: envbuild render NAME --context DIR",
            )
        return _context(session, names, folder.absolute(), options.chosen(constraints))
    tools = session.tools(names)
    if check:
        return _check(session, tools, names, options.chosen(constraints))
    documents = []
    for made in render(tools, names, options.chosen(constraints)):
        done = copied(tools, made, Path.cwd() / made.name) if tools.workspace.is_packaged else made
        if not session.quiet:
            session.out(
                "\n".join([f"{done.name}{' (kept)' if done.kept else ''}", *(f"  {done.folder / file}" for file in done.files)])
            )
        documents.append({"name": done.name, "folder": str(done.folder), "files": list(done.files), "kept": done.kept})
    session.document({"schema": 1, "renderings": documents})
    return 0


def _context(session: Session, names: tuple[str, ...], folder: Path, constraints: Constraints) -> int:
    from envbuild.cli.progress_display import display
    from envbuild.pipeline import context_folder, locking, resolving

    context_folder.require_free(folder)
    with display(session) as shown:
        tools = session.tools(names, on_progress=shown.news)
        name = resolving.resolve_buildable(tools, list(names), constraints).environment.name
        notes = context_folder.write_context(tools, locking.require_lock(tools, name), folder)
    session.document({"schema": 1, "name": name, "context": str(folder), "notes": list(notes)})
    session.out(f"{name}: {folder} contains everything that its build needs")
    for note in notes:
        session.out(f"  {note}")
    session.out(f"  DOCKER_BUILDKIT=1 docker build --tag {name.replace('+', '_')} {folder}")
    return 0


def _check(session: Session, tools: Tools, texts: tuple[str, ...], constraints: Constraints) -> int:
    from envbuild.pipeline import committed, resolving

    if texts:
        names = [resolving.resolve_buildable(tools, [text], constraints).environment.name for text in texts]
        found, count = [each for name in names for each in committed.check_one(tools, name)], len(names)
    else:
        found, count = committed.check_all(tools), len(committed.names(tools))
    if found:
        raise errors.InvalidInputError(
            f"{len(found)} file{'s' if len(found) > 1 else ''} on disk differ from the renderings of the locks.",
            code="stale-rendering",
            problems=[errors.Problem(where=str(each.path), line=0, message=f"{each.kind}: {each.note}") for each in found],
            hint="To write a rendering again, run `envbuild render NAME`. Delete files without a lock yourself.",
        )
    session.document({"schema": 1, "checked": count, "differences": []})
    session.out(f"{count} environment{'s' if count != 1 else ''}: all files on disk equal the renderings of the locks")
    return 0
