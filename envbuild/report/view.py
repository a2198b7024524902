"""A smoke report read forgivingly: what every format shows, with None for what is absent or not a finite number.

The report comes out of a container that may hold a ten-year-old interpreter, or one that crashed half-way. No format may
fail on it, so every reading of the raw JSON goes through this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from envbuild.report.facts import collectives, facts
from envbuild.report.values import ABSENT, items, mapping, mappings, number, percent, plural, text, with_unit

Verdict = Literal["pass", "fail", "inconclusive", "error"]
CheckStatus = Literal["pass", "warn", "fail", "inconclusive", "skip", "info", "error"]

_GROUPED_BY = ("workload", "net", "scaling", "precision", "sync")
CHECK_STATUSES: tuple[CheckStatus, ...] = (
    "error",
    "fail",
    "inconclusive",
    "warn",
    "pass",
    "info",
    "skip",
)  # what to read first
_SYNONYMS: dict[str, CheckStatus] = {
    "skipped": "skip",
    "inconclusive": "skip",
    "warning": "warn",
    "failed": "fail",
    "passed": "pass",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One check. ``workers`` is None where the check is not about a number of workers."""

    id: str
    title: str
    workers: int | None
    status: CheckStatus
    value: str
    limit: str
    message: str
    next_step: str
    detail: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """What one number of workers did. ``low`` and ``high`` bound the speedup at ``level`` (0.965 is 96.5 %)."""

    workers: int
    images_per_s: float | None
    step_ms: float | None
    speedup: float | None
    low: float | None
    high: float | None
    level: float | None
    efficiency: float | None
    ceiling: float | None
    communication: float | None
    accuracy: float | None
    seconds: float | None
    judged: bool
    why_not_judged: str
    verdict: str
    state: CheckStatus


@dataclass(frozen=True, kw_only=True, slots=True)
class Round:
    """One repeat: images per second of one worker alone and of ``workers`` together."""

    workers: int
    index: int
    solo: float | None
    together: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """The rows that may be compared with each other: same workload, network and kind of scaling."""

    title: str
    rows: tuple[Row, ...]
    rounds: tuple[Round, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Training:
    """One training to accuracy. ``losses`` are (step, loss)."""

    workers: int
    accuracy: float | None
    loss_first: float | None
    loss_last: float | None
    seconds: float | None
    steps: int | None
    losses: tuple[tuple[float, float], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class View:
    """All that the formats show of one report. ``facts`` are titled blocks of (label, value)."""

    name: str
    verdict: Verdict
    headline: str
    reasons: tuple[str, ...]
    notes: tuple[str, ...]
    on_cpu: bool
    gpu_image_on_cpu: bool
    started: str
    duration_s: float | None
    groups: tuple[Group, ...]
    trainings: tuple[Training, ...]
    checks: tuple[Check, ...]
    collectives: tuple[tuple[str, ...], ...]
    facts: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]
    logs: tuple[tuple[str, str], ...]


def view(report: Mapping[str, Any]) -> View:
    """Read ``report``; anything of an unexpected kind is left out, and a status nobody knows is an ``error``."""
    verdict = verdict_of(report)
    checks = tuple(sorted(map(_check, mappings(report.get("checks"))), key=lambda c: CHECK_STATUSES.index(c.status)))
    trainings = tuple(sorted(filter(None, map(_training, mappings(report.get("training")))), key=lambda t: t.workers))
    on_cpu, gpu_image = _on_cpu(report), _gpu_image(report)
    groups = _groups(report, checks, trainings, verdict=verdict, on_cpu=on_cpu)
    reasons = _reasons(report, verdict, checks)
    return View(
        name=_name(report),
        verdict=verdict,
        headline=_headline(verdict, groups, checks, reasons),
        reasons=reasons,
        notes=tuple(filter(None, map(text, items(report.get("notes"))))),
        on_cpu=on_cpu,
        gpu_image_on_cpu=on_cpu and gpu_image,
        started=text(report.get("started_utc")),
        duration_s=number(report.get("duration_s")),
        groups=groups,
        trainings=trainings,
        checks=checks,
        collectives=collectives(report),
        facts=facts(report),
        logs=tuple((key, text(value)) for key, value in mapping(report.get("logs")).items() if text(value).strip()),
    )


def summary(report: Mapping[str, Any]) -> tuple[str, str]:
    """One sentence that says how it went or what went wrong, and the next step where a check names one."""
    seen = view(report)
    blamed = [check for check in seen.checks if check.status in ("error", "fail", "inconclusive") and check.next_step]
    return seen.headline, blamed[0].next_step if blamed and seen.verdict != "pass" else ""


def verdict_of(report: Mapping[str, Any]) -> Verdict:
    """The report's status; anything but the four known words is an error, never a pass."""
    status = report.get("status")
    return status if status in ("pass", "fail", "inconclusive") else "error"


def speedup(row: Row) -> str:
    """``1.53 [1.45, 1.57]``, as much of it as is known."""
    if row.speedup is None:
        return ABSENT
    if row.low is None or row.high is None:
        return f"{row.speedup:.2f}"
    return f"{row.speedup:.2f} [{row.low:.2f}, {row.high:.2f}]"


def _workers(item: Mapping[str, Any]) -> int | None:
    count = number(item.get("n"))
    return int(count) if count is not None and 1 <= count <= 1_000_000 else None


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
        workers=_workers(item),
        status=status,
        value=with_unit(item.get("value"), unit),
        limit=with_unit(item.get("limit"), unit),
        message=text(item.get("message")),
        next_step=text(item.get("next_step")),
        detail=tuple((str(key), text(value)) for key, value in mapping(item.get("detail")).items()),
    )


