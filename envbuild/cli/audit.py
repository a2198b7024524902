"""``envbuild audit NAME``: known vulnerabilities of what a lock pins."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from envbuild.cli import options, wording
from envbuild.cli.progress import display
from envbuild.cli.session import Session

if TYPE_CHECKING:
    from envbuild.audit import Audit


@click.command("audit")
@options.naming()
@click.option(
    "--database",
    type=click.Path(path_type=Path),
    help="A local OSV database: a folder of records, or the zip that osv.dev offers for PyPI. No network is used.",
)
@click.option("--service", type=click.Choice(["osv", "pypi"]), default="osv", help="Without --database: which service to ask.")
@click.option("--strict", is_flag=True, help="Exit with 12 where anything is known.")
@options.constraints
@options.common
@click.pass_obj
def command(
    session: Session, /, name: str, database: Path | None, service: str, strict: bool, **constraints: str | None
) -> int:
    """List the known vulnerabilities of the Python packages that NAME's lock pins.

    An old environment is old on purpose, so that findings alone are no failure. A service that does not answer is one.
    """
    from envbuild import codec, pipeline
    from envbuild.audit import audit
    from envbuild.errors import VulnerableError
    from envbuild.model import Progress

    tools = pipeline.Tools(session.workspace).at([name])
    locked = pipeline.require_lock(tools, pipeline.resolve_request(tools, [name], options.chosen(constraints)).environment.name)
    canonical = locked.lock.environment.name
    with display(session) as shown:
        shown.news(Progress(stage="audit", message=f"comparing with {database or f'what {service} knows'}"))
        found = audit(locked.lock, database=database, service=service)
    session.document({"schema": 1, "name": canonical, **codec.encode(found)})
    session.out(_text(canonical, found))
    return VulnerableError.exit_code if strict and found.findings else 0


def _text(name: str, found: Audit) -> str:
    packages = {finding.package for finding in found.findings}
    lines = [f"{name}: {len(found.findings)} advisories about {len(packages)} of {found.checked} packages, by {found.database}"]
    rows = []
    for each in found.findings:
        mended = f"fixed in {', '.join(each.fixed_in)}" if each.fixed_in else "no release mends it"
        rows.append([each.package, each.version, each.advisory, " ".join(each.aliases), mended])
    lines += [wording.columns(rows, indent="  ")] if rows else []
    return "\n".join([*lines, *(f"  not checked: {what}" for what in found.unchecked)])
