"""Read a smoke report without failing on errors in it, and prepare the values that every format shows.

The report comes from a container whose interpreter may be ten years old, or may have crashed. No format may fail because of
such a report, so all formats read the raw JSON through this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from envbuild.report.exchange import collectives, schemes, topology
from envbuild.report.fact_blocks import fact_blocks
from envbuild.report.groups import groups
from envbuild.report.model import CHECK_STATUSES, Check, CheckStatus, Group, PartReport, Row, Training, Verdict, View
from envbuild.report.values import ABSENT, items, mapping, mappings, number, percent, plural, text, with_unit, workers_of

_SYNONYMS: dict[str, CheckStatus] = {"skipped": "skip", "warning": "warn", "failed": "fail", "passed": "pass"}


def view(report: Mapping[str, Any]) -> View:
    """Read ``report``; values of an unexpected kind are left out, and an unknown status becomes ``error``."""
    verdict = verdict_of(report)
    checks = tuple(sorted(map(_check, mappings(report.get("checks"))), key=lambda c: CHECK_STATUSES.index(c.status)))
    trainings = tuple(
        sorted(filter(None, map(_training, mappings(report.get("training")))), key=lambda t: (t.workload, t.workers))
    )
    on_cpu, gpu_image = _on_cpu(report), _gpu_image(report)
    grouped = groups(report, checks, trainings, verdict=verdict, on_cpu=on_cpu)
    parts = tuple(map(_part, mappings(report.get("parts"))))
    reasons = _reasons(report, verdict, checks)
    return View(
        name=_name(report),
        verdict=verdict,
        headline=_of_parts(parts) if parts and verdict == "pass" else _headline(verdict, grouped, checks, reasons),
        reasons=reasons,
        notes=tuple(filter(None, map(text, items(report.get("notes"))))),
        on_cpu=on_cpu,
        gpu_image_on_cpu=on_cpu and gpu_image,
        started=text(report.get("started_utc")),
        duration_s=number(report.get("duration_s")),
        groups=grouped,
        trainings=trainings,
        checks=checks,
        collectives=collectives(report),
        schemes=schemes(report),
        topology=topology(report),
        facts=fact_blocks(report),
        logs=tuple((text(key), text(value)) for key, value in mapping(report.get("logs")).items() if text(value).strip()),
        parts=parts,
    )


def summary(report: Mapping[str, Any]) -> tuple[str, str]:
    """Return one sentence with the result or the problem, and the next step if a check names one."""
    seen = view(report)
    blamed = [check for check in seen.checks if check.status in ("error", "fail", "inconclusive") and check.next_step]
    return seen.headline, blamed[0].next_step if blamed and seen.verdict != "pass" else ""


def sentence(seen: View) -> str:
    """Return the headline as a complete sentence."""
    words = seen.headline.rstrip(".")
    return f"{words[:1].upper()}{words[1:]}."


def verdict_of(report: Mapping[str, Any]) -> Verdict:
    """The report's status; any word except the four known statuses counts as an error, never as a pass."""
    status = report.get("status")
    return status if status in ("pass", "fail", "inconclusive") else "error"


def speedup(row: Row) -> str:
    """Format a speedup with its interval: ``1.53 [1.45, 1.57]``. An unknown interval is left out; an unknown speedup gives a
    dash."""
    if row.speedup is None:
        return ABSENT
    if row.low is None or row.high is None:
        return f"{row.speedup:.2f}"
    return f"{row.speedup:.2f} [{row.low:.2f}, {row.high:.2f}]"


def _part(item: Mapping[str, Any]) -> PartReport:
    where = filter(
        None, (text(item.get("prefix")), python and f"Python {python}" if (python := text(item.get("python"))) else "")
    )
    titled = " ".join(filter(None, (text(item.get("framework")), text(item.get("version"))))) or "a framework"
    own = mapping(item.get("report"))
    status = "not-applicable" if item.get("status") == "not-applicable" else verdict_of(item)
    return PartReport(
        title=f"{titled} ({', '.join(found)})" if (found := list(where)) else titled,
        status=status,
        reason=text(item.get("reason")),
        view=view({key: value for key, value in own.items() if key != "parts"}) if own else None,
    )


