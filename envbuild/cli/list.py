"""``envbuild list``: what the matrix knows."""

from __future__ import annotations

import click

from envbuild.cli import options, wording
from envbuild.cli.session import Session

_HEAD = ["NAME", "CUDA", "PYTHON", "OS", "BASE", "DRIVER", "STATUS"]


@click.command("list")
@click.argument("framework", required=False)
@click.option("--cuda", default="", metavar="VERSION", help="Only these CUDA versions (a prefix); 'cpu' for none.")
@click.option("--status", default="", metavar="WORD", help="Only this status: ok, unknown, known-bad, end-of-life, unserved.")
@options.constraints
@options.common
@click.pass_obj
def command(session: Session, /, framework: str | None, base: str | None, **filters: str | None) -> int:
    """List the environments of the matrix, newest first, optionally of one FRAMEWORK; any NAME in the list can be made."""
    from envbuild import pipeline

    wanted = {name: value or "" for name, value in {"framework": framework, **filters}.items()}
    found = pipeline.catalogue(pipeline.Tools(session.workspace), **wanted)
    rows = [row for row in found if base in (None, row["provider"])]
    if session.json:
        session.document({"schema": 1, "environments": rows})
        return 0
    table = [_HEAD]
    for row in rows:
        driver = f">= {row['driver_min']}" if row["driver_min"] else "-"
        name = row["name"] or f"({row['framework']} {row['version']} {row['variant']})"
        rest = (row[part] or "-" for part in ("cuda", "python", "system", "provider"))
        table.append([name, *rest, driver, row["status"]])
    session.out(wording.columns(table))
    if not rows:
        session.err("Nothing in the matrix matches.")
    return 0
