"""``envbuild matrix check`` and ``update``: compare the rows of the matrix with each other, and with the package index."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from envbuild.cli import matrix_measure, matrix_show, options, wording
from envbuild.cli.session import Session
from envbuild.errors import InvalidInputError, Problem, UsageError

if TYPE_CHECKING:
    from envbuild.matrix.online.differences import IndexDifference
    from envbuild.matrix.types import Matrix
    from envbuild.updates.rows import IndexAnswers

_framework = click.option(
    "--framework", metavar="NAME", multiple=True, help="Ask the package index only about this framework; may be repeated."
)


@click.group("matrix")
@options.common
def command() -> None:
    """The compatibility matrix says which versions go together. Each row has a source, a date and a status."""


command.add_command(matrix_show.command)
command.add_command(matrix_measure.command)


@command.command("check")
@click.option(
    "--online",
    is_flag=True,
    help="Also compare the wheels, dates, yanked files and requirements in the matrix with the package index.",
)
@_framework
@options.common
@click.pass_obj
def check(session: Session, online: bool, framework: tuple[str, ...]) -> int:
    """Read matrix.yaml and the files that it includes, and list every problem with its file and line.

    If all rows can be read, the command also checks that they do not contradict each other.
    """
    from envbuild.cli.progress_display import display
    from envbuild.index.client import Index
    from envbuild.matrix import checks, consistency
    from envbuild.matrix.reading import loader
    from envbuild.matrix.reading.loader import load_files
    from envbuild.updates import rows

    if framework and not online:
        raise UsageError("--framework needs --online.", hint="Add --online.")
    facts = load_files(session.workspace.matrix, session.workspace.overlays)
    problems = [*loader.unnamed_files(session.workspace.matrix), *_unknown_recipes(session, facts), *checks.check(facts)]
    if problems:
        raise InvalidInputError(
            f"{len(problems)} problem{'s' if len(problems) > 1 else ''} in the matrix.",
            code="matrix",
            problems=problems,
            hint="Correct the rows named above; docs/how-to/new-framework.md describes the keys of a row.",
        )
    unused = consistency.unused(facts)
    document: dict[str, Any] = {"schema": 1, "matrix": str(session.workspace.matrix), "problems": []}
    document["unused"] = [row._asdict() for row in unused]
    if online:
        with display(session) as shown:
            asked = rows.ask(rows.only(facts, framework), Index(), session.workspace.downloads, shown.news)
        _tell_unread(session, asked)
        findings = asked.findings
        wrong = [finding for finding in findings if finding.wrong]
        if wrong:
            raise InvalidInputError(
                f"The package index contradicts the matrix in {len(wrong)} place{'s' if len(wrong) > 1 else ''}.",
                code="matrix-online",
                problems=[_problem(finding) for finding in wrong],
                hint="Correct the rows. If a row is right although its files differ, give the reason in `contradicts`. If "
                "a release does not work, mark it known-bad with a note. `envbuild matrix update` proposes new "
                "releases.",
            )
        document["online"] = [asdict(finding) for finding in findings]
        session.out(_table(findings))
    session.document(document)
    if session.verbose:
        session.out("\n".join(map(str, unused)))
    more = f"; rows that no build uses yet: {len(unused)} (-v lists them)" if unused and not session.verbose else ""
    session.out(f"{session.workspace.matrix}: no problems{more}")
    return 0


@command.command("update")
@click.option("--write", is_flag=True, help="Write the proposed rows into the matrix, instead of only showing them.")
@matrix_measure.no_measure
@_framework
@options.common
@click.pass_obj
def update(session: Session, /, *, write: bool, no_measure: bool, framework: tuple[str, ...]) -> int:
    """Propose rows for releases that the package index has and the matrix lacks, as a diff. Rows are never removed.

    The versions of CUDA, cuDNN and NCCL come from the requirements of the wheels. GPU code and glibc are measured from the
    libraries in the wheels; --write keeps these measurements. Facts that neither wheels nor index state are copied from other
    releases of the series, and the row then has the status unknown. If a part of a release is missing on the index, no row is
    proposed yet. Overlays are ignored.
    """
    from envbuild import files
    from envbuild.cli.progress_display import display
    from envbuild.index.client import Index
    from envbuild.matrix.reading.loader import load_files
    from envbuild.measure import measured_files
    from envbuild.updates import rows, wheel_needs

    facts = load_files(session.workspace.matrix)
    index, downloads = Index(), session.workspace.downloads
    with display(session) as shown, wheel_needs.opened(index, session.workspace, shown.news) as needs:
        asked = rows.ask(rows.only(facts, framework), index, downloads, shown.news, None if no_measure else needs)
        found = rows.propose(facts, rows.read_texts(session.workspace.matrix), asked, shown.news)
    _tell_unread(session, asked)
    proposal = found.proposal
    if write:
        measured_files.keep(session.workspace.measured, found.measured)
        for name in proposal.changed:
            files.write_atomic(session.workspace.root / name, proposal.after[name])
    session.document(
        {
            "schema": 1,
            "diff": proposal.diff,
            "added": [dict(zip(("framework", "version", "file"), row, strict=True)) for row in proposal.added],
            "waiting": [asdict(each) for each in found.waiting],
            "findings": [asdict(finding) for finding in asked.findings],
            "written": write and bool(proposal.changed),
        }
    )
    session.out(proposal.diff.rstrip("\n"))
    if found.waiting:
        session.err("\n".join(f"{each.framework} {each.version} waits: {each.reason}." for each in found.waiting))
    if found.left:
        session.err(f"To decide by hand:\n{_table(found.left)}")
    count = f"{len(proposal.added)} new release{'s' if len(proposal.added) != 1 else ''}"
    done = "written" if write else "proposed; to add these rows, use --write"
    session.err(f"{count} {done}" if proposal.changed else "The package index has nothing new.")
    return 0


def _unknown_recipes(session: Session, facts: Matrix) -> Iterator[Problem]:
    from envbuild import recipes
    from envbuild.matrix import consistency

    if session.workspace.recipes.is_dir():  # a matrix without recipes can be checked, too
        for framework in facts.frameworks:
            if not recipes.has(session.workspace, framework.recipe):
                yield consistency.problem(
                    framework.origin, f"recipe: there is no recipe {framework.recipe!r} in images/recipes"
                )


def _tell_unread(session: Session, asked: IndexAnswers) -> None:
    if asked.unread:
        first = next(iter(asked.unread.values()))
        session.err(f"The requirements of {len(asked.unread)} wheels were not compared; the first: {first}.")


def _problem(finding: IndexDifference) -> Problem:
    where, _, line = finding.at.rpartition(":")
    message = f"{finding.framework} {finding.version} ({finding.package}): {finding.message}"
    return Problem(where=where, line=int(line), message=message)


def _table(findings: Sequence[IndexDifference]) -> str:
    rows = [[each.kind, f"{each.framework} {each.version}", each.package, each.message, each.at] for each in findings]
    return wording.columns(rows)
