"""Formats the report as one self-contained page: without scripts and requests, for light and dark screens and for print."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envbuild.jinja_settings import jinja_environment
from envbuild.report import exchange, plots
from envbuild.report.bandwidth import bandwidth_plot
from envbuild.report.fact_blocks import timing
from envbuild.report.model import CHECK_STATUSES, Check, View
from envbuild.report.plain_text import cells, footnote, headings, labels
from envbuild.report.svg import Plot
from envbuild.report.values import duration, mapping, mappings, percent, plural, short
from envbuild.report.view import sentence, speedup, view

_PAGE = Path(__file__).parent / "page"
_HEADINGS = {"pass": "Warnings", "inconclusive": "Why there is no verdict"}
# For each status, the words that the page writes after what a check expects, as in "expected …: not met".
_LABELS = {"error": "error", "fail": "not met", "inconclusive": "not decided", "warn": "warning"}


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckGroup:
    """A group of checks with the same finding. The page shows the group as one finding. ``title`` is what all these checks
    expected. ``lines`` has the message of each check."""

    status: str
    label: str
    id: str
    title: str
    lines: tuple[str, ...]
    next_step: str
    detail: tuple[tuple[str, str], ...]


def html(report: Mapping[str, Any]) -> str:
    """Return the page. All text from the report is escaped. The page's security policy forbids scripts and outside
    resources."""
    seen = view(report)
    return (
        jinja_environment(_PAGE, autoescape=True)
        .get_template("page.html.j2")
        .render(
            seen=seen,
            report=report,
            parts=[
                (part, mapping(own.get("report"))) for part, own in zip(seen.parts, mappings(report.get("parts")), strict=True)
            ],
            sentence=sentence,
            css=(_PAGE / "page.css").read_text(encoding="utf-8"),
            labels=labels,
            tiles=_tiles,
            plots=_plots,
            counted=_counted,
            findings=_findings,
            findings_title=lambda seen: _HEADINGS.get(seen.verdict, "What went wrong"),
            headings=headings,
            cells=cells,
            footnote=footnote,
            exchange=exchange,
            duration=duration,
        )
    )


def _tiles(seen: View) -> list[tuple[str, str]]:
    last = seen.groups[0].rows[-1] if seen.groups and seen.groups[0].rows else None
    if last is None:
        return []
    about = plural(last.workers, "worker")
    tiles = [
        (short(last.images_per_s), f"images per second, {about}") if last.images_per_s is not None else None,
        (f"{last.speedup:.2f}×", _speedup_words(speedup(last))) if last.speedup is not None and last.workers > 1 else None,  # noqa: RUF001
        (percent(last.efficiency, 0), "efficiency") if last.efficiency is not None and last.workers > 1 else None,
        (percent(last.accuracy), f"accuracy, {about}") if last.accuracy is not None else None,
    ]
    return [tile for tile in tiles if tile is not None]


def _speedup_words(shown: str) -> str:
    _value, bracket, interval = shown.partition(" [")
    return f"speedup, interval [{interval}" if bracket else "speedup"


def _plots(seen: View, report: Mapping[str, Any]) -> list[Plot]:
    drawn = [plot for group in seen.groups for plot in plots.of_group(group)]
    others: list[Plot | None] = []
    for workload in dict.fromkeys(training.workload for training in seen.trainings):
        mine = [training for training in seen.trainings if training.workload == workload]
        others += [plots.loss_plot(mine), plots.accuracy_plot(mine)]
    others += [bandwidth_plot(seen.collectives), plots.time_plot(timing(report))]
    return drawn + [plot for plot in others if plot is not None]


def _counted(seen: View) -> str:
    counts = Counter(check.status for check in seen.checks)
    return ", ".join(f"{counts[status]} {status}" for status in CHECK_STATUSES if counts[status])


def _findings(seen: View) -> list[CheckGroup]:
    """Return the findings for the top of the page, the worst first. There are none for a pass without warnings."""
    alike: dict[tuple[str, ...], list[Check]] = {}
    for check in seen.checks:
        if check.status in _LABELS:
            alike.setdefault((check.status, check.id, check.title, check.next_step), []).append(check)
    found = [
        CheckGroup(
            status=status,
            label=_LABELS[status],
            id=id_ if title else "",
            title=_capital(title or id_),
            lines=tuple(dict.fromkeys(map(_line, checks))),
            next_step=next_step,
            detail=checks[0].detail,
        )
        for (status, id_, title, next_step), checks in alike.items()
    ]
    if seen.verdict != "pass" and not any(each.status != "warn" for each in found):
        lines = seen.reasons or ("The report does not say why.",)
        next_step = "Read the log below." if seen.logs else "Look at the output of the run: it may have ended early."
        about = CheckGroup(
            status=seen.verdict,
            label=seen.verdict,
            id="",
            title=_capital(lines[0]),
            lines=lines[1:],
            next_step=next_step,
            detail=(),
        )
        found.insert(0, about)
    return found


def _line(check: Check) -> str:
    about = ", ".join(filter(None, (check.workload, plural(check.workers, "worker") if check.workers else "")))
    figures = f" (measured {check.value}, limit {check.limit})" if check.value and check.limit else ""
    said = check.message or (f"measured {check.value}" if check.value else "no message")
    return f"{about}: {said}{figures}" if about else f"{said}{figures}"


def _capital(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}"
