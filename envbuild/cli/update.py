"""``envbuild update``: put new releases, renewed locks and renderings on one git branch, and write the pull request's text."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from envbuild.cli import matrix_measure, options, output_file
from envbuild.cli.progress_display import display
from envbuild.cli.session import Session
from envbuild.errors import UsageError
from envbuild.model.progress import counted

if TYPE_CHECKING:
    from envbuild.updates.making import Update
    from envbuild.updates.model import Changes, RenewedLock, UpdateRequest

BRANCH = "envbuild-update"


@click.command("update")
@click.option(
    "--branch", default=BRANCH, metavar="NAME", show_default=True, help="The git branch to which the update is committed."
)
@click.option("--replace", is_flag=True, help="If the branch exists and contains other commits, replace it.")
@click.option("--from", "revision", default="HEAD", metavar="REV", show_default=True, help="The commit to start from.")
@click.option(
    "--framework",
    "frameworks",
    metavar="NAME",
    multiple=True,
    help="Look only for releases of this framework; may be repeated.",
)
@matrix_measure.no_measure
@click.option("--no-releases", is_flag=True, help="Do not look for new releases; renew locks only.")
@click.option(
    "--locks",
    type=click.Choice(["none", "security", "all"]),
    default="none",
    show_default=True,
    help=(
        "Which locks to renew. none: no lock. security: only packages with known vulnerabilities, to the "
        "lowest fixed versions. all: all packages."
    ),
)
@click.option(
    "--match",
    "pattern",
    default="",
    metavar="GLOB",
    help="Renew only the locks of environments whose canonical name matches the pattern.",
)
@click.option(
    "--newest",
    multiple=True,
    metavar="REQUEST",
    help=(
        "Also lock the environment that REQUEST means in the updated matrix, and add it to "
        "images/environments.yaml. An example is FRAMEWORK-cpu. May be repeated."
    ),
)
@click.option(
    "--database",
    "databases",
    multiple=True,
    type=click.Path(path_type=Path, exists=True),
    help="A local OSV database of known vulnerabilities, as for `envbuild audit`; may be repeated.",
)
@click.option(
    "--service",
    type=click.Choice(["osv", "pypi"]),
    help="The service that is asked for known vulnerabilities (default: osv with --locks security, else none).",
)
@click.option(
    "--keep-going",
    is_flag=True,
    help="If a lock cannot be renewed, leave it unchanged, and list it in the text of the pull request.",
)
@click.option("--dry-run", is_flag=True, help="Show what would change, but make no branch.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Also write the text of the pull request to FILE.",
)
@options.common
@click.pass_obj
def command(
    session: Session, /, *, branch: str, replace: bool, revision: str, dry_run: bool, output: Path | None, **values: Any
) -> int:
    """Add new releases, renew locks and renderings, and commit all changes to one git branch. Also print the text of a pull
    request.

    The command does not change your working tree. If a step fails, or if you stop the command, no branch is made. A release is
    added only when everything that belongs to it is published, such as the add-ons that upstream publishes with it.
    """
    from envbuild.updates import making

    request = _request(**values)
    with display(session) as shown:
        made = making.make(
            session.workspace,
            request,
            branch=branch,
            revision=revision,
            replaces=replace,
            writes=not dry_run,
            on_progress=shown.news,
        )
    if output is not None and made.text:
        output_file.write(output, made.text, force=True)
    session.document(_document(made, dry_run=dry_run))
    if not session.json:
        session.raw(made.text)
    _tell(session, made, dry_run=dry_run)
    return 0


def _request(  # noqa: PLR0917 - each option is an argument
    frameworks: tuple[str, ...],
    no_measure: bool,
    no_releases: bool,
    locks: Any,
    pattern: str,
    newest: tuple[str, ...],
    databases: tuple[Path, ...],
    service: str | None,
    keep_going: bool,
) -> UpdateRequest:
    from envbuild.updates.model import UpdateRequest

    if no_releases and frameworks:
        raise UsageError("--framework cannot be combined with --no-releases.", hint="Give one of them.")
    if no_releases and no_measure:
        raise UsageError("--no-measure cannot be combined with --no-releases.", hint="Give one of them.")
    if no_releases and locks == "none" and not newest:
        raise UsageError("Nothing to update is left.", hint="Add --locks security or --locks all, or --newest REQUEST.")
    if databases and service:
        raise UsageError("--database and --service cannot be combined.", hint="Give one of them.")
    if locks == "none" and (pattern or keep_going):
        given = "--match" if pattern else "--keep-going"
        raise UsageError(f"{given} is about renewing locks.", hint="Add --locks security or --locks all.")
    asked = service or ("osv" if locks == "security" and not databases else "")
    return UpdateRequest(
        frameworks=frameworks,
        locks=locks,
        pattern=pattern,
        newest=newest,
        databases=databases,
        service=asked,
        keeps_going=keep_going,
        asks_index=not no_releases,
        measures=not no_measure,
    )


def _tell(session: Session, made: Update, *, dry_run: bool) -> None:
    if made.base.dirty:
        session.err(
            f"note: the working tree has changes that are not committed; the update starts from {made.base.commit[:10]}."
        )
    unchecked = made.changes.unchecked
    if unchecked:
        session.err(f"warning: not everything was compared with advisories ({len(unchecked)} notes); the first: {unchecked[0]}")
    if not made.paths:
        for each in made.changes.waiting:
            session.err(f"{each.framework} {each.version} waits: {each.reason}.")
        for kept in made.changes.kept:
            about = f": {', '.join(kept.remaining)}" if kept.remaining else ""
            session.err(f"{kept.name} was not renewed: {kept.reason}{about}")
        session.err("There is nothing new, so no branch was made.")
    elif made.is_known:
        session.err(f"There is nothing new: the branch {made.branch} already has this update.")
    elif dry_run:
        session.err(f"{counted(len(made.paths), 'file')} would change; --dry-run made no branch.")
    else:
        session.err(f"The branch {made.branch} has the update: {made.commit[:10]}, {counted(len(made.paths), 'file')}.")


def _document(made: Update, *, dry_run: bool) -> dict[str, Any]:
    return {
        "schema": 1,
        "base": made.base.commit,
        "dirty": made.base.dirty,
        "branch": made.branch if made.commit or made.is_known else "",
        "commit": made.commit,
        "dry_run": dry_run,
        "new": bool(made.paths) and not made.is_known,
        "files": list(made.paths),
        "title": made.changes.title,
        "text": made.text,
        **_changes(made.changes),
    }


def _changes(changes: Changes) -> dict[str, Any]:
    return {
        "releases": [asdict(each) for each in changes.releases],
        "waiting": [asdict(each) for each in changes.waiting],
        "findings": [asdict(each) for each in changes.left],
        "locks": [_lock(each) for each in changes.locks],
        "not_renewed": [{"name": each.name, "reason": each.reason, "remaining": list(each.remaining)} for each in changes.kept],
        "stale": list(changes.stale),
        "advisories": {"database": changes.database, "unchecked": list(changes.unchecked)},
    }


def _lock(renewed: RenewedLock) -> dict[str, Any]:
    from envbuild.cli import lock_upgrade

    difference = renewed.difference
    return {
        "name": renewed.name,
        "new": difference is None,
        "packages": lock_upgrade.packages(difference.changes) if difference else {"added": [], "removed": [], "changed": []},
        "base": list(difference.base) if difference else [],
        "decision": list(difference.decision) if difference else [],
        "size_before": renewed.size_before,
        "size_after": renewed.size_after,
        "closed": None if renewed.closed is None else [asdict(each) for each in renewed.closed],
        "opened": None if renewed.opened is None else [asdict(each) for each in renewed.opened],
        "evidence_lost": list(renewed.lost),
        "not_pinned": list(renewed.missing),
    }
