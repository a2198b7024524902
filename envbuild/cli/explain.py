"""``envbuild explain REQUEST``: explain why a request resolves to its environment, or why it is refused."""

from __future__ import annotations

import click

from envbuild.cli import options, wording
from envbuild.cli.session import Session


@click.command("explain")
@options.naming("request", several=True, metavar="REQUEST…")
@options.constraints
@options.common
@click.pass_obj
def command(session: Session, /, request: tuple[str, ...], **constraints: str | None) -> int:
    """Show which environment REQUEST means, each choice with its source, and why other rows of the matrix were not chosen."""
    from envbuild.pipeline import proofs, resolving
    from envbuild.resolve.answer_json import answer_json
    from envbuild.resolve.explanation import explanation_json

    tools = session.tools(request)
    explanation = resolving.explain_request(tools, request, options.chosen(constraints))
    if explanation.resolution is not None:
        answer = answer_json(explanation.resolution, proofs.held_kinds(tools, explanation.resolution.environment.name))
        session.out(wording.environment(answer))
        wording.warnings(session, explanation.resolution.warnings)
    if explanation.choices:
        session.out("\nnext best alternative of each choice")
        choices = [
            [each.choice, f"preferred to {each.next_best}", f"{each.because} [{each.source}]"] for each in explanation.choices
        ]
        session.out(wording.columns(choices, indent="  "))
    if explanation.passed_over:
        session.out("\nnot chosen")
        reasons: dict[str, list[str]] = {}
        for each in explanation.passed_over:
            reasons.setdefault(each.cited, []).append(each.row)
        session.out(wording.columns([[_rows(rows), reason] for reason, rows in reasons.items()], indent="  "))
    if explanation.error is not None:
        raise explanation.error
    session.document(explanation_json(explanation))
    return 0


def _rows(rows: list[str]) -> str:
    """Shorten a list of rows of one framework with the same reason: name the first and the last row, and give the number of
    rows."""
    return rows[0] if len(rows) == 1 else f"{rows[0]} … {rows[-1]} ({len(rows)})"
