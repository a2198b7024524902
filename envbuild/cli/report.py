"""``envbuild report A [B]``: show a stored smoke report in another form, or compare two."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from envbuild.cli import options
from envbuild.cli.session import Session
from envbuild.errors import InvalidInputError, UsageError

_EXIT_OF_STANDING = {"not worse": 0, "worse": 9, "open": 10}
FORMATS = ("table", "markdown", "junit", "html")


@click.command("report")
@click.argument("a", metavar="A")
@click.argument("b", metavar="[B]", required=False)
@click.option(
    "--format", "form", type=click.Choice(FORMATS), default="table", show_default=True, help="The format of the output."
)
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write to this file (default: standard output)."
)
@options.common
@click.pass_obj
def command(session: Session, a: str, b: str | None, form: str, output: Path | None) -> int:
    """Show smoke report A, or compare it with smoke report B. Give each as the name of an environment or as the path of a
    JSON report.

    With B, the exit code is 9 if B failed or is worse than A. It is 10 if B is inconclusive or if the reports have nothing in
    common to compare.
    """
    from envbuild import files
    from envbuild.report import comparison, html_page, junit_xml, markdown_page, plain_text, regression

    first, exit_code = _find(session, a), 0
    if b is not None:
        if form != "table":
            raise UsageError("A comparison of two reports can only be shown as text.", hint="Leave --format out.")
        second = _find(session, b)
        found = regression.find_regression(first, second)
        exit_code = _EXIT_OF_STANDING[found.standing]
        document: dict[str, Any] = {"schema": 1, "a": first, "b": second, "comparison": comparison.compare(first, second)}
        document |= {"standing": found.standing, "reasons": list(found.reasons)}
        text = document["comparison"]
    else:
        document = first
        text = {
            "table": plain_text.table,
            "markdown": markdown_page.markdown,
            "junit": junit_xml.junit,
            "html": html_page.html,
        }[form](first)
    if output is not None:
        files.write_atomic(output, text)
        session.err(f"{output} written")
    elif not session.json:
        session.raw(text if text.endswith("\n") else text + "\n")
    session.document(document)
    return exit_code


def _find(session: Session, word: str) -> dict[str, Any]:
    from envbuild.pipeline import image_checks, resolving, status
    from envbuild.pipeline.constraints import Constraints

    of_a_recipe = word.endswith((".yaml", ".yml")) or Path(word).is_dir()
    if not of_a_recipe and ("/" in word or word.endswith(".json") or Path(word).is_file()):
        if not Path(word).is_file():
            raise UsageError(f"The file {word} does not exist.", code="no-file", hint="Name a JSON report or an environment.")
        return image_checks.read_report(Path(word))
    tools = session.tools([word])
    name = resolving.resolve_request(tools, [word], Constraints()).environment.name
    paths = status.stored_reports(tools, name)
    if "json" not in paths:
        raise InvalidInputError(
            f"This machine has no smoke report of {name}.", code="no-report", hint=f"To make one, run: envbuild make {word}"
        )
    return image_checks.read_report(paths["json"])
