"""A report of several frameworks in every format: each part is there with its own name and verdict."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest

from envbuild.pipeline import evidence
from envbuild.report import comparison, html_page, junit_xml, markdown_page, plain_text

DATA = Path(__file__).parents[1] / "data"
SCHEMA = json.loads(resources.files("envbuild.schemas").joinpath("smoke-report.json").read_text(encoding="utf-8"))


def part(name: str, own: str | None, status: str, reason: str = "") -> dict[str, Any]:
    content = None if own is None else json.loads((DATA / f"report-{own}.json").read_text(encoding="utf-8"))
    return {
        "framework": name, "version": "1.0", "prefix": f"in-{name}", "python": "3.9", "status": status, "reason": reason,
        "report": content,
    }  # fmt: skip


def whole(status: str, *parts: dict[str, Any], reason: str = "") -> dict[str, Any]:
    first = json.loads((DATA / "report-pass.json").read_text(encoding="utf-8"))
    words = {"pass": "pass", "fail": "fail", "error": "fail", "inconclusive": "inconclusive", "not-applicable": "skip"}
    checks = [
        {
            **first["checks"][0],
            "id": "PART",
            "n": None,
            "status": words[each["status"]],
            "detail": {"framework": each["framework"]},
        }
        for each in parts
    ]
    code = {"pass": 0, "inconclusive": 3}.get(status, 1)
    return {
        **first, "status": status, "exit_code": code, "reason": reason, "framework": None, "checks": checks, "runs": [],
        "training": [], "collectives": [], "data": None, "timing": {}, "notes": [], "parts": list(parts),
    }  # fmt: skip


PASSED = part("alpha", "pass", "pass")
FAILED = part("beta", "fail", "fail", "replicas differ")
LOST = part("gamma", None, "error", "it left no report")
ODD = part("delta", None, "not-applicable", "there is no test for it")
ALL = whole("error", PASSED, FAILED, LOST, ODD, reason="gamma 1.0: it left no report")


def validate(content: dict[str, Any]) -> list[Any]:
    return list(jsonschema.Draft202012Validator(SCHEMA).iter_errors(content))


def test_the_schema_knows_parts_and_no_pass_that_hides_one_that_failed() -> None:
    assert validate(ALL) == []
    assert validate(whole("pass", PASSED, ODD)) == []
    assert validate(whole("pass", PASSED, {**LOST, "status": "inconclusive"}))
    assert validate(whole("pass", ODD))
    assert validate(whole("pass", {**LOST, "status": "pass"}))
    assert validate(whole("pass"))


@pytest.mark.parametrize("form", [plain_text.table, markdown_page.markdown, html_page.html])
def test_every_form_shows_each_part_with_its_verdict(form: Any) -> None:
    text = form(ALL).replace("\\", "")
    for name, status in (("alpha", "pass"), ("beta", "fail"), ("gamma", "error"), ("delta", "not-applicable")):
        where = text.index(f"{name} 1.0 (in-{name}, Python 3.9)")
        assert status in text[max(0, where - 60) : where].lower()
    assert "it left no report" in text
    assert "there is no test for it" in text
    figure = next(
        line for line in plain_text.table(json.loads((DATA / "report-pass.json").read_text())).splitlines() if "[" in line
    )
    assert figure.split()[1] in text


def test_the_table_says_how_many_passed() -> None:
    assert "1 framework of 1 passed, each tested alone" in plain_text.table(whole("pass", PASSED, ODD))


def test_junit_has_a_suite_for_each_part() -> None:
    suites = ElementTree.fromstring(junit_xml.junit(ALL)).findall("testsuite")
    assert len(suites) == 3
    assert [suite.get("name", "").rpartition(": ")[2] for suite in suites[1:]] == [
        "alpha 1.0 (in-alpha, Python 3.9)", "beta 1.0 (in-beta, Python 3.9)",
    ]  # fmt: skip
    names = [
        (case.get("classname"), case.get("name")) for case in ElementTree.fromstring(junit_xml.junit(ALL)).iter("testcase")
    ]
    assert len(names) == len(set(names))


def test_two_reports_are_compared_framework_by_framework() -> None:
    said = comparison.compare(ALL, {**ALL, "parts": [{**PASSED, "status": "fail"}, FAILED, LOST]})
    assert "alpha 1.0 (in-alpha, Python 3.9): pass → fail" in said
    assert "delta 1.0 (in-delta, Python 3.9): not-applicable → absent" in said
    assert "beta 1.0" not in said


def test_parts_of_any_shape_break_no_form() -> None:
    for strange in (None, 7, "x", [None, 3, {"report": 5}, {"report": {"parts": [{}]}}], {"a": 1}):
        content = {**ALL, "parts": strange}
        for form in (plain_text.table, markdown_page.markdown, html_page.html, junit_xml.junit):
            assert form(content)


def test_what_only_some_parts_did_on_gpus_is_no_evidence_of_gpus() -> None:
    assert evidence.kind_of_smoke({**ALL, "mode": {"device": "cpu"}}) == "smoke-cpu"