def _of_parts(parts: tuple[PartReport, ...]) -> str:
    """Say how many of several frameworks passed. Frameworks without a test are not counted."""
    tested = [part for part in parts if part.status != "not-applicable"]
    return f"{plural(sum(part.status == 'pass' for part in tested), 'framework')} of {len(tested)} passed, each tested alone"


def _name(report: Mapping[str, Any]) -> str:
    environment, image, framework = (
        mapping(report.get("environment")),
        mapping(report.get("image")),
        mapping(report.get("framework")),
    )
    named = text(environment.get("name")) or text(image.get("ref"))
    return (
        named or " ".join(filter(None, (text(framework.get("name")), text(framework.get("version"))))) or "unnamed environment"
    )


def _on_cpu(report: Mapping[str, Any]) -> bool:
    kind = text(mapping(report.get("mode")).get("device"))
    if kind:
        return kind == "cpu"
    return any("cpu" in text(run.get("why_not_judged")).lower() for run in mappings(report.get("runs")))


def _gpu_image(report: Mapping[str, Any]) -> bool:
    said = mapping(report.get("mode")).get("gpu_image")
    return said if isinstance(said, bool) else bool(text(mapping(report.get("environment")).get("cuda")))


def _check(item: Mapping[str, Any]) -> Check:
    raw = text(item.get("status")).lower()
    status = next((known for known in CHECK_STATUSES if raw == known), _SYNONYMS.get(raw, "error"))
    unit = text(item.get("unit"))
    return Check(
        id=text(item.get("id")) or "?",
        title=text(item.get("title")),
        workers=workers_of(item),
        status=status,
        value=with_unit(item.get("value"), unit),
        limit=with_unit(item.get("limit"), unit),
        message=text(item.get("message")),
        next_step=text(item.get("next_step")),
        detail=tuple((text(key), text(value)) for key, value in mapping(item.get("detail")).items()),
        workload=text(item.get("workload")),
    )


def _training(item: Mapping[str, Any]) -> Training | None:
    workers = workers_of(item)
    if workers is None:
        return None
    steps = number(item.get("steps"))
    return Training(
        workers=workers,
        accuracy=number(item.get("accuracy")),
        seconds=number(item.get("seconds")),
        steps=int(steps) if steps is not None else None,
        losses=_losses(item.get("loss")),
        workload=text(item.get("workload")),
        net=text(item.get("net")),
    )


def _losses(value: Any) -> tuple[tuple[float, float], ...]:
    points = []
    for index, item in enumerate(items(value)):
        pair = list(items(item)) if isinstance(item, list | tuple) else [index, item]
        step, loss = (number(pair[0]), number(pair[1])) if len(pair) == 2 else (None, None)
        if step is not None and loss is not None:
            points.append((step, loss))
    return tuple(points)


def _reasons(report: Mapping[str, Any], verdict: Verdict, checks: tuple[Check, ...]) -> tuple[str, ...]:
    if verdict == "pass":
        return ()
    said = text(report.get("reason"))
    blamed = ("inconclusive",) if verdict == "inconclusive" else ("fail", "error")
    found = [check.message or check.title or check.id for check in checks if check.status in blamed]
    return tuple(dict.fromkeys(filter(None, [said, *found])))


def _headline(verdict: Verdict, groups: tuple[Group, ...], checks: tuple[Check, ...], reasons: tuple[str, ...]) -> str:
    if verdict in ("error", "fail") or (verdict == "inconclusive" and reasons):
        fallback = "the report gives no verdict" if verdict == "error" else "a check failed"
        return reasons[0] if reasons else fallback
    parts = []
    last = groups[0].rows[-1] if groups and groups[0].rows else None
    if last is not None and last.workers > 1 and last.speedup is not None:
        parts.append(f"{plural(last.workers, 'worker')} process {last.speedup:.2f} times as many images per second as one")
    if last is not None and last.accuracy is not None:
        parts.append(f"{percent(last.accuracy)} of the test images recognised")
    done = [check for check in checks if check.status in ("pass", "warn")]
    parts.append(f"{plural(len(done), 'check')} passed" if done else "no check passed")
    return ", ".join(parts)
