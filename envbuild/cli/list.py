"""``envbuild list``: list the environments of the matrix."""

from __future__ import annotations

from typing import Any

import click

from envbuild.cli import options, wording
from envbuild.cli.session import Session

_HEAD = ["NAME", "CUDA", "PYTHON", "OS", "BASE", "DRIVER", "STATUS"]
_STACKS = ["STACK", "WHAT IT IS"]


def _statuses(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    if not values:
        return ()
    from envbuild.resolve.build_list import STATES

    words = (word.strip() for text in values for word in text.split(","))
    return tuple(click.Choice(STATES).convert(word, param, ctx) for word in words)


@click.command("list")
@click.argument("framework", required=False)
@click.option(
    "--cuda",
    default="",
    metavar="VERSION",
    help=("Only builds for this CUDA: a version such as 12.1, a major version such as 12, or 'cpu' for builds without CUDA."),
)
@click.option(
    "--status",
    multiple=True,
    metavar="WORD,…",
    callback=_statuses,
    help=(
        "Only rows with these states: ok, unknown, known-bad, base-deleted, end-of-life, or unserved (no base "
        "or Python of the matrix fits the build). Separated by commas, or repeated."
    ),
)
@options.constraints
@options.common
@click.pass_obj
def command(session: Session, /, framework: str | None, **filters: Any) -> int:
    """List the environments of the matrix, newest first, or only those of one FRAMEWORK. `envbuild make NAME` makes any of
    them.

    If neither FRAMEWORK nor a filter is given, the stacks follow: named combinations of several frameworks in one image.
    --json also shows the proofs of each environment, as in `envbuild evidence`.
    """
    from envbuild.pipeline import listing

    wanted = {name: value or "" for name, value in {"framework": framework, **filters}.items()}
    tools = session.tools()
    rows = listing.list_builds(tools, **wanted)
    warnings = listing.doubts(tools, wanted) if any(wanted.values()) else []
    wording.warnings(session, warnings)
    stacks = [] if any(wanted.values()) else listing.list_stacks(tools)
    if session.json:
        told = {key: listing.with_evidence(tools, each, warnings) for key, each in (("environments", rows), ("stacks", stacks))}
        session.document({"schema": 1, **told, "warnings": warnings})
        return 0
    table = [_HEAD]
    for row in rows:
        driver = f">= {row['driver_min']}" if row["driver_min"] else "-"
        name = row["name"] or f"({row['framework']} {row['version']} {row['variant']})"
        rest = (row[part] or "-" for part in ("cuda", "python", "system", "provider"))
        table.append([name, *rest, driver, row["status"]])
    session.out(wording.columns(table))
    if stacks:
        session.out(f"\n{wording.columns([_STACKS, *([each['name'], each['title']] for each in stacks)])}")
    if not rows:
        session.err("Nothing in the matrix matches.")
    return 0
