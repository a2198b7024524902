"""``envbuild lock NAME``: pin every file by hash."""

from __future__ import annotations

import click

from envbuild import errors
from envbuild.cli import options, wording
from envbuild.cli.progress import display
from envbuild.cli.session import Session


@click.command("lock")
@click.argument("names", nargs=-1, metavar="NAME…", shell_complete=options.complete_name)
@click.option("--check", is_flag=True, help="Only check that locks are present and that the matrix accepts them; offline.")
@click.option("--relock", is_flag=True, help="Make the lock anew, whatever is there.")
@click.option("--all", "every", is_flag=True, help="Every environment that has a folder; with --check.")
@options.constraints
@options.common
@click.pass_obj
def command(
    session: Session, /, names: tuple[str, ...], check: bool, relock: bool, every: bool, **constraints: str | None
) -> int:
    """Pin the Python packages and the base of each NAME by hash, as of the framework's own time.

    A lock that is present is kept; what it could not pin then is completed where that is possible now.
    """
    if every and not check:
        raise errors.UsageError("--all goes with --check.", hint="Name the environments to lock.")
    if bool(names) == every:
        raise errors.UsageError("Name environments, or give --all with --check.", hint="`envbuild list` shows the names.")
    return _check(session, names, constraints) if check else _lock(session, names, constraints, relock)


def _lock(session: Session, names: tuple[str, ...], constraints: dict[str, str | None], relock: bool) -> int:
    from envbuild import codec, pipeline

    documents = []
    for name in names:
        with display(session) as shown:
            tools = pipeline.Tools(session.workspace, on_progress=shown.news)
            resolution = pipeline.resolve_buildable(tools, [name], options.chosen(constraints))
            locked = pipeline.lock_environment(tools, resolution.environment, relock=relock)
        lock = locked.lock
        wording.warnings(session, resolution.warnings)
        count = sum(len(prefix.artifacts) for prefix in lock.prefixes)
        session.out(f"{lock.environment.name}: {count} files pinned by sha256{' (kept)' if locked.kept else ''}")
        session.out(f"  {locked.path}")
        for missing in lock.missing:
            session.out(f"  not pinned: {missing.what}: {missing.why}")
        documents.append(
            {
                "name": lock.environment.name,
                "path": str(locked.path),
                "sha256": locked.digest,
                "kept": locked.kept,
                "files": count,
                "missing": codec.encode(lock.missing),
            }
        )
    session.document({"schema": 1, "locks": documents})
    return 0


def _check(session: Session, names: tuple[str, ...], constraints: dict[str, str | None]) -> int:
    from envbuild import pipeline

    tools = pipeline.Tools(session.workspace)
    canonical = [
        pipeline.resolve_buildable(tools, [name], options.chosen(constraints)).environment.name for name in names
    ] or pipeline.names(tools)
    problems: list[errors.Problem] = []
    for name in canonical:
        try:
            pipeline.require_lock(tools, name)
        except errors.InvalidInputError as error:
            problems += error.problems or [errors.Problem(where=name, line=0, message=error.message)]
    if problems:
        raise errors.InvalidInputError(
            f"{len(problems)} problem{'s' if len(problems) > 1 else ''} in the locks.",
            code="stale-lock",
            problems=problems,
            hint="`envbuild lock NAME --relock` makes a lock again.",
        )
    session.document({"schema": 1, "checked": canonical})
    session.out(f"{len(canonical)} lock{'s' if len(canonical) != 1 else ''} present and accepted by the matrix")
    return 0
