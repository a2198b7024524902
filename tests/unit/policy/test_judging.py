"""What a policy finds in facts. What is not known is never clean."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from envbuild.model.vulnerabilities import Vulnerability
from envbuild.policy import judging, reading
from envbuild.policy.model import Facts, Judgement, Licensed, PartEnd, PolicyProof

TODAY = "2026-11-23"
FACTS = Facts(name="widget-1", base="debian:12")
DEADLINES = "vulnerabilities: {deadlines: {critical: 0, high: 30, low: never}}\n"


def judge(policy: str, **facts: Any) -> Judgement:
    return judging.judge(reading.read(f"schema: 1\n{policy}", "policy.yaml"), replace(FACTS, **facts), TODAY)


def advisory(severity: str, published: str = "", name: str = "CVE-1") -> Vulnerability:
    return Vulnerability(
        package="pillow",
        version="9.0",
        advisory=name,
        aliases=("GHSA-1",),
        fixed_in=("9.1",),
        summary="",
        severity=severity,
        published=published,
    )


@pytest.mark.parametrize(
    ("severity", "published", "outcome"),
    [
        ("high", "2026-10-23", "found"),  # its deadline was yesterday
        ("high", "2026-10-24", "warned"),  # its deadline is today
        ("high", "", "unchecked"),
        ("critical", "", "found"),  # at once, whenever it was published
        ("critical", TODAY, "found"),
        ("low", "2000-01-01", "fine"),
        ("low", "", "fine"),
        ("high", "2026-11-24", "unchecked"),  # after today
        ("high", "9999-12-31", "unchecked"),
        ("high", "soon", "unchecked"),
        ("medium", "2000-01-01", "unchecked"),  # no deadline is given for it
        ("unknown", "2000-01-01", "unchecked"),
    ],
)
def test_deadlines(severity: str, published: str, outcome: str) -> None:
    judged = judge(DEADLINES, advisories=(advisory(severity, published),))
    found = "found" if judged.findings else "unchecked" if judged.unchecked else "warned" if judged.warnings else "fine"
    assert found == outcome
    assert judged.is_clean == (outcome in ("warned", "fine"))


def test_without_an_audit_or_with_a_partial_one_nothing_is_clean() -> None:
    judged = judge(DEADLINES, unknown={"vulnerabilities": "nobody answered"})
    assert not judged.is_clean and "nobody answered" in judged.unchecked[0].message
    assert not judge(DEADLINES, advisories=(), partly_unknown=("the packages of debian12",)).is_clean
    assert judge(DEADLINES, advisories=()).is_clean
    allowed = judge(f"{DEADLINES}unchecked_allowed: [vulnerabilities]\n")
    assert allowed.is_clean and allowed.unchecked[0].is_allowed


EXCEPTION = "exceptions:\n  - {{subject: {0}, reason: because of that, owner: me, expires: 2027-01-01{1}}}\n"


@pytest.mark.parametrize(
    ("subject", "more", "is_accepted"),
    [
        ("CVE-1", "", True),
        ("GHSA-1", "", True),
        ('"CVE-*"', "", True),
        ("CVE-2", "", False),
        ("CVE-1", ", packages: [Pillow]", True),
        ("CVE-1", ", packages: [numpy]", False),
        ("CVE-1", ', environments: ["widget-*"]', True),
        ("CVE-1", ', environments: ["gadget-*"]', False),
        ("CVE-1", ", rule: licences", False),
    ],
)
def test_exceptions(subject: str, more: str, is_accepted: bool) -> None:
    judged = judge(DEADLINES + EXCEPTION.format(subject, more), advisories=(advisory("critical"),))
    assert bool(judged.excused) == is_accepted == judged.is_clean


def test_exceptions_name_packages_in_any_spelling() -> None:
    """Debian's packages have dots; the names in a policy are normalized as those of Python packages."""
    found = replace(advisory("critical"), package="python3.11", ecosystem="Debian:12")
    excepted = EXCEPTION.format("CVE-1", ", packages: [python3.11]")
    assert judge(DEADLINES + excepted, advisories=(found,)).is_clean
    assert not judge(DEADLINES + excepted, advisories=(replace(found, package="python3.12"),)).is_clean
    licence = 'licences: {allowed: ["MIT"]}\n' + EXCEPTION.format("PyYAML", ", rule: licences, packages: [PyYAML]")
    assert judge(licence, licences=(Licensed("PyYAML", ("BSD",)),)).is_clean


