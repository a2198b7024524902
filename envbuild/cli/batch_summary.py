"""The summary of a run for several environments: the table, the JSON document, the JUnit file and the exit code."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envbuild import errors
from envbuild.cli import wording
from envbuild.cli.session import Session, describe

if TYPE_CHECKING:
    from envbuild.pipeline.batch import Outcome, State
    from envbuild.pipeline.disk_need import DiskNeed
    from envbuild.report.junit_xml import CaseState

# The state of an environment → the result of its JUnit test case. An environment that was not tried never counts as passed.
_CASES: dict[State, CaseState] = {
    "done": "passed",
    "kept": "passed",
    "inconclusive": "skipped",
    "failed": "failed",
    "interrupted": "error",
    "not started": "skipped",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Conclusion:
    """The result of a final step for all environments together, such as a release. The result is output or an ``error``.

    ``document`` is added to the JSON document of the batch. ``lines`` are printed as text.
    """

    document: Mapping[str, Any] = field(default_factory=dict)
    lines: Sequence[str] = ()
    error: errors.EnvbuildError | None = None


@dataclass(kw_only=True, slots=True)
class Summary:
    """The content of the summary. ``revision`` is the git revision of ``--changed-since``; empty without this option.

    ``is_dry_run`` is true if the verb only said what it would do: then no environment is "done".
    """

    verb: str
    outcomes: list[Outcome] = field(default_factory=list)
    disk: DiskNeed | None = None
    seconds: float = 0.0
    revision: str = ""
    conclusion: Conclusion | None = None
    is_dry_run: bool = False


def state_word(state: State, *, is_dry_run: bool) -> str:
    """Return the word for the result of an environment. In a dry run, no environment is done, but planned."""
    return "planned" if is_dry_run and state == "done" else state


def tell(session: Session, told: Summary, junit: Path | None) -> int:
    """Print the summary, write the JUnit file if ``junit`` names one, and return the worst exit code."""
    from envbuild.pipeline import batch

    code = batch.worst(outcome.exit_code for outcome in told.outcomes)
    together = told.conclusion or Conclusion()
    if together.error is not None:
        code = batch.worst((code, together.error.exit_code))
    if junit is not None:
        try:
            _write_junit(told, junit)
        except errors.EnvbuildError as trouble:  # print the summary nevertheless, because the run may have taken hours
            session.failure(describe(trouble, session.options))
            code = batch.worst((code, trouble.exit_code))
    session.document(_document(told, code))
    if not told.outcomes:
        session.out(
            f"No environment changed since {told.revision}." if told.revision else "There is no environment to work on."
        )
        return code
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    session.out(table(told.outcomes, width, is_dry_run=told.is_dry_run))
    counts = Counter(outcome.state for outcome in told.outcomes)
    words = (f"{count} {state_word(state, is_dry_run=told.is_dry_run)}" for state, count in counts.items())
    verb = f"{told.verb} --dry-run" if told.is_dry_run else told.verb
    session.out(f"\n{verb}: {', '.join(words)}, in {wording.seconds(told.seconds)}")
    for line in together.lines:
        session.out(line)
    if together.error is not None:
        session.failure(describe(together.error, session.options))
    if code == errors.InterruptedByUserError.exit_code:
        error = errors.InterruptedByUserError(
            "Stopped on request.",
            hint="Run the same command again: it continues with the environments that are not finished.",
        )
        session.failure(describe(error, session.options))
    elif counts.keys() & {"failed", "not started"}:
        session.err(
            "Run the same command again to continue. With a single NAME, it shows the complete output for that environment."
        )
    return code


def table(outcomes: Sequence[Outcome], width: int | None, *, is_dry_run: bool = False) -> str:
    """Return a line for each environment.

    If lines are too long for a terminal of ``width`` columns, the causes of failures get lines of their own.
    """
    rows = [["ENVIRONMENT", "RESULT", "TIME", ""], *(_row(outcome, is_dry_run=is_dry_run) for outcome in outcomes)]
    text = wording.columns(rows)
    if width is None or max(map(len, text.splitlines())) <= width:
        return text
    heads = wording.columns([row[:-1] for row in rows]).splitlines()
    lines = []
    for head, row in zip(heads, rows, strict=True):
        lines += [head, *textwrap.wrap(row[-1], width, initial_indent="  ", subsequent_indent="  ")]
    return "\n".join(lines)


def _row(outcome: Outcome, *, is_dry_run: bool) -> list[str]:
    seconds = "" if outcome.state == "not started" else wording.seconds(outcome.seconds)
    result = f"failed ({outcome.exit_code})" if outcome.state == "failed" else state_word(outcome.state, is_dry_run=is_dry_run)
    return [outcome.job.name, result, seconds, outcome.why.replace("\n", " ")]


def _document(told: Summary, code: int) -> dict[str, Any]:
    """Return the JSON document that ``schemas/batch.json`` describes."""
    document: dict[str, Any] = {"schema": 1, "verb": told.verb, "exit_code": code, "seconds": round(told.seconds, 3)}
    if told.disk is not None:
        document["disk"] = told.disk.to_json()
    document["environments"] = [_entry(outcome) for outcome in told.outcomes]
    if told.conclusion is not None:
        document |= told.conclusion.document
        if told.conclusion.error is not None:
            document["error"] = told.conclusion.error.to_json()
    return document


def _entry(outcome: Outcome) -> dict[str, Any]:
    results = ("image", "size", "tags", "lock", "status", "stages", "reports", "published", "reference", "digest")
    return {
        "name": outcome.job.name,
        "request": outcome.job.request,
        **({"also": list(outcome.job.also)} if outcome.job.also else {}),
        "state": outcome.state,
        "exit_code": outcome.exit_code,
        "seconds": round(outcome.seconds, 3),
        **{part: outcome.document[part] for part in (*results, "would", "error") if part in outcome.document},
    }


def _write_junit(told: Summary, path: Path) -> None:
    from envbuild import files
    from envbuild.report import junit_xml

    cases = [
        junit_xml.Case(
            name=outcome.job.name,
            state=_CASES[outcome.state],
            message=outcome.why or outcome.state,
            seconds=outcome.seconds,
        )
        for outcome in told.outcomes
    ]
    if told.conclusion is not None and told.conclusion.error is not None:  # passed environments must not hide this error
        cases.append(junit_xml.Case(name="release", state="failed", message=told.conclusion.error.message))
    reports = [found for each in told.outcomes if "status" in (found := _report(each))]
    files.write_atomic(path, junit_xml.junit_of_batch(f"envbuild {told.verb}", cases, reports))


def _report(outcome: Outcome) -> Mapping[str, Any]:
    """Return the smoke report of an environment, from its document or from the file that the document names."""
    from envbuild.pipeline import image_checks

    document = outcome.document
    if "report" in document or "json" not in document.get("reports", {}):
        return document.get("report") or {}
    return image_checks.read_report(Path(document["reports"]["json"]))
