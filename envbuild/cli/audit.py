"""``envbuild audit NAME``: list the known vulnerabilities of the packages that a lock pins."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from envbuild.cli import options, wording
from envbuild.cli.progress_display import display
from envbuild.cli.session import Session

if TYPE_CHECKING:
    from envbuild.model.vulnerabilities import Audit


service = click.option(
    "--service",
    type=click.Choice(["osv", "pypi"]),
    default="osv",
    help="The service that is asked for vulnerabilities if --database is not given (default: osv).",
)


@click.command("audit")
@options.naming()
@click.option(
    "--database",
    "databases",
    multiple=True,
    type=click.Path(path_type=Path),
    help=(
        "A local OSV database: a folder of records, or the zip file that osv.dev offers for PyPI or Debian. "
        "The command then asks no service. May be repeated."
    ),
)
@service
@click.option(
    "--strict", is_flag=True, help="Exit with 12 if there is a known vulnerability, or if something could not be checked."
)
@options.constraints
@options.common
@click.pass_obj
def command(
    session: Session, /, name: str, databases: tuple[Path, ...], service: str, strict: bool, **constraints: str | None
) -> int:
    """List the known vulnerabilities of the packages in NAME's lock. If the image is on this machine, its Debian packages
    are included.

    Without --strict, vulnerabilities do not change the exit code, because old packages always have some. If the service does
    not answer, the command fails. Packages that could not be checked are listed; with --strict they count as vulnerable.
    """
    from envbuild import codec
    from envbuild.audit import audit
    from envbuild.errors import PolicyError
    from envbuild.model.progress import Progress
    from envbuild.pipeline import image_checks, locking, policy_facts, resolving

    tools = session.tools([name])
    locked = locking.require_lock(tools, resolving.resolve_request(tools, [name], options.chosen(constraints)).environment.name)
    canonical = locked.lock.environment.name
    with display(session) as shown:
        sources, why = image_checks.sources_of_image(tools, canonical, locked.digest)
        place = ", ".join(map(str, databases))
        shown.news(Progress(stage="audit", message=f"comparing with {place or f'the advisories of {service}'}"))
        found = audit(locked.lock, databases=databases, service=service, sources=sources, why_no_sources=why)
    about = {"schema": 1, "name": canonical, "lock": locked.digest, "date": policy_facts.today()}
    session.document({**about, **codec.encode(found), "clean": found.is_clean})
    session.out(audit_text(canonical, found))
    if strict and found.unchecked and not found.findings:
        session.err("With --strict, packages that were not checked count as a failure.")
    return PolicyError.exit_code if strict and not found.is_clean else 0


def audit_text(name: str, found: Audit) -> str:
    """Return one line with the number of advisories about the environment ``name``, then a table of these advisories."""
    packages = {(finding.ecosystem, finding.package) for finding in found.findings}
    advisories = "1 advisory" if len(found.findings) == 1 else f"{len(found.findings)} advisories"
    about = f"{advisories} about {len(packages)} of {found.checked} package{'' if found.checked == 1 else 's'}"
    lines = [f"{name}: {about if found.checked else 'no package was checked'}, by {found.database}"]
    rows = []
    for each in found.findings:
        fix = f"fixed in {', '.join(each.fixed_in)}" if each.fixed_in else "there is no release with a fix"
        rows.append([each.ecosystem, each.package, each.version, each.advisory, " ".join(each.aliases), fix])
    lines += [wording.columns(rows, indent="  ")] if rows else []
    return "\n".join([*lines, *(f"  not checked: {what}" for what in found.unchecked)])
