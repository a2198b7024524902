"""The sentences with which a policy's findings name their remedy."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from xml.etree import ElementTree

import pytest

from envbuild.cli import check
from envbuild.errors import BuildError
from envbuild.pipeline import policy_upgrades, upgrading
from envbuild.policy.model import Judgement, NotChecked, Policy, PolicyFinding, Required


def test_a_missing_proof_is_fixed_by_a_command_and_the_sentence_has_one_verb() -> None:
    tools: Any = SimpleNamespace(cli_name=lambda name: name)
    locked: Any = SimpleNamespace(lock=SimpleNamespace(environment=SimpleNamespace(name="widget-1")))
    finding = PolicyFinding(rule="evidence", subject="linked", message="there is no valid proof linked", at="p.yaml:2")
    judged = Judgement(name="widget-1", findings=(finding,), excused=(), unchecked=(), warnings=())
    told = policy_upgrades.with_upgrades(tools, cast(Policy, None), locked, judged, today="2026-11-26")
    assert told.findings[0].upgrade == "`envbuild evidence widget-1 --prove --kinds linked`, on a suitable machine"
    assert "    fixed by `envbuild evidence widget-1 --prove --kinds linked`, on a suitable machine" in check.judgement_lines(
        told
    )


VULNERABLE = {"jinja2": ("3.0", "3.1.6"), "pillow": ("10.0", "10.3")}


def finding(rule: Any, subject: str, **more: Any) -> PolicyFinding:
    return PolicyFinding(rule=rule, subject=subject, message=f"{subject} is not allowed", at="p.yaml:2", **more)


def vulnerability(package: str, *fixed_in: str, version: str = "1.0") -> PolicyFinding:
    return finding("vulnerabilities", f"CVE-{package}", package=package, version=version, fixed_in=fixed_in)


def judged_with(*findings: PolicyFinding, policy: Policy | None = None, cuda: str | None = None) -> Judgement:
    """The judgement of an environment with two vulnerable packages. The index offers a release of each that fixes it."""
    files = {name: [SimpleNamespace(filename=f"{name}-{fixed}.tar.gz", yanked="")] for name, (_, fixed) in VULNERABLE.items()}
    tools: Any = SimpleNamespace(
        cli_name=lambda name: name, index=SimpleNamespace(project_files=lambda project: files[project])
    )
    artifacts = [SimpleNamespace(name=name, version=version) for name, (version, _) in VULNERABLE.items()]
    environment = SimpleNamespace(name="widget-1", cuda=cuda, frameworks=[])
    locked: Any = SimpleNamespace(
        lock=SimpleNamespace(
            environment=environment, prefixes=[SimpleNamespace(artifacts=artifacts, pip=SimpleNamespace(name="pip"))]
        )
    )
    judged = Judgement(name="widget-1", findings=findings, excused=(), unchecked=(), warnings=())
    return policy_upgrades.with_upgrades(tools, policy or Policy(where="p.yaml"), locked, judged, today="2026-11-26")


BOTH = (vulnerability("jinja2", "3.1.6", version="3.0"), vulnerability("pillow", "10.3", version="10.0"))


def test_one_command_fixes_all_vulnerabilities_and_the_proofs_are_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upgrading, "upgrade_environment", lambda *_, **__: None)
    upgrade = "`envbuild lock widget-1 --upgrade --package jinja2==3.1.6 --package pillow==10.3`"
    told = judged_with(*BOTH)
    assert told.upgrade == upgrade
    assert check.judgement_lines(told)[-1] == f"  for all findings together: {upgrade}"
    policy = Policy(where="p.yaml", evidence=tuple(Required(line=1, kind=kind, machine="") for kind in ("built", "smoke-cpu")))
    told = judged_with(*BOTH, policy=policy)
    assert told.upgrade == f"{upgrade}, then `envbuild evidence widget-1 --prove --kinds built,smoke-cpu`"


def test_upgrades_that_do_not_fit_together_are_no_common_upgrade(monkeypatch: pytest.MonkeyPatch) -> None:
    def upgrade(*_: Any, packages: list[str], **__: Any) -> None:
        if {"jinja2==3.1.6", "pillow==10.3"} <= set(packages):
            raise BuildError("They exclude each other.")

    monkeypatch.setattr(upgrading, "upgrade_environment", upgrade)
    told = judged_with(*BOTH)
    assert all(each.upgrade for each in told.findings) and not told.upgrade


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (vulnerability("jinja2"), "no release fixes it"),
        (vulnerability("jinja2", "99"), "fixed in 99; the package index does not have this version"),
        (
            vulnerability("glibc", "2.37"),
            "fixed in 2.37; `envbuild lock widget-1 --upgrade --base-image` pins the system packages",
        ),
        (
            vulnerability("pip", "21.1"),
            "fixed in 21.1; `envbuild lock widget-1 --relock` pins the newest pip that this Python allows",
        ),
        (finding("sizes", "widget-1"), "raise the limit of this environment in `sizes`"),
        (finding("licences", "jinja2", package="jinja2"), "leave the package out, or accept its licence"),
        (finding("evidence", "smoke-gpu"), "an image for the CPU cannot have this proof"),
    ],
)
def test_where_no_change_is_known_the_reason_is_told(found: PolicyFinding, why: str) -> None:
    told = judged_with(found)
    assert told.findings[0].upgrade == "" and why in told.findings[0].no_upgrade and not told.upgrade
    assert why in "\n".join(check.judgement_lines(told))


def test_without_a_search_nothing_is_said_about_versions() -> None:
    """`--no-upgrades` looked for no version, so it cannot say that none was found."""
    judged = Judgement(name="widget-1", findings=BOTH, excused=(), unchecked=(), warnings=())
    assert "no version was found" not in "\n".join(check.judgement_lines(judged))


def test_what_was_not_judged_yet_is_not_said_to_be_fixed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found with a real lock: the next release of its framework had another vulnerable package."""
    monkeypatch.setattr(upgrading, "upgrade_environment", lambda *_, **__: None)
    told = judged_with(finding("lock", "widget-1"), BOTH[0])
    assert told.upgrade == "`envbuild lock widget-1 --relock`, then `envbuild check widget-1`, which says what is left to fix"
    assert "fixed by" not in check.judgement_lines(told)[-1]


def unlicensed(count: int) -> Judgement:
    unchecked = [
        NotChecked(rule="licences", message=f"the licence of p{n}: the package states none", is_allowed=False, package=f"p{n}")
        for n in range(count)
    ]
    return Judgement(name="widget-1", findings=(), excused=(), unchecked=tuple(unchecked), warnings=())


def test_licences_that_were_not_checked_are_one_line() -> None:
    assert check.judgement_lines(unlicensed(155)) == [
        "widget-1: 155 not checked",
        "  licences: not checked: 155 packages state no licence: p0, p1, p2, p3, p4 and 150 more, see --json",
    ]
    assert check.judgement_lines(unlicensed(2))[1:] == ["  licences: not checked: 2 packages state no licence: p0, p1"]
    assert check.judgement_lines(unlicensed(1))[1:] == ["  licences: not checked: the licence of p0: the package states none"]


def test_a_case_without_a_measured_time_has_none_in_junit(tmp_path: Path) -> None:
    path = tmp_path / "junit.xml"
    judged = [
        unlicensed(0),
        Judgement(name="policy", findings=(finding("exceptions", "x"),), excused=(), unchecked=(), warnings=()),
    ]
    check.write_junit(judged, {"widget-1": 1.5}, path)
    first, second = ElementTree.parse(path).getroot().iter("testcase")
    assert (first.get("time"), second.get("time")) == ("1.500", None)
