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
    from envbuild import codec, pipeline, resolve

    wanted = resolve.Filters(framework=framework or "", **{name: value or "" for name, value in filters.items()})
    rows = [row for row in resolve.catalogue(pipeline.Tools(session.workspace).matrix, wanted) if base in (None, row.provider)]
    if session.json:
        session.document({"schema": 1, "environments": [codec.encode(row) for row in rows]})
        return 0
    table = [_HEAD]
    for row in rows:
        driver = f">= {row.driver_min}" if row.driver_min else "-"
        name = row.name or f"({row.framework} {row.version} {row.variant})"
        table.append([name, row.cuda or "-", row.python or "-", row.system or "-", row.provider or "-", driver, row.status])
    session.out(wording.columns(table))
    if not rows:
        session.err("Nothing in the matrix matches.")
    return 0
