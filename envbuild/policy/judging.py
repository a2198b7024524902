"""Judges the known facts about an environment by a policy. Pure: the current date is an argument.

An unknown fact never counts as allowed: it is listed as unchecked.
"""

from __future__ import annotations

import calendar
import datetime
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from packaging.utils import canonicalize_name

from envbuild.model.vulnerabilities import Vulnerability
from envbuild.policy import licence_names
from envbuild.policy.model import (
    Allowed,
    Excused,
    Exempted,
    Facts,
    Judgement,
    NotChecked,
    PartEnd,
    Policy,
    PolicyFinding,
    Rule,
    Vulnerabilities,
)

_Found = PolicyFinding | NotChecked
_NAMED = 5  # largest number of packages that a line names


def judge(policy: Policy, facts: Facts, today: str) -> Judgement:
    """Return the judgement of an environment on the day ``today`` (an ISO date)."""
    warnings: list[str] = []
    found = list(_all(policy, facts, today, warnings))
    findings: list[PolicyFinding] = []
    excused: list[Excused] = []
    for each in found:
        if isinstance(each, PolicyFinding):
            exception = next((one for one in policy.exceptions if applies(one, each, facts.name)), None)
            if exception is None:
                findings.append(each)
            else:
                excused.append(Excused(finding=each, exception=exception))
    unchecked = (each for each in found if isinstance(each, NotChecked))
    marked = (replace(each, is_allowed=each.rule in policy.unchecked_allowed) for each in unchecked)
    return Judgement(
        name=facts.name,
        findings=tuple(findings),
        excused=tuple(excused),
        unchecked=tuple(dict.fromkeys(marked)),
        warnings=tuple(warnings),
    )


def applies(exception: Exempted, finding: PolicyFinding, environment: str) -> bool:
    """Whether an exception accepts a finding about an environment."""
    names = (finding.subject, *finding.aliases)
    return (
        exception.rule == finding.rule
        and any(fnmatchcase(name, exception.subject) for name in names)
        and names_package(exception, finding.package)
        and is_about(exception, environment)
    )


def exceptions_for(policy: Policy, rule: Rule, subject: str) -> list[Exempted]:
    """Return the exceptions from ``rule`` whose subject matches ``subject``, for any environments."""
    return [each for each in policy.exceptions if each.rule == rule and fnmatchcase(subject, each.subject)]


def names_package(exception: Exempted, package: str) -> bool:
    """Whether an exception is for this package.

    The package names in a policy are normalized. ``package`` is normalized here, because the name of a Debian package may have
    dots.
    """
    return not exception.packages or canonicalize_name(package) in exception.packages


def is_about(exception: Exempted, environment: str) -> bool:
    """Whether an exception is for the environment with this name."""
    return not exception.environments or any(fnmatchcase(environment, each) for each in exception.environments)


def unused(policy: Policy, judged: Sequence[Judgement]) -> list[PolicyFinding]:
    """Return a finding for each exception that accepts nothing. ``judged`` has the judgements of all environments.

    An exception is not reported if a fact for its rule could not be checked, because the exception may be about this fact. For
    an environment without a lock, no fact was checked.
    """
    used = {each.exception for judgement in judged for each in judgement.excused}
    found = []
    for each in policy.exceptions:
        about = [judgement for judgement in judged if is_about(each, judgement.name)]
        if each in used or any(item.rule in (each.rule, "lock") for judgement in about for item in judgement.unchecked):
            continue
        message = f"the exception for {each.subject} matches nothing: remove or correct it"
        found.append(PolicyFinding(rule="exceptions", subject=each.subject, message=message, at=f"{policy.where}:{each.line}"))
    return found


def unchecked_lines(unchecked: Sequence[NotChecked]) -> list[str]:
    """Return a line for each point that was not checked. The packages without a stated licence are summed up in one line."""
    silent = [each for each in unchecked if each.package]
    lines = [(each, each.message) for each in unchecked if len(silent) < 2 or not each.package]
    if len(silent) > 1:
        more = len(silent) - _NAMED
        names = ", ".join(each.package for each in silent[:_NAMED]) + (f" and {more} more, see --json" if more > 0 else "")
        lines.append((silent[0], f"{len(silent)} packages state no licence: {names}"))
    return [f"{each.rule}: not checked: {text}{' (the policy allows it)' if each.is_allowed else ''}" for each, text in lines]


