"""The report as JUnit XML: one test case per check, and one for the verdict."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from xml.etree import ElementTree

from envbuild.report.model import Check, View
from envbuild.report.values import mapping, plural, text
from envbuild.report.view import view

# Characters that XML 1.0 does not allow, not even escaped: https://www.w3.org/TR/xml/#charsets
_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(report: Mapping[str, Any]) -> str:
    """Return a ``testsuites`` document. Checks that were skipped or are inconclusive count as skipped, never as passed.

    In an inconclusive report, even a check that passed is shown as skipped, with its result in the message. The reason: a pass
    on other hardware, such as a CPU instead of a GPU, must not turn a dashboard green.
    """
    root = ElementTree.Element("testsuites")
    root.extend(_suites(report))
    return _text(root)


CaseState = Literal["passed", "failed", "skipped", "error"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One environment of a batch. ``seconds`` is None if no time was measured; the attribute is then left out."""

    name: str
    state: CaseState
    message: str
    seconds: float | None = None


def junit_of_batch(title: str, cases: Sequence[Case], reports: Sequence[Mapping[str, Any]]) -> str:
    """Return a ``testsuites`` document: one suite with a test case for each environment, and then the suites of the smoke
    reports.

    Environments that were not started or are inconclusive count as skipped, never as passed.
    """
    root = ElementTree.Element("testsuites")
    suite = ElementTree.SubElement(root, "testsuite", name=_legal(title), tests=str(len(cases)))
    for attribute, state in (("failures", "failed"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(attribute, str(sum(case.state == state for case in cases)))
    suite.set("time", f"{sum(case.seconds or 0 for case in cases):.3f}")
    for case in cases:
        element = ElementTree.SubElement(suite, "testcase", classname=_legal(title), name=_legal(case.name))
        if case.seconds is not None:
            element.set("time", f"{case.seconds:.3f}")
        if case.state != "passed":
            kind = "failure" if case.state == "failed" else case.state
            _child(element, kind, case.message, case.message)
    for report in reports:
        root.extend(_suites(report))
    return _text(root)


def _suites(report: Mapping[str, Any]) -> list[ElementTree.Element]:
    """Return the suite of a report, and a suite for each of its parts. A part is the report about one of several frameworks."""
    seen = view(report)
    host = text(mapping(report.get("host")).get("hostname"))
    parts = [(part.view, f"{seen.name}: {part.title}") for part in seen.parts if part.view is not None]
    return [_suite(each, name, host) for each, name in [(seen, seen.name), *parts]]


def _text(root: ElementTree.Element) -> str:
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _suite(seen: View, name: str, host: str) -> ElementTree.Element:
    suite = ElementTree.Element("testsuite", name=_legal(f"envbuild smoke {name}"))
    if seen.started:
        suite.set("timestamp", _legal(seen.started.removesuffix("Z")))
    if host:
        suite.set("hostname", _legal(host))
    cases = [_verdict(seen, name), *(_case(check, seen, name) for check in seen.checks)]
    for attribute, kind in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(attribute, str(sum(case.find(kind) is not None for case in cases)))
    suite.set("tests", str(len(cases)))
    suite.set("time", f"{seen.duration_s or 0:.3f}")
    suite.extend(cases)
    return suite


def _verdict(seen: View, name: str) -> ElementTree.Element:
    case = ElementTree.Element(
        "testcase", classname=_legal(f"envbuild.{name}"), name="verdict", time=f"{seen.duration_s or 0:.3f}"
    )
    kind = {"pass": "", "fail": "failure", "error": "error", "inconclusive": "skipped"}[seen.verdict]
    if kind:
        _child(case, kind, seen.headline, "\n".join(seen.reasons))
    return case


def _case(check: Check, seen: View, suite: str) -> ElementTree.Element:
    about = f" [{plural(check.workers, 'worker')}]" if check.workers else ""
    words = (f"{check.id}{about}", check.workload, dict(check.detail).get("framework", ""))
    case = ElementTree.Element(
        "testcase", classname=_legal(f"envbuild.{suite}"), name=_legal(" ".join(filter(None, words))), time="0"
    )
    said = check.message or check.title or check.status
    measured = f"measured {check.value or 'nothing'}, limit {check.limit or 'none'}"
    body = "\n".join(filter(None, [said, measured, f"next: {check.next_step}" if check.next_step else ""]))
    if check.status in ("fail", "error"):
        _child(case, "failure" if check.status == "fail" else "error", said, body)
    elif check.status in ("skip", "inconclusive"):
        _child(case, "skipped", said, "")
    elif seen.verdict == "inconclusive":
        _child(case, "skipped", f"{check.status} in a run whose verdict is inconclusive: {said}", "")
    elif check.status in ("warn", "info"):
        ElementTree.SubElement(case, "system-out").text = _legal(f"{check.status}: {body}")
    return case


def _child(case: ElementTree.Element, kind: str, message: str, body: str) -> None:
    element = ElementTree.SubElement(case, kind, message=_legal(message))
    if kind != "skipped":
        element.set("type", kind)
    if body:
        element.text = _legal(body)


def _legal(words: str) -> str:
    return _ILLEGAL.sub("\N{REPLACEMENT CHARACTER}", words)