def _training(item: Mapping[str, Any]) -> Training | None:
    workers = _workers(item)
    if workers is None:
        return None
    steps = number(item.get("steps"))
    return Training(
        workers=workers,
        accuracy=number(item.get("accuracy")),
        loss_first=number(item.get("loss_first")),
        loss_last=number(item.get("loss_last")),
        seconds=number(item.get("seconds")),
        steps=int(steps) if steps is not None else None,
        losses=_losses(item.get("loss")),
    )


def _losses(value: Any) -> tuple[tuple[float, float], ...]:
    points = []
    for index, item in enumerate(items(value)):
        pair = list(items(item)) if isinstance(item, list | tuple) else [index, item]
        step, loss = (number(pair[0]), number(pair[1])) if len(pair) == 2 else (None, None)
        if step is not None and loss is not None:
            points.append((step, loss))
    return tuple(points)


def _groups(
    report: Mapping[str, Any], checks: tuple[Check, ...], trainings: tuple[Training, ...], *, verdict: Verdict, on_cpu: bool
) -> tuple[Group, ...]:
    runs: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for run in mappings(report.get("runs")):
        runs.setdefault(tuple(text(run.get(key)) for key in _GROUPED_BY), []).append(run)
    if not runs and trainings:
        runs[()] = []
    return tuple(_group(key, members, checks, trainings, verdict=verdict, on_cpu=on_cpu) for key, members in runs.items())


def _group(
    key: tuple[str, ...],
    runs: list[Mapping[str, Any]],
    checks: tuple[Check, ...],
    trainings: tuple[Training, ...],
    *,
    verdict: Verdict,
    on_cpu: bool,
) -> Group:
    by_workers = {workers: run for run in runs if (workers := _workers(run)) is not None}
    trained = {training.workers: training for training in trainings}
    counts = set(by_workers) | set(trained) | ({1} if by_workers else set())
    rows = tuple(
        _row(n, by_workers.get(n), _first_solo(by_workers), trained.get(n), checks, verdict=verdict, on_cpu=on_cpu)
        for n in sorted(counts)
    )
    return Group(
        title=_group_title(key, runs),
        rows=rows,
        rounds=tuple(r for n in sorted(by_workers) for r in _rounds(n, by_workers[n])),
    )


def _group_title(key: tuple[str, ...], runs: list[Mapping[str, Any]]) -> str:
    named = dict(zip(_GROUPED_BY, key, strict=False))
    forms = {"scaling": "{} scaling", "sync": "exchange: {}"}
    words = [forms.get(what, "{}").format(word) for what, word in named.items() if word]
    batches = {batch for run in runs if (batch := number(run.get("batch_per_device"))) is not None}
    if len(batches) == 1:
        words.append(f"batch {batches.pop():.0f} per worker")
    return " · ".join(words) or "training"