def test_an_exception_that_matches_nothing_is_a_finding_with_its_line() -> None:
    policy = reading.read(f"schema: 1\n{DEADLINES}{EXCEPTION.format('CVE-2', '')}", "policy.yaml")
    judged = judging.judge(policy, replace(FACTS, advisories=(advisory("critical"),)), TODAY)
    (unused,) = judging.unused(policy, [judged])
    assert unused.at == "policy.yaml:4" and "CVE-2 matches nothing" in unused.message
    unknown = judging.judge(policy, FACTS, TODAY)
    assert judging.unused(policy, [unknown]) == []  # nobody knows: it may be about what was not checked


def test_licences() -> None:
    policy = 'licences: {allowed: ["MIT*", "BSD*"], denied: ["*AGPL*"]}\n'
    good, bad = Licensed("a", ("MIT License",)), Licensed("b", ("AGPL-3.0",))
    judged = judge(policy, licences=(good, bad, Licensed("c", ())))
    assert [each.subject for each in judged.findings] == ["b"]
    assert "the package states none" in judged.unchecked[0].message
    assert not judge(policy, unknown={"licences": "no image"}).is_clean


def test_bases_and_registries() -> None:
    policy = 'bases: {allowed: ["debian:*"], denied: ["debian:10"]}\nregistries: {allowed: ["host/team/*"]}\n'
    assert judge(policy).is_clean
    assert [each.rule for each in judge(policy, base="debian:10").findings] == ["bases"]
    assert [each.rule for each in judge(policy, base="ubuntu:24.04").findings] == ["bases"]
    assert [each.rule for each in judge(policy, repository="other/team/a").findings] == ["registries"]
    assert judge(policy, repository="host/team/a").is_clean


@pytest.mark.parametrize(
    ("allowed", "repository", "is_allowed"),
    [
        ("*.example.org/team/*", "r.example.org/team/a/b", True),
        ("*.example.org/team/*", "evil.net/r.example.org/team/a", False),  # the star does not match the slash after the host
        ("*.example.org", "r.example.org/any/thing", True),
        ("*.example.org", "evil.net/r.example.org", False),
        ("127.0.0.1:*/lab/*", "127.0.0.1:5000/lab/dl", True),
        ("*", "h.example/a", True),
    ],
)
def test_a_star_for_the_host_does_not_match_a_path(allowed: str, repository: str, is_allowed: bool) -> None:
    assert judge(f'registries: {{allowed: ["{allowed}"]}}\n', repository=repository).is_clean == is_allowed


def test_evidence_and_its_machine() -> None:
    policy = 'evidence: {required: [{kind: verified}, {kind: smoke-gpu, machine: "*A100*"}]}\n'
    verified = PolicyProof("verified", ())
    assert [each.subject for each in judge(policy, proofs=(verified,)).findings] == ["smoke-gpu"]
    assert judge(policy, proofs=(verified, PolicyProof("smoke-gpu", ("NVIDIA A100-SXM4",)))).is_clean
    other = judge(policy, proofs=(verified, PolicyProof("smoke-gpu", ("Tesla T4",))))
    assert "but on Tesla T4" in other.findings[0].message
    untold = judge(policy, proofs=(verified, PolicyProof("smoke-gpu", ())))
    assert not untold.findings and not untold.is_clean


@pytest.mark.parametrize(
    ("end", "outcome"),
    [
        (PartEnd("Python 3.8", "2026-11-22"), "found"),
        (PartEnd("Python 3.8", TODAY), "warned"),
        (PartEnd("Python 3.8", "2026-11"), "warned"),  # until the last day of the month
        (PartEnd("Python 3.8", "2026-12-03"), "warned"),
        (PartEnd("Python 3.8", "2026-12-04"), "fine"),
        (PartEnd("Python 3.8", ""), "unchecked"),
        (PartEnd("widget 1", "", ended=True), "found"),
    ],
)
def test_ends_of_life(end: PartEnd, outcome: str) -> None:
    judged = judge("end_of_life: {refuse: true, warn_days: 10}\n", ends=(end,))
    found = "found" if judged.findings else "unchecked" if judged.unchecked else "warned" if judged.warnings else "fine"
    assert found == outcome
    assert judge("end_of_life: {warn_days: 10}\n", ends=(end,)).findings == ()


def test_sizes() -> None:
    policy = 'sizes: {image: 1GB, environments: {"widget-*": 2GB}}\n'
    assert judge(policy, size=2 * 10**9).is_clean
    assert "0.5 MB more" in judge(policy, size=2 * 10**9 + 500_000).findings[0].message.replace("500.0 KB", "0.5 MB")
    assert not judge(policy).is_clean
    assert judge('sizes: {environments: {"gadget-*": 2GB}}\n').is_clean


def test_a_stale_lock_and_a_site_rule_are_findings() -> None:
    judged = judge("", stale=("it is stale",), against=("system debian12: excluded",))
    assert [each.rule for each in judged.findings] == ["lock", "site"]
