"""The report as Markdown, for merge requests and job summaries."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from envbuild.report import exchange
from envbuild.report.model import Check, View
from envbuild.report.plain_text import cells, footnote, headings, labels
from envbuild.report.values import duration
from envbuild.report.view import sentence, view

_MARKS = {"pass": "✅", "fail": "❌", "error": "❌", "inconclusive": "⚠️", "warn": "⚠️", "skip": "⏭️", "info": "•"}
_MARKS["not-applicable"] = _MARKS["skip"]


def markdown(report: Mapping[str, Any]) -> str:
    """Return one page with the verdict, the figures, the checks with their next steps, and the facts. Text of the report cannot
    become markup."""
    seen = view(report)
    parts = [f"# {_MARKS[seen.verdict]} {seen.verdict}: {_safe(seen.name)}", _safe(sentence(seen)), *_notes(seen)]
    parts += _body(seen, "##")
    for part in seen.parts:
        parts.append(f"## {_MARKS[part.status]} {part.status}: {_safe(part.title)}")
        if part.view is None:
            parts.append(_safe(part.reason))
        else:
            parts += [_safe(part.reason or sentence(part.view)), *_notes(part.view), *_body(part.view, "###")]
    if seen.duration_s is not None or seen.started:
        parts.append(f"{_safe(seen.started)} · took {duration(seen.duration_s)}")
    return "\n\n".join(filter(None, parts)) + "\n"


def _body(seen: View, level: str) -> list[str]:
    """Return the figures, checks and facts. All have headings of the same level."""
    parts: list[str] = []
    for group in seen.groups:
        parts += [f"{level} {_safe(group.title)}", _grid(headings(group), cells(group)), _safe(footnote(group))]
    if seen.schemes:
        parts += [f"{level} Other exchanges", _grid(exchange.SCHEME_HEADINGS, exchange.scheme_cells(seen.schemes))]
    rows = [_check(check) for check in seen.checks]
    parts += [f"{level} Checks", _grid(("", "check", "workers", "measured", "limit", "message"), rows)]
    for title, facts in seen.facts:
        parts += [f"<details><summary>{_safe(title)}</summary>", _grid(("", ""), facts), "</details>"]
    return parts


def _notes(seen: View) -> list[str]:
    return [f"> {_safe(line)}" for line in labels(seen)]


def _check(check: Check) -> tuple[str, ...]:
    message = f"{check.message} Next: {check.next_step}" if check.next_step else check.message
    return (
        f"{_MARKS[check.status]} {check.status}",
        " ".join(filter(None, (check.id, check.workload))),
        str(check.workers or ""),
        check.value,
        check.limit,
        message or check.title,
    )


def _grid(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return "none"
    lines = [titles, ["---"] * len(titles), *([_safe(cell) for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _safe(words: str) -> str:
    """Return ``words`` as one line, escaped so that nothing in it is Markdown or HTML."""
    joined = " ".join(words.split())
    escaped = joined.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_{}\[\]|#~])", r"\\\1", escaped)
