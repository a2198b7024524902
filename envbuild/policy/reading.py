"""Read a ``policy.yaml`` strictly, and report all problems at once, each with its line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from envbuild import files, yaml_reader
from envbuild.errors import InvalidInputError, Problem
from envbuild.model.vulnerabilities import SEVERITIES
from envbuild.policy import model
from envbuild.policy.model import Policy
from envbuild.yaml_reader import Table

SCHEMA = 1
LARGEST = 1 << 20  # bytes; people write policies, so no policy is larger
_KINDS = ("locked", "downloaded", "rendered", "built", "verified", "linked", "smoke-cpu", "smoke-gpu")
_SIZE = re.compile(r"(\d{1,6}(?:\.\d{1,3})?) ?(MB|GB|MiB|GiB)")
_UNITS = {"MB": 10**6, "GB": 10**9, "MiB": 1 << 20, "GiB": 1 << 30}
_CONDITION = r"(>=|<=|==|!=|<|>)\d{1,4}(\.\d{1,4}){0,2}"
_CONDITIONS = re.compile(rf"\d{{1,4}}(\.\d{{1,4}}){{0,2}}|{_CONDITION}(,{_CONDITION}){{0,5}}")
_DRIVER = r"[0-9]{3,4}(\.[0-9]+){0,2}"
_SUBJECT = r"\S(.{0,198}\S)?"
_LEAST_REASON = 8  # characters, because a text such as "ok" gives no reason


def load(path: Path) -> Policy:
    """Return the policy at ``path``. Raises :class:`InvalidInputError`, which lists all problems of the policy."""
    try:
        if path.is_file() and path.stat().st_size > LARGEST:
            raise InvalidInputError(f"{path} is not a policy: it has more than {LARGEST >> 20} MiB.", code="bad-policy")
        content = files.read_bytes(path)
    except OSError as error:
        raise InvalidInputError(
            f"Cannot read the policy {path}: {error.strerror or error}.",
            code="bad-policy",
            hint="With --policy or ENVBUILD_POLICY, name a file that you are allowed to read.",
        ) from error
    return read(content, str(path))


def read(content: bytes | str, where: str) -> Policy:
    """Return the policy in the YAML text ``content``; ``where`` is the name of the file in errors.

    Raises the same errors as :func:`load`.
    """
    problems: list[Problem] = []
    table = yaml_reader.load(content, where, problems)
    found = None if table is None else _policy(table, where)
    try:
        yaml_reader.raise_for(problems, "The policy")
    except InvalidInputError as error:
        error.code = "bad-policy"
        raise
    assert found is not None
    return found


def require_current(policy: Policy, today: str) -> None:
    """Raise :class:`InvalidInputError` if an exception has expired before ``today`` (ISO)."""
    expired = [each for each in policy.exceptions if each.expires < today]
    problems = [
        Problem(
            where=policy.where,
            line=each.line,
            message=f"the exception for {each.subject} expired on {each.expires}: remove it, or let {each.owner} renew it",
        )
        for each in expired
    ]
    if problems:
        count = f"{len(problems)} exceptions that have expired; the first" if len(problems) > 1 else "an expired exception"
        raise InvalidInputError(
            f"The policy has {count}: {problems[0]}.",
            code="expired-exception",
            hint="Correct the named lines, and run the command again.",
            problems=problems,
        )


def _policy(table: Table, where: str) -> Policy:
    table.schema(SCHEMA)
    found = Policy(
        where=where,
        vulnerabilities=_vulnerabilities(table.table("vulnerabilities")),
        exceptions=_exceptions(table),
        licences=_allowed(table.table("licences"), denied=True),
        bases=_allowed(table.table("bases"), denied=True),
        registries=_allowed(table.table("registries")),
        signers=_signers(table),
        evidence=_evidence(table.table("evidence")),
        end_of_life=_end_of_life(table.table("end_of_life")),
        sizes=_sizes(table.table("sizes")),
        site=tuple(_site_rule(each, where) for each in table.tables("site")),
        unchecked_allowed=_rules(table, "unchecked_allowed"),
    )
    table.finish()
    limits = [each for each in found.site if each.driver]
    if len(limits) > 1:
        table.problem("only one rule can name the newest driver of the site", "site")
    return found


def _rules(table: Table, key: str) -> tuple[Any, ...]:
    found = table.texts(key)
    for each in found:
        if each not in model.RULES:
            table.problem(f"{each!r} is not one of {', '.join(model.RULES)}", key)
    return found


def _vulnerabilities(table: Table | None) -> model.Vulnerabilities | None:
    if table is None:
        return None
    deadlines: dict[str, int | None] = {}
    inner = table.table("deadlines", required=True)
    for severity in SEVERITIES if inner is not None else ():
        if inner is not None and severity in inner:
            deadlines[severity] = _days(inner, severity)
    if inner is not None:
        inner.allow(*SEVERITIES)
        inner.finish()
        if not deadlines:
            inner.problem(f"at least one of {', '.join(SEVERITIES)} is needed")
    valid = table.integer("answers_valid_days", 7, least=0, most=366)
    table.finish()
    return model.Vulnerabilities(line=table.line, deadlines=deadlines, answers_valid_days=valid)


def _days(table: Table, key: str) -> int | None:
    if table.is_text(key) and table.value_of(key) == "never":
        table.allow(key)
        return None
    return table.integer(key, most=36500)


def _exceptions(table: Table) -> tuple[model.Exempted, ...]:
    found = tuple(_exception(each) for each in table.tables("exceptions"))
    seen: dict[tuple[object, ...], int] = {}
    for each in found:
        key = (each.rule, each.subject, each.packages, each.environments)
        if key in seen:
            table.problem(f"the exception on line {each.line} repeats the one on line {seen[key]}", "exceptions")
        seen.setdefault(key, each.line)
    return found


def _exception(table: Table) -> model.Exempted:
    rule = table.choice("rule", model.RULES, "vulnerabilities")
    if rule == "site":
        table.problem("a site rule has no exceptions, because no command makes such an image: narrow the site rule", "rule")
    status = table.text("status", "affected", choices=model.STATUSES)
    justification = table.text("justification", "", choices=model.JUSTIFICATIONS)
    if status == "not_affected" and not justification:
        table.problem("the status not_affected needs a justification", "status")
    if status != "not_affected" and justification:
        table.problem("a justification can only be given with the status not_affected", "justification")
    packages = tuple(str(canonicalize_name(each)) for each in table.texts("packages"))
    if packages and rule not in ("vulnerabilities", "licences"):
        table.problem(f"exceptions from the rule {rule} cannot name packages", "packages")
    found = model.Exempted(
        line=table.line,
        rule=rule,
        subject=table.text("subject", pattern=_SUBJECT),
        packages=packages,
        environments=table.texts("environments", required="environments" in table),
        status=status,
        justification=justification,
        reason=_reason(table),
        owner=table.text("owner", pattern=_SUBJECT),
        expires=_day(table, "expires"),
    )
    table.finish()
    return found


def _reason(table: Table) -> str:
    found = table.text("reason", pattern=r"(?s)\S.*")
    if found and len(found.strip()) < _LEAST_REASON:
        table.problem(f"{found!r} is too short for a reason", "reason")
    return " ".join(found.split())


def _day(table: Table, key: str) -> str:
    found = table.date(key)
    if found and len(found) < len("2027-03-01"):
        table.problem(f"{found!r} is not a full date: write it as 2027-03-01", key)
    return found


def _allowed(table: Table | None, *, denied: bool = False) -> model.Allowed | None:
    if table is None:
        return None
    no = table.texts("denied") if denied else ()
    yes = table.texts("allowed", required=not no)
    table.finish()
    return model.Allowed(line=table.line, allowed=yes, denied=no)


def _signers(table: Table) -> tuple[model.Signer, ...]:
    found: list[model.Signer] = []
    for each in table.tables("signers"):
        key = each.text("key", pattern=_SUBJECT)
        if key in [other.key for other in found]:
            each.problem(f"{key} is listed twice", "key")
        owner = each.text("owner", "", pattern=_SUBJECT)
        found.append(model.Signer(line=each.line, key=key, expires=_day(each, "expires"), owner=owner))
        each.finish()
    if "signers" in table and not found:
        table.problem("the list is empty; it needs at least one entry", "signers")
    return tuple(found)


def _evidence(table: Table | None) -> tuple[model.Required, ...]:
    if table is None:
        return ()
    found = []
    for each in table.tables("required", required=True):
        kind = each.text("kind", choices=_KINDS)
        machine = each.text("machine", "")
        if machine and not kind.startswith("smoke"):
            each.problem("only a proof of a smoke test can name a machine", "machine")
        found.append(model.Required(line=each.line, kind=kind, machine=machine))
        each.finish()
    table.finish()
    return tuple(found)


def _end_of_life(table: Table | None) -> model.EndOfLife | None:
    if table is None:
        return None
    found = model.EndOfLife(line=table.line, refuse=table.boolean("refuse"), warn_days=table.integer("warn_days", 0, most=3660))
    table.finish()
    return found


def _sizes(table: Table | None) -> model.Sizes | None:
    if table is None:
        return None
    per = table.text_map("environments")
    found = model.Sizes(
        line=table.line,
        image=_bytes(table, "image", table.text("image", "")),
        per_environment=tuple((name, _bytes(table, "environments", text)) for name, text in per.items()),
    )
    if not found.image and not per:
        table.problem("give the largest size of an image, such as image: 8GB")
    table.finish()
    return found


def _bytes(table: Table, key: str, text: str) -> int:
    if not text:
        return 0
    found = _SIZE.fullmatch(text)
    if found is None or not float(found[1]):
        table.problem(f"{text!r} is not a size such as 8GB or 750MiB", key)
        return 0
    return int(float(found[1]) * _UNITS[found[2]])


def _site_rule(table: Table, where: str) -> model.SiteRule:
    found = model.SiteRule(
        at=f"{where}:{table.line}",
        systems=table.texts("systems"),
        pythons=_conditions(table, "pythons"),
        cuda=_conditions(table, "cuda"),
        frameworks=_frameworks(table, table.texts("frameworks")),
        driver=table.text("driver", "", pattern=_DRIVER),
        reason=_reason(table),
    )
    if not (found.systems or found.pythons or found.cuda or found.frameworks or found.driver):
        table.problem("a site rule names systems, pythons, cuda, frameworks or a driver")
    table.finish()
    return found


def _conditions(table: Table, key: str) -> tuple[str, ...]:
    """Read versions (``3.7``) or conditions (``<3.8``) as version specifiers."""
    found = []
    for text in table.texts(key):
        if _CONDITIONS.fullmatch(text):
            found.append(text if text[0] in "<>=!" else f"=={text}")
        else:
            table.problem(f"{text!r} is neither a version nor a condition such as <3.8", key)
    return tuple(found)


def _frameworks(table: Table, texts: Sequence[str]) -> tuple[tuple[str, str], ...]:
    found = []
    for text in texts:
        name, condition = re.fullmatch(r"([A-Za-z0-9_-]*)(.*)", text, re.DOTALL).groups()  # type: ignore[union-attr]
        try:
            SpecifierSet(condition)
            found.append((name.lower(), condition))
        except InvalidSpecifier:
            table.problem(f"{text!r} is not a framework with a condition, such as NAME<2", "frameworks")
            continue
        if not name:
            table.problem(f"{text!r} names no framework", "frameworks")
    return tuple(found)
