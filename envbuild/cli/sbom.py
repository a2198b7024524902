"""``envbuild sbom NAME``: what a lock pins, as CycloneDX."""

from __future__ import annotations

from pathlib import Path

import click

from envbuild.cli import options
from envbuild.cli.session import Session


@click.command("sbom")
@options.naming()
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Write it there, not to standard output.")
@options.constraints
@options.common
@click.pass_obj
def command(session: Session, /, name: str, output: Path | None, **constraints: str | None) -> int:
    """Print the bill of materials of NAME's lock (CycloneDX 1.6, JSON): every file with its hash, and what is not pinned."""
    from envbuild import files, pipeline, sbom

    tools = pipeline.Tools(session.workspace).at([name])
    locked = pipeline.require_lock(tools, pipeline.resolve_request(tools, [name], options.chosen(constraints)).environment.name)
    text = sbom.dumps(locked.lock, locked.digest)
    if output is None:
        session.raw(text)
        return 0
    files.write_atomic(output, text)
    session.out(str(output))
    session.document({"schema": 1, "name": locked.lock.environment.name, "path": str(output)})
    return 0