def _first_solo(by_workers: dict[int, Mapping[str, Any]]) -> Mapping[str, Any]:
    """The run whose solo part tells what one worker does: the one with fewest workers above 1, else that of 1."""
    several = sorted(n for n in by_workers if n > 1)
    return by_workers[several[0]] if several else by_workers.get(1, {})


def _row(
    n: int,
    run: Mapping[str, Any] | None,
    solo: Mapping[str, Any],
    training: Training | None,
    checks: tuple[Check, ...],
    *,
    verdict: Verdict,
    on_cpu: bool,
) -> Row:
    source = run if run is not None else (solo if n == 1 else {})
    mode = "solo" if n == 1 else "dp"
    gain = mapping(source.get("speedup")) if n > 1 else {}
    measured = number(gain.get("median")) if n > 1 else (1.0 if source else None)
    judged = source.get("judged") is True
    why = (
        "" if judged or n == 1 or measured is None else text(source.get("why_not_judged")) or ("CPU workers" if on_cpu else "")
    )
    state = _state(n, checks)
    return Row(
        workers=n,
        images_per_s=_of_mode(source.get("images_per_s"), mode),
        step_ms=_of_mode(source.get("step_ms"), mode),
        speedup=measured,
        low=number(gain.get("lo")),
        high=number(gain.get("hi")),
        level=number(gain.get("level")),
        efficiency=_efficiency(n, measured, source),
        ceiling=number(source.get("ceiling")) if n > 1 else None,
        communication=number(source.get("comm_efficiency")) if n > 1 else None,
        accuracy=training.accuracy if training else None,
        seconds=training.seconds if training else None,
        judged=judged,
        why_not_judged="CPU workers" if why and on_cpu else why,
        verdict=_row_verdict(state, verdict, on_cpu=on_cpu),
        state="skip" if state == "pass" and verdict not in ("pass", "fail") else state,
    )


def _of_mode(value: Any, mode: str) -> float | None:
    """A figure that is either one number or one per mode."""
    modes = mapping(value)
    return number(modes.get(mode)) if modes else number(value)


def _efficiency(n: int, measured: float | None, source: Mapping[str, Any]) -> float | None:
    if n == 1:
        return measured
    said = number(source.get("efficiency"))
    return said if said is not None or measured is None else measured / n


def _state(n: int, checks: tuple[Check, ...]) -> CheckStatus:
    """The worst status among the checks of ``n`` workers; skip where none was made."""
    mine = [check.status for check in checks if check.workers == n and check.status not in ("info", "skip")]
    return min(mine, key=CHECK_STATUSES.index) if mine else "skip"


def _row_verdict(state: CheckStatus, verdict: Verdict, *, on_cpu: bool) -> str:
    if verdict == "inconclusive" and state in ("pass", "warn"):
        return "inconclusive (checks passed on CPU)" if on_cpu else "inconclusive"
    words = {"pass": "pass", "warn": "pass with warnings", "skip": "not checked", "info": "not checked", "inconclusive": state}
    return words.get(state, "fail")


def _rounds(n: int, run: Mapping[str, Any]) -> list[Round]:
    """Images per second of each repeat. In a round one worker takes ``solo_s`` for what ``n`` workers repeat in ``dp_s``."""
    steps, batch, whole = (number(run.get(key)) for key in ("steps_per_round", "batch_per_device", "global_batch"))
    one = steps * batch if steps and batch else None
    all_of_them = steps * whole if steps and whole else (one * n if one else None)
    return [
        Round(workers=n, index=index + 1, solo=_rate(one, item.get("solo_s")), together=_rate(all_of_them, item.get("dp_s")))
        for index, item in enumerate(mappings(run.get("rounds")))
    ]


def _rate(images: float | None, seconds: Any) -> float | None:
    spent = number(seconds)
    return number(images / spent) if images and spent and spent > 0 else None


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
        parts.append(f"{plural(last.workers, 'worker')} process {last.speedup:.2f} times as many images a second as one")
    if last is not None and last.accuracy is not None:
        parts.append(f"{percent(last.accuracy)} of unseen images recognised")
    done = [check for check in checks if check.status in ("pass", "warn")]
    parts.append(f"{plural(len(done), 'check')} passed" if done else "no check passed")
    return ", ".join(parts)