def _all(policy: Policy, facts: Facts, today: str, warnings: list[str]) -> Iterator[_Found]:
    for text in facts.stale:
        yield PolicyFinding(rule="lock", subject=facts.name, message=text, at=policy.where)
    for text in facts.against:
        yield PolicyFinding(rule="site", subject=facts.name, message=text, at=policy.where)
    if policy.vulnerabilities is not None:
        yield from _vulnerabilities(policy, policy.vulnerabilities, facts, today, warnings)
    if policy.licences is not None:
        yield from _licences(policy, policy.licences, facts)
    if policy.bases is not None:
        yield from _base(policy, policy.bases, facts.base)
    if policy.registries is not None and facts.repository:
        yield from _repository(policy, policy.registries, facts.repository)
    yield from _evidence(policy, facts)
    if policy.end_of_life is not None:
        yield from _ends(policy, facts, today, warnings)
    if policy.sizes is not None:
        yield from _sizes(policy, facts)


def _missing(facts: Facts, rule: Rule, what: str) -> NotChecked:
    why = facts.unknown.get(rule, "nothing is known about it")
    return NotChecked(rule=rule, message=f"{what}: {why}", is_allowed=False)


def _vulnerabilities(policy: Policy, rule: Vulnerabilities, facts: Facts, today: str, warnings: list[str]) -> Iterator[_Found]:
    if facts.advisories is None:
        yield _missing(facts, "vulnerabilities", "known vulnerabilities")
        return
    for text in facts.partly_unknown:
        yield NotChecked(rule="vulnerabilities", message=text, is_allowed=False)
    for each in facts.advisories:
        yield from _advisory(policy, rule, each, today, warnings)


def _advisory(policy: Policy, rule: Vulnerabilities, found: Vulnerability, today: str, warnings: list[str]) -> Iterator[_Found]:
    """Judge one advisory. An advisory of unknown severity or date is judged only if the result does not depend on the unknown
    value."""
    said = f"{found.advisory} ({found.severity}) about {found.package} {found.version}"
    if found.severity not in rule.deadlines:
        why = "the policy has no deadline for this severity"
        if found.severity == "unknown":
            why = "its severity is not known, and the policy has no deadline for `unknown`"
        yield NotChecked(rule="vulnerabilities", message=f"{said}: {why}", is_allowed=False)
        return
    days = rule.deadlines[found.severity]
    if days is None:
        return
    finding = PolicyFinding(
        rule="vulnerabilities",
        subject=found.advisory,
        message=f"{said} must be fixed at once",
        at=f"{policy.where}:{rule.line}",
        package=found.package,
        version=found.version,
        aliases=found.aliases,
        fixed_in=found.fixed_in,
    )
    if days == 0:
        yield finding
    elif (published := _past(found.published, today)) is None:
        had = f"no date of publication before today ({found.published!r})" if found.published else "no date of publication"
        why = f"the database gives {had} for this vulnerability, so the deadline is not known"
        yield NotChecked(rule="vulnerabilities", message=f"{said}: {why}", is_allowed=False)
    else:
        until = published + datetime.timedelta(days=days)
        told = f"was published on {found.published}, and had to be fixed by {until} ({days} days)"
        if until < _date(today):
            yield replace(finding, message=f"{said} {told}")
        else:
            warnings.append(f"{said} was published on {found.published}: fix it by {until}")


def _licences(policy: Policy, rule: Allowed, facts: Facts) -> Iterator[_Found]:
    if facts.licences is None:
        yield _missing(facts, "licences", "the licences of the packages")
        return
    for each in facts.licences:
        if not each.licences:
            text = f"the licence of {each.package}: the package states none"
            yield NotChecked(rule="licences", message=text, is_allowed=False, package=each.package)
        elif why := licence_names.problem(each.licences, rule):
            at = f"{policy.where}:{rule.line}"
            text = f"{each.package}: {why}"
            yield PolicyFinding(rule="licences", subject=each.package, message=text, at=at, package=each.package)


def is_allowed_repository(rule: Allowed, repository: str) -> bool:
    """Whether the policy allows ``repository``, which has the form ``HOST/REPOSITORY``.

    In an allowed pattern, a star in the host does not match a slash. A pattern that is only a host allows all repositories of
    this host.
    """
    host, _, name = repository.partition("/")
    parts = (each.partition("/") for each in rule.allowed)
    return any(fnmatchcase(host, its_host) and (not sign or fnmatchcase(name, its)) for its_host, sign, its in parts)


