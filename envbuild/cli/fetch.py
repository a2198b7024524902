"""``envbuild fetch NAME``: download every file that the lock pins, and check its hash."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from envbuild import errors
from envbuild.cli import options
from envbuild.cli.progress_display import display
from envbuild.cli.session import Session
from envbuild.model.progress import counted

if TYPE_CHECKING:
    from envbuild.pipeline.fetching import Fetched


@click.command("fetch")
@options.naming("names", several=True, required=False, metavar="NAME…")
@click.option(
    "--all",
    "every",
    is_flag=True,
    help="All environments that have a folder in images/environments/, those with the smallest downloads first.",
)
@click.option(
    "--to", "into", type=click.Path(path_type=Path, file_okay=False), help="Keep all downloaded files in this folder."
)
@options.constraints
@options.common
@click.pass_obj
def command(session: Session, /, names: tuple[str, ...], every: bool, into: Path | None, **constraints: str | None) -> int:
    """Download every file that the lock of each NAME pins, and check its hash. The result is stored as the proof
    `downloaded`.

    Debian packages are kept in the cache folder for later builds. Other files are checked and then deleted, unless --to names
    a folder for them. After an interruption, the next run continues. On a machine without a network, `pip install --no-index
    --find-links FOLDER` installs from this folder.
    """
    from envbuild import codec
    from envbuild.pipeline import committed, fetching, resolving

    if bool(names) == every:
        raise errors.UsageError("Name environments, or use --all.", hint="`envbuild list` shows the names.")
    with display(session) as shown:
        tools = session.tools(names, on_progress=shown.news)
        canonical = [
            resolving.resolve_buildable(tools, [name], options.chosen(constraints)).environment.name for name in names
        ] or committed.names(tools)

        def tell(done: Fetched) -> None:
            shown.line(_line(done))

        fetched = fetching.fetch(tools, canonical, into=into, on_done=tell)
    whole = [done for done in fetched if not done.failed]
    if len(whole) < len(fetched):
        raise errors.BuildError(
            f"Some files of {len(fetched) - len(whole)} of {counted(len(fetched), 'environment')} could not be downloaded.",
            code="not-fetched",
            problems=[errors.Problem(where=done.name, line=0, message=why) for done in fetched for why in done.failed],
            hint="Finished downloads are recorded. Repeat the command when the missing files can be reached. If files "
            "were deleted, run `envbuild lock NAME --relock`.",
        )
    session.out(
        f"{len(whole)} environment{'s' if len(whole) != 1 else ''}: every pinned file exists and matches its hash in the lock"
    )
    for done in fetched:
        for what in done.unpinned:
            session.out(f"{done.name}: not fetched, because the lock does not pin it: {what}")
    session.document({"schema": 1, "fetched": codec.encode(fetched)})
    return 0


def _line(done: Fetched) -> str:
    if done.failed:
        return f"{done.name}: {done.failed[0]}"
    known = f", {done.known} of them already checked" if done.known else ""
    return f"{done.name}: {counted(done.files, 'file')}, {done.size / 1e9:.2f} GB{known}"
