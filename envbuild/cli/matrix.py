"""``envbuild matrix check``: the facts, read strictly and checked against each other."""

from __future__ import annotations

import click

from envbuild.cli import options
from envbuild.cli.session import Session
from envbuild.errors import InvalidInputError


@click.group("matrix")
@options.common
def command() -> None:
    """The compatibility matrix: which versions go together, with source, date and status."""


@command.command("check")
@options.common
@click.pass_obj
def check(session: Session) -> int:
    """Read matrix.yaml and what it includes, and list every problem at once, with file and line."""
    from envbuild import matrix

    facts = matrix.load_files(session.workspace.matrix, session.workspace.overlays)
    problems = matrix.check(facts)
    if problems:
        raise InvalidInputError(
            f"{len(problems)} problem{'s' if len(problems) > 1 else ''} in the matrix.",
            code="matrix",
            problems=problems,
            hint="Correct the rows named above; docs/adding-a-framework.md says what a row must have.",
        )
    session.document({"schema": 1, "matrix": str(session.workspace.matrix), "problems": []})
    session.out(f"{session.workspace.matrix}: no problems")
    return 0