def _repository(policy: Policy, rule: Allowed, repository: str) -> Iterator[PolicyFinding]:
    if not is_allowed_repository(rule, repository):
        text = f"the repository {repository} is not one of {', '.join(rule.allowed)}"
        yield PolicyFinding(rule="registries", subject=repository, message=text, at=f"{policy.where}:{rule.line}")


def _base(policy: Policy, rule: Allowed, name: str) -> Iterator[PolicyFinding]:
    denied = any(fnmatchcase(name, each) for each in rule.denied)
    if denied or (rule.allowed and not any(fnmatchcase(name, each) for each in rule.allowed)):
        why = "is denied" if denied else f"is not one of {', '.join(rule.allowed)}"
        text = f"the base image {name} {why}"
        yield PolicyFinding(rule="bases", subject=name, message=text, at=f"{policy.where}:{rule.line}")


def _evidence(policy: Policy, facts: Facts) -> Iterator[_Found]:
    for each in policy.evidence:
        same = [proof for proof in facts.proofs if proof.kind == each.kind]
        at = f"{policy.where}:{each.line}"
        if not same:
            text = f"there is no valid proof {each.kind}"
            yield PolicyFinding(rule="evidence", subject=each.kind, message=text, at=at)
        elif each.machine and not any(fnmatchcase(name, each.machine) for proof in same for name in proof.machines):
            known = sorted({name for proof in same for name in proof.machines})
            text = f"the proof {each.kind} was not made on a machine with {each.machine}"
            if not known:
                why = "no report names the machine"
                message = f"the machine of the proof {each.kind}: {why}; the policy requires {each.machine}"
                yield NotChecked(rule="evidence", message=message, is_allowed=False)
            else:
                yield PolicyFinding(rule="evidence", subject=each.kind, message=f"{text}, but on {', '.join(known)}", at=at)


def _ends(policy: Policy, facts: Facts, today: str, warnings: list[str]) -> Iterator[_Found]:
    rule = policy.end_of_life
    assert rule is not None
    for each in facts.ends:
        if not each.date and not each.ended:
            text = f"the end of life of {each.what}: the matrix does not know it"
            yield NotChecked(rule="end_of_life", message=text, is_allowed=False)
            continue
        text, left = _end(each, today)
        if left >= 0 and left <= rule.warn_days:
            warnings.append(text)
        elif left < 0 and rule.refuse:
            yield PolicyFinding(rule="end_of_life", subject=each.what, message=text, at=f"{policy.where}:{rule.line}")
        elif left < 0:
            warnings.append(text)


def _end(each: PartEnd, today: str) -> tuple[str, int]:
    """Return a sentence about the end of life of a part, and the number of days until the end of life. The number is negative
    if that day has passed."""
    if not each.date:
        return f"{each.what} has reached its end of life", -1
    left = (_date(each.date, last=True) - _date(today)).days
    if left < 0:
        return f"{each.what} reached its end of life on {each.date}", left
    return f"{each.what} reaches its end of life on {each.date}, in {left} days", left


def _sizes(policy: Policy, facts: Facts) -> Iterator[_Found]:
    rule = policy.sizes
    assert rule is not None
    most = next((size for name, size in rule.per_environment if fnmatchcase(facts.name, name)), rule.image)
    if not most:
        return
    if facts.size is None:
        yield _missing(facts, "sizes", "the size of the image")
    elif facts.size > most:
        text = f"the image has {_gb(facts.size)}, {_gb(facts.size - most)} more than the {_gb(most)} that are allowed"
        yield PolicyFinding(rule="sizes", subject=facts.name, message=text, at=f"{policy.where}:{rule.line}")


def _gb(size: int) -> str:
    return f"{size / 10**9:.2f} GB" if size >= 10**9 else f"{size / 10**6:.1f} MB"


def _past(text: str, today: str) -> datetime.date | None:
    """Return the day of an ISO date. Return None for any other text, and for a day after ``today``.

    The text comes from an advisory, so it may be wrong.
    """
    try:
        day = _date(text)
    except ValueError:
        return None
    return day if day <= _date(today) else None


def _date(text: str, *, last: bool = False) -> datetime.date:
    """The day of an ISO date. A month without a day stands for its first day; with ``last``, for its last day."""
    if len(text) > len("2018-11"):
        return datetime.date.fromisoformat(text[:10])
    year, month = map(int, text.split("-"))
    return datetime.date(year, month, calendar.monthrange(year, month)[1] if last else 1)
