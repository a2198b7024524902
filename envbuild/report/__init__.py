"""A smoke report as a table, Markdown, JUnit XML, one HTML page; and two reports compared. Pure: values in, text out."""

from __future__ import annotations

from envbuild.report.comparison import compare
from envbuild.report.html_page import html
from envbuild.report.junit_xml import Case, CaseState, junit, junit_of_batch
from envbuild.report.markdown_page import markdown
from envbuild.report.regression import find_regression
from envbuild.report.text import table
from envbuild.report.view import summary, verdict_of

__all__ = [
    "Case",
    "CaseState",
    "compare",
    "find_regression",
    "html",
    "junit",
    "junit_of_batch",
    "markdown",
    "summary",
    "table",
    "verdict_of",
]
