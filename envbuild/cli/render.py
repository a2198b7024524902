"""``envbuild render NAME``: the Dockerfile and requirements of a locked environment; ``--check`` compares instead."""

from __future__ import annotations

import click

from envbuild import errors
from envbuild.cli import options
from envbuild.cli.session import Session


@click.command("render")
@options.naming("names", several=True, required=False, metavar="NAME…")
@click.option("--all", "every", is_flag=True, help="Every environment that has a folder.")
@click.option("--check", is_flag=True, help="Recompute in memory and list what is missing, orphan or different; write nothing.")
@options.constraints
@options.common
@click.pass_obj
def command(session: Session, /, names: tuple[str, ...], every: bool, check: bool, **constraints: str | None) -> int:
    """Write what the lock of each NAME renders to: the same lock gives the same bytes, on every machine."""
    from envbuild.pipeline import committed, locking, proofs, rendering, resolving
    from envbuild.pipeline.tools import Tools

    if bool(names) == every:
        raise errors.UsageError(
            "Name environments, or give --all.", hint="`envbuild render --all --check` compares all of them."
        )
    tools = Tools(session.workspace).at(names)
    if every and check:
        return _report(session, committed.check_all(tools), len(committed.names(tools)))
    canonical = [
        resolving.resolve_buildable(tools, [name], options.chosen(constraints)).environment.name for name in names
    ] or committed.names(tools)
    if check:
        found = [each for name in canonical for each in committed.check_one(tools, name)]
        return _report(session, found, len(canonical))
    documents = []
    for name in canonical:
        locked = locking.require_lock(tools, name)
        rendered = rendering.render_environment(tools, locked.lock)
        proofs.prove_rendering(tools, locked.lock, locked.digest, dict(rendered.files))
        session.out(f"{name}{' (kept)' if rendered.kept else ''}")
        for file in sorted(rendered.files):
            session.out(f"  {rendered.folder / file}")
        documents.append({"name": name, "folder": str(rendered.folder), "files": sorted(rendered.files), "kept": rendered.kept})
    session.document({"schema": 1, "renderings": documents})
    return 0


def _report(session: Session, found: list, count: int) -> int:  # type: ignore[type-arg]
    if found:
        raise errors.InvalidInputError(
            f"{len(found)} file{'s' if len(found) > 1 else ''} on disk differ from what the locks render to.",
            code="stale-rendering",
            problems=[errors.Problem(where=str(each.path), line=0, message=f"{each.kind}: {each.note}") for each in found],
            hint="`envbuild render NAME` writes a rendering again; an orphan is deleted by hand.",
        )
    session.document({"schema": 1, "checked": count, "differences": []})
    session.out(f"{count} environment{'s' if count != 1 else ''}: everything on disk is what the locks render to")
    return 0
