"""``envbuild resolve REQUEST…``: show the environment that a request means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from envbuild.cli import options, wording
from envbuild.cli.session import Session

if TYPE_CHECKING:
    from envbuild.pipeline.gathered_reports import AcceptedReport
    from envbuild.pipeline.tools import Tools


@click.command("resolve")
@options.naming("request", several=True, metavar="REQUEST…")
@options.constraints
@options.common
@click.pass_obj
def command(session: Session, /, request: tuple[str, ...], **constraints: str | None) -> int:
    """Show which environment REQUEST means. envbuild chooses everything that REQUEST leaves open. Nothing is written.

    REQUEST is a short name (`<alias>-<version>[-cuda<version>|-cpu][-py<NN>][-<os>]`), several short names joined with +,
    requirements such as 'name>=1.12,<2' 'cuda>=9', or the name of a stack.
    """
    from envbuild.pipeline import resolving
    from envbuild.resolve.answer_json import answer_json

    tools = session.tools(request)
    resolution = resolving.resolve_request(tools, request, options.chosen(constraints))
    name, workspace = resolution.environment.name, tools.workspace
    answer = answer_json(resolution, ())
    if workspace.has_evidence(name) or workspace.with_same_build(name):  # evidence is rare, and reading it imports more modules
        from envbuild.cli import evidence_from

        answer |= evidence_from.proofs_of(tools, name)
    elsewhere = _elsewhere(tools, name)
    if elsewhere:
        from envbuild.cli import evidence_from

        answer |= evidence_from.document(elsewhere)
    session.document(answer)
    session.out(wording.environment(answer))
    if elsewhere:
        session.out("")
        session.out(wording.columns(evidence_from.rows(tools, elsewhere, constraints.get("gpu")), indent="  "))
    wording.warnings(session, resolution.warnings)
    return 0


def _elsewhere(tools: Tools, name: str) -> Sequence[AcceptedReport]:
    """Return the accepted smoke reports of other machines.

    Most environments have no such reports. The modules that read the reports are then not imported.
    """
    if not tools.workspace.gathered_file(name).exists():
        return ()
    from envbuild.cli import evidence_from

    return evidence_from.known(tools, name)
