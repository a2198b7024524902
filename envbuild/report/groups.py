"""The rows of a report, in groups of comparable runs. Each row has the figures for one number of workers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from envbuild.report.model import CHECK_STATUSES, Check, CheckStatus, Group, Round, Row, Training, Verdict
from envbuild.report.values import mapping, mappings, number, text, workers_of

_GROUPED_BY = ("workload", "net", "scaling", "precision", "sync")


def groups(
    report: Mapping[str, Any], checks: tuple[Check, ...], trainings: tuple[Training, ...], *, verdict: Verdict, on_cpu: bool
) -> tuple[Group, ...]:
    """Return one group for each combination of workload, network, scaling, precision and exchange. A workload that was trained
    but not timed also gets a group."""
    runs: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for run in mappings(report.get("runs")):
        runs.setdefault(tuple(text(run.get(key)) for key in _GROUPED_BY), []).append(run)
    for training in trainings:
        if not any(_is_of(training.workload, key) for key in runs):
            runs[(training.workload, training.net) if training.workload else ()] = []
    return tuple(
        _group(
            key,
            members,
            tuple(check for check in checks if _is_of(check.workload, key)),
            tuple(training for training in trainings if _is_of(training.workload, key)),
            plain=_plain(report, key),
            verdict=verdict,
            on_cpu=on_cpu,
        )
        for key, members in runs.items()
    )


def _is_of(workload: str, key: tuple[str, ...]) -> bool:
    """Whether a check or training about ``workload`` belongs to a group. A check or training without a workload belongs to all
    groups."""
    return not workload or key[:1] == (workload,)


def _group(
    key: tuple[str, ...],
    runs: list[Mapping[str, Any]],
    checks: tuple[Check, ...],
    trainings: tuple[Training, ...],
    *,
    plain: Mapping[int, float | None],
    verdict: Verdict,
    on_cpu: bool,
) -> Group:
    by_workers = {workers: run for run in runs if (workers := workers_of(run)) is not None}
    trained = {training.workers: training for training in trainings}
    alone = _yardstick(by_workers)
    counts = set(by_workers) | set(trained) | ({1} if by_workers else set())
    rows = tuple(
        _row(n, by_workers.get(n), alone, trained.get(n), checks, plain=plain.get(n), verdict=verdict, on_cpu=on_cpu)
        for n in sorted(counts)
    )
    return Group(
        title=_group_title(key, runs),
        rows=rows,
        rounds=tuple(r for n in sorted(by_workers) for r in _rounds(n, by_workers[n])),
    )


def _plain(report: Mapping[str, Any], key: tuple[str, ...]) -> dict[int, float | None]:
    """Return, for each number of workers, the images per second without the allocator settings of the smoke test."""
    for run in mappings(report.get("plain_runs")):
        workers, rates = workers_of(run), mapping(run.get("images_per_s"))
        if workers is not None and tuple(text(run.get(part)) for part in _GROUPED_BY[:3]) == key[:3]:
            return {1: number(rates.get("solo")), **({workers: number(rates.get("dp"))} if workers > 1 else {})}
    return {}


def _group_title(key: tuple[str, ...], runs: list[Mapping[str, Any]]) -> str:
    named = dict(zip(_GROUPED_BY, key, strict=False))
    forms = {"scaling": "{} scaling", "sync": "exchange: {}"}
    words = [forms.get(what, "{}").format(word) for what, word in named.items() if word]
    batches = {batch for run in runs if (batch := number(run.get("batch_per_device"))) is not None}
    if len(batches) == 1:
        words.append(f"batch {batches.pop():.0f} per worker")
    return " · ".join(words) or "training"


def _yardstick(by_workers: dict[int, Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the run that gives the speed of one worker. This is the run with the most workers: its speedup was measured
    against its own rounds with one worker.

    The run of one worker alone, in contrast, was made at another time. On a machine with changing load, its speed could
    contradict the speedup.
    """
    return by_workers[max(by_workers)] if by_workers else {}


def _row(
    n: int,
    run: Mapping[str, Any] | None,
    solo: Mapping[str, Any],
    training: Training | None,
    checks: tuple[Check, ...],
    *,
    plain: float | None,
    verdict: Verdict,
    on_cpu: bool,
) -> Row:
    source = solo if n == 1 else run or {}
    mode = "solo" if n == 1 else "dp"
    gain = mapping(source.get("speedup")) if n > 1 else {}
    measured = number(gain.get("median")) if n > 1 else (1.0 if source else None)
    judged = source.get("judged") is True
    why = (
        "" if judged or n == 1 or measured is None else text(source.get("why_not_judged")) or ("CPU workers" if on_cpu else "")
    )
    state = _state(n, checks)
    rate = mapping(mapping(source.get("images_per_s_interval")).get(mode))
    return Row(
        workers=n,
        images_per_s=_of_mode(source.get("images_per_s"), mode),
        solo_per_s=_of_mode(source.get("images_per_s"), "solo"),
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
        slowest=number(rate.get("lo")),
        fastest=number(rate.get("hi")),
        split=tuple(_split(mapping(source.get("split")))) if n > 1 else (),
        plain_per_s=plain,
    )


def _split(told: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for part in ("compute", "communication", "input"):
        spent = number(told.get(f"{part}_ms"))
        if spent is not None:
            yield part, spent


def _of_mode(value: Any, mode: str) -> float | None:
    """Return a figure for ``mode``. ``value`` has one number for all modes, or one number for each mode. The modes are ``solo``
    (one worker) and ``dp`` (data-parallel)."""
    modes = mapping(value)
    return number(modes.get(mode)) if modes else number(value)


def _efficiency(n: int, measured: float | None, source: Mapping[str, Any]) -> float | None:
    if n == 1:
        return measured
    said = number(source.get("efficiency"))
    return said if said is not None or measured is None else measured / n


def _state(n: int, checks: tuple[Check, ...]) -> CheckStatus:
    """The worst status among the checks of ``n`` workers; skip if no check was made."""
    mine = [check.status for check in checks if check.workers == n and check.status not in ("info", "skip")]
    return min(mine, key=CHECK_STATUSES.index) if mine else "skip"


def _row_verdict(state: CheckStatus, verdict: Verdict, *, on_cpu: bool) -> str:
    if verdict == "inconclusive" and state in ("pass", "warn"):
        return "inconclusive (checks passed on CPU)" if on_cpu else "inconclusive"
    words = {"pass": "pass", "warn": "pass with warnings", "skip": "not checked", "info": "not checked", "inconclusive": state}
    return words.get(state, "fail")


def _rounds(n: int, run: Mapping[str, Any]) -> list[Round]:
    """Return the images per second of each round.

    In a round, one worker takes ``solo_s`` seconds for its batches, and ``n`` workers together take ``dp_s`` seconds for the
    batches of all of them.
    """
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
