"""``envbuild check NAME…``: judge committed environments by the site's policy."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from envbuild.cli import audit, options
from envbuild.cli.progress_display import display
from envbuild.cli.session import Session
from envbuild.errors import InvalidInputError, PolicyError
from envbuild.model.progress import counted

if TYPE_CHECKING:
    from envbuild.policy.model import Judgement, Policy


@click.command("check")
@options.naming("names", several=True, required=False, metavar="NAME…")
@click.option("--all", "every", is_flag=True, help="Every environment that has a folder in images/environments/.")
@click.option(
    "--match", "pattern", default="", metavar="GLOB", help="Every environment whose canonical name matches the pattern."
)
@click.option(
    "--database",
    "databases",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="PATH",
    help=(
        "A local OSV database, as for `envbuild audit`. The severity and the date of a vulnerability are read "
        "from it too. May be repeated."
    ),
)
@audit.service
@click.option(
    "--audit",
    "answers",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help=(
        "Read the vulnerabilities from this file, and ask no service. The file is a stored answer of "
        "`envbuild audit --json`, or a folder with such answers as NAME.json."
    ),
)
@click.option("--stored", is_flag=True, help="Ask no service about vulnerabilities. Use the answers that earlier runs stored.")
@click.option("--no-upgrades", is_flag=True, help="Do not look for the smallest change that fixes the violations.")
@click.option(
    "--junit", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write the results as JUnit XML."
)
@options.constraints
@options.common
@click.pass_obj
def command(
    session: Session,
    /,
    names: tuple[str, ...],
    *,
    every: bool,
    pattern: str,
    databases: tuple[Path, ...],
    service: str,
    answers: Path | None,
    stored: bool,
    no_upgrades: bool,
    junit: Path | None,
    **constraints: str | None,
) -> int:
    """Check each NAME against the policy, and show for each violation what fixes it. If there is a violation, the exit code
    is 12.

    --policy or the variable ENVBUILD_POLICY names the policy file. Proofs, size and licences are those of the last image that
    was built on this machine from the lock. Rules that could not be checked are listed. The exit code is then 12 too, unless
    `unchecked_allowed` in the policy names these rules. An environment without a lock is not checked, and the exit code is 12.
    A damaged lock is a finding, the other environments are checked, and the exit code is 5.
    """
    from envbuild.pipeline import batch_selection, committed, policy_checks, policy_facts

    with display(session) as shown:
        tools = session.tools(on_progress=shown.news)
        policy = policy_checks.require_policy(tools)
        selection = batch_selection.Selection(texts=names, every=every, pattern=pattern)
        jobs = batch_selection.select(tools, selection, options.chosen(constraints), policy_checks.name_to_check)
        asked = policy_facts.Questions(databases=databases, service=service, answers=answers, stored_only=stored)
        judged, seconds = [], dict[str, float]()
        for number, job in enumerate(jobs, 1):
            tools.say("check", f"{job.name} ({number} of {len(jobs)})")
            began = time.monotonic()
            judged.append(policy_checks.check(tools, policy, job.name, asked, upgrades=not no_upgrades))
            seconds[judged[-1].name] = time.monotonic() - began
    judged = policy_checks.with_unused(policy, judged, committed.names(tools))
    if junit is not None:
        write_junit(judged, seconds, junit)
    return _tell(session, policy, judged)


def _tell(session: Session, policy: Policy, judged: list[Judgement]) -> int:
    from envbuild import codec

    clean = all(each.is_clean for each in judged)
    environments = [{**codec.encode(each), "clean": each.is_clean} for each in judged]
    session.document({"schema": 1, "policy": policy.where, "clean": clean, "environments": environments})
    for each in judged:
        session.out("\n".join(judgement_lines(each)))
    if not clean:
        session.err(_conclusion(policy, judged))
    damaged = any(each.findings and not each.is_checked for each in judged)
    return 0 if clean else InvalidInputError.exit_code if damaged else PolicyError.exit_code


def _conclusion(policy: Policy, judged: list[Judgement]) -> str:
    """Return the sentence about all environments, which never counts an unchecked one as good."""
    damaged = sum(bool(each.findings) and not each.is_checked for each in judged)
    bad = sum(bool(each.findings) for each in judged) - damaged
    unlocked = sum(not each.is_checked for each in judged) - damaged
    partly = sum(not each.is_clean and not each.findings for each in judged) - unlocked
    counts = (
        (damaged, "with a damaged lock"),
        (bad, "not meeting the policy"),
        (unlocked, "not checked"),
        (partly, "not completely checked"),
    )
    told = ", ".join(f"{count} {words}" for count, words in counts if count)
    return f"{told}, of {counted(len(judged), 'environment')} (policy {policy.where})."


def judgement_lines(judged: Judgement) -> list[str]:
    """Return the verdict about an environment, and a line for each finding, exception and warning."""
    from envbuild.policy import judging

    lines = [f"{judged.name}: {_verdict(judged)}"]
    for finding in judged.findings:
        lines.append(f"  {finding.rule}: {finding.message} [{finding.at}]")
        lines += [f"    fixed by {finding.upgrade}"] if finding.upgrade else []
        lines += [f"    {finding.no_upgrade}"] if finding.no_upgrade else []
    if len(judged.findings) > 1 and judged.upgrade:
        lines.append(f"  for all findings together: {judged.upgrade}")
    lines += [f"  {text}" for text in judging.unchecked_lines(judged.unchecked)]
    for excused in judged.excused:
        one = excused.exception
        lines.append(f"  accepted until {one.expires} by {one.owner}: {excused.finding.message} ({one.reason})")
    return [*lines, *(f"  warning: {text}" for text in judged.warnings)]


def _verdict(judged: Judgement) -> str:
    count = len(judged.findings)
    parts = [counted(count, "finding")] if count else []
    if not judged.is_checked:
        return "not checked, because its lock is damaged" if judged.findings else "not checked"
    left = sum(not each.is_allowed for each in judged.unchecked)
    parts += [f"{left} not checked"] if left else []
    return ", ".join(parts) or "meets the policy"


def write_junit(judged: list[Judgement], seconds: Mapping[str, float], path: Path) -> None:
    """Write a JUnit file with one test case for each environment. ``seconds`` has the duration of each check.

    If some rule of the policy could not be checked for an environment, its test case is an error and not passed.
    """
    from envbuild import files
    from envbuild.report import junit_xml

    def case(each: Judgement) -> Any:
        state: junit_xml.CaseState = "passed" if each.is_clean else "failed" if each.findings else "error"
        text = "\n".join(judgement_lines(each))
        return junit_xml.Case(name=each.name, state=state, message=text, seconds=seconds.get(each.name))

    files.write_atomic(path, junit_xml.junit_of_batch("envbuild check", [case(each) for each in judged], []))
