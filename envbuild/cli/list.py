"""``envbuild list``: what the matrix knows."""

from __future__ import annotations

import click

from envbuild.cli import options, wording
from envbuild.cli.session import Session

_HEAD = ["NAME", "CUDA", "PYTHON", "OS", "BASE", "DRIVER", "STATUS"]


@click.command("list")
@click.argument("framework", required=False)
@click.option("--cuda", metavar="VERSION", help="Only these CUDA versions (a prefix); 'cpu' for none.")
@click.option("--status", metavar="WORD", help="Only rows with this status: ok, unknown, known-bad, end-of-life …")
@options.constraints
@options.common
@click.pass_obj
def command(session: Session, /, framework: str | None, **filters: str | None) -> int:
    """List the environments of the matrix, newest first, optionally of one FRAMEWORK; any line's NAME can be made."""
    from envbuild import codec, pipeline, resolve

    tools = pipeline.Tools(session.workspace)
    rows = resolve.catalogue(tools.matrix, resolve.Filters(framework=framework, **filters))
    session.document({"schema": 1, "environments": [codec.encode(row) for row in rows]})
    table = [_HEAD]
    for row in rows:
        driver = f">= {row.driver_min}" if row.driver_min else "-"
        table.append([row.name, row.cuda or "-", row.python, row.system, row.provider, driver, row.status])
    session.out(wording.columns(table))
    if not rows:
        session.err("Nothing in the matrix matches.")
    return 0
