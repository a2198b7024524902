"""Formats the report for a terminal as plain text. The command line adds the colours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from envbuild.report import exchange
from envbuild.report.model import Check, Group, PartReport, View
from envbuild.report.values import duration, percent, plural, short
from envbuild.report.view import sentence, speedup, view

_HEADINGS = ("workers", "images/s", "speedup", "efficiency", "accuracy", "verdict")
_SOLO = "1 worker in the same rounds"
_PLAIN = "plain script"


def table(report: Mapping[str, Any], paths: Sequence[object] = ()) -> str:
    """Return the outcome: the verdict, one row for each number of workers, what went wrong and what to do, and then
    ``paths``."""
    seen = view(report)
    took = f"  ({duration(seen.duration_s)})" if seen.duration_s is not None else ""
    lines = [f"{seen.verdict.upper()}  {seen.name}{took}", *_second_line(seen), *labels(seen), ""]
    lines += [line for part in seen.parts for line in _part_lines(part)] or _body(seen)
    lines += _paths(paths)
    return "\n".join(lines).rstrip() + "\n"


def _body(seen: View) -> list[str]:
    """The figures, then the findings and notes."""
    lines: list[str] = []
    for group in seen.groups:
        lines += [group.title, *_aligned([headings(group), *cells(group)]), *_indented(footnote(group)), ""]
    if seen.schemes:
        lines += ["other exchanges", *_aligned([exchange.SCHEME_HEADINGS, *exchange.scheme_cells(seen.schemes)]), ""]
    return lines + _trouble_lines(seen)


def _part_lines(part: PartReport) -> list[str]:
    """Return the lines for one of several frameworks: its verdict, and below the verdict the text of its own report."""
    seen = part.view
    if seen is None:
        return [f"{part.status.upper()}  {part.title}: {part.reason or 'no report'}", ""]
    took = f"  ({duration(seen.duration_s)})" if seen.duration_s is not None else ""
    said = [part.reason] if part.reason and part.reason != seen.headline else _second_line(seen)
    body = [*said, *labels(seen), *_body(seen)]
    while body and not body[-1]:
        body.pop()
    return [f"{part.status.upper()}  {part.title}{took}", *(f"  {line}".rstrip() for line in body), ""]


def labels(seen: View) -> list[str]:
    """Return sentences that say what the figures do not prove."""
    lines = list(seen.notes)
    if seen.gpu_image_on_cpu and not any("cpu" in note.lower() for note in lines):
        lines.insert(0, "GPU image run on CPU: this proves nothing about GPUs.")
    if any(row.why_not_judged for group in seen.groups for row in group.rows):
        why = next(row.why_not_judged for group in seen.groups for row in group.rows if row.why_not_judged)
        lines.append(f"Speedup is shown, not judged ({why}).")
    return lines


def headings(group: Group) -> tuple[str, ...]:
    """The column titles of ``group``; the title of the column with the speedup includes the level of the interval."""
    level = next((row.level for row in group.rows if row.level is not None), None)
    titles = [f"speedup [{percent(level, 0)}]" if title == "speedup" and level else title for title in _HEADINGS]
    return (*titles[:2], *((_PLAIN,) if _has_plain(group) else ()), *((_SOLO,) if _several(group) else ()), *titles[2:])


def cells(group: Group) -> list[tuple[str, ...]]:
    """The rows of ``group`` in the order of :func:`headings`."""
    rows = []
    for row in group.rows:
        solo = (short(row.solo_per_s),) if _several(group) else ()
        plain = (short(row.plain_per_s),) if _has_plain(group) else ()
        rates = (str(row.workers), short(row.images_per_s), *plain, *solo)
        rows.append((*rates, speedup(row), percent(row.efficiency, 0), percent(row.accuracy), row.verdict))
    return rows


def footnote(group: Group) -> str:
    """Say how the figures of one worker and of a plain script were measured. The text is empty if the table has no such
    figures."""
    most = max((row.workers for row in group.rows if row.solo_per_s is not None), default=1)
    words = [f"1 worker: measured between the rounds of {plural(most, 'worker')}."] if most > 1 else []
    if _has_plain(group):
        words.append("Plain script: images/s of a short run without the memory allocator settings of the smoke test.")
    return " ".join(words)


def _has_plain(group: Group) -> bool:
    return any(row.plain_per_s is not None for row in group.rows)


def _several(group: Group) -> bool:
    """Whether at least two numbers of workers were each compared with one worker in rounds of their own."""
    return sum(row.workers > 1 and row.solo_per_s is not None for row in group.rows) > 1


def check_line(check: Check) -> str:
    """Format a check: ``FAIL REPLICA (2 workers): replicas differ from step 2 on``."""
    about = ", ".join(filter(None, (check.workload, plural(check.workers, "worker") if check.workers else "")))
    about = f" ({about})" if about else ""
    said = check.message or check.title or (f"{check.value}, limit {check.limit}" if check.value else "no message")
    return f"{check.status.upper()} {check.id}{about}: {said}"


def _second_line(seen: View) -> list[str]:
    """Return the headline, unless it is the message of a check that is printed below."""
    return [] if any(check.message == seen.headline for check in _troubles(seen)) else [sentence(seen)]


def _troubles(seen: View) -> list[Check]:
    """The checks that a reader should see. Skipped checks are among them only if no other check explains the verdict."""
    found = [check for check in seen.checks if check.status in ("error", "fail", "inconclusive", "warn")]
    return found or [check for check in seen.checks if check.status == "skip" and seen.verdict != "pass"]


def _trouble_lines(seen: View) -> list[str]:
    lines: list[str] = []
    for check in _troubles(seen):
        lines.append(check_line(check))
        if check.next_step and check.status != "skip":
            lines.append(f"     next: {check.next_step}")
    return [*lines, ""] if lines else []


def _paths(paths: Sequence[object]) -> list[str]:
    return [f"{'report' if place == 0 else '':8}{path}" for place, path in enumerate(paths)]


def _indented(words: str) -> list[str]:
    return [f"  {words}"] if words else []


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  " + "  ".join(_padded(row, widths)).rstrip() for row in rows]


def _padded(row: tuple[str, ...], widths: list[int]) -> list[str]:
    last = len(widths) - 1
    return [
        cell.ljust(width) if column == last else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
