"""The plots of speed and of training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from envbuild.report import svg
from envbuild.report.model import Group, Training
from envbuild.report.svg import Plot
from envbuild.report.values import percent, plural, short


def of_group(group: Group) -> list[Plot]:
    """Return the plots for which ``group`` has figures, the most important plot first."""
    drawn = [speedup_plot(group), efficiency_plot(group), split_plot(group), throughput_plot(group)]
    return [plot for plot in drawn if plot is not None]


def speedup_plot(group: Group) -> Plot | None:
    """Plot the measured speedup with its interval, and the ideal speedup as a line."""
    rows = [row for row in group.rows if row.speedup is not None]
    if not any(row.workers > 1 for row in rows):
        return None
    most = max(row.workers for row in rows)
    tallest = max(float(most), *(row.high or row.speedup or 0 for row in rows), *(row.ceiling or 0 for row in rows))
    ticks = svg.ticks(0, tallest)
    axes = svg.Axes(x_low=1 - 0.15 * (most - 1), x_high=most + 0.2 * (most - 1), y_low=0, y_high=ticks[-1])
    parts = [svg.grid(axes, ticks), svg.x_labels(axes, [(row.workers, str(row.workers)) for row in rows], "workers")]
    parts.append(svg.line(axes, [(1, 1), (most, most)], "ideal"))
    parts.append(svg.line(axes, [(row.workers, row.speedup or 0) for row in rows], "s1"))
    for row in rows:
        if row.low is not None and row.high is not None:
            parts.append(svg.whisker(axes, row.workers, row.low, row.high))
        if row.ceiling is not None:
            parts.append(svg.dot(axes, row.workers, row.ceiling, "hollow", f"ceiling without exchange {row.ceiling:.2f}"))
        value = row.speedup or 0
        parts.append(svg.dot(axes, row.workers, value, "s1", f"{plural(row.workers, 'worker')}: {value:.2f}"))
        if row.workers > 1:
            parts.append(svg.label(axes.x(row.workers) + 9, axes.y(value) + 15, f"{value:.2f}", "value"))
    legend = [("s1", "measured, with interval"), ("ideal", "ideal")]
    if any(row.ceiling is not None for row in rows):
        legend.append(("hollow", "ceiling: no exchange"))
    described = ", ".join(f"{plural(row.workers, 'worker')} {row.speedup:.2f}" for row in rows)
    return Plot(
        title="Speedup",
        note="Images per second, divided by those of one worker. On the ideal line, N workers are N times as fast as one.",
        svg=svg.picture("".join(parts), f"Speedup: {described}"),
        legend=tuple(legend),
    )


def efficiency_plot(group: Group) -> Plot | None:
    """Plot the efficiency: how much is lost because workers share the machine, and how much because they exchange gradients."""
    bars: list[tuple[str, float, str]] = []
    for row in group.rows:
        if row.workers < 2:
            continue
        about = plural(row.workers, "worker")
        shares = (
            (row.efficiency, f"{about}: efficiency", "s1"),
            (row.ceiling / row.workers if row.ceiling is not None else None, f"{about}: sharing the machine", "s3"),
            (row.communication, f"{about}: exchanging gradients", "s2"),
        )
        bars += [(words, share, style) for share, words, style in shares if share is not None]
    if not bars:
        return None
    return Plot(
        title="Efficiency, and what reduces it",
        note="100 % means no loss. Two things reduce it: workers share the machine, and they exchange gradients.",
        svg=svg.bars([(words, share, percent(share, 0), style) for words, share, style in bars], mark=1.0, words="Efficiency"),
    )


_PARTS = {"compute": ("computing", "s1"), "communication": ("exchanging", "s2"), "input": ("loading the batch", "s3")}


def split_plot(group: Group) -> Plot | None:
    """Plot how the time of a step is divided into computing, communication and input."""
    rows = [
        (f"{plural(row.workers, 'worker')}: {_PARTS[part][0]}", spent, f"{short(spent)} ms", _PARTS[part][1])
        for row in group.rows
        for part, spent in row.split
    ]
    if not rows:
        return None
    return Plot(
        title="Where a step's time goes",
        note="Milliseconds per step: computing, the time that the exchange adds, and the time that loading a batch adds.",
        svg=svg.bars(rows, mark=None, words="Milliseconds per step"),
    )


def throughput_plot(group: Group) -> Plot | None:
    """Plot the images per second of every round. The plot shows noise and drift."""
    most = max((r.workers for r in group.rounds), default=0)
    if most < 1:
        return None
    series: list[tuple[str, str, list[tuple[float, float]]]] = []
    counts = sorted({r.workers for r in group.rounds})
    for n in counts:
        mine = [r for r in group.rounds if r.workers == n]
        together = [(float(r.index), r.together) for r in mine if r.together is not None]
        if n > 1 and together:
            series.append((_style(n, counts), plural(n, "worker"), together))
        if n == most:
            alone = [(float(r.index), r.solo) for r in mine if r.solo is not None]
            series.append(("s0", "1 worker", alone)) if alone else None
    if not series:
        return None
    points = [point for _style, _words, line in series for point in line]
    ticks = svg.ticks(0, max(y for _x, y in points))
    last = max(x for x, _y in points)
    axes = svg.Axes(x_low=0.5, x_high=last + 0.5, y_low=0, y_high=ticks[-1])
    shown = range(1, int(last) + 1, max(1, math.ceil(last / 10)))
    parts = [svg.grid(axes, ticks), svg.x_labels(axes, [(n, str(n)) for n in shown], "repeat")]
    for style, words, line in series:
        middle = median(y for _x, y in line)
        parts.append(svg.line(axes, [(axes.x_low, middle), (axes.x_high, middle)], f"{style} thin"))
        parts.append(svg.line(axes, line, style))
        parts += [svg.dot(axes, x, y, style, f"repeat {x:.0f}, {words}: {short(y)} images/s") for x, y in line]
    return Plot(
        title="Throughput in every repeat",
        note="Images per second; the thin line is the median. Runs with one worker alternate with runs with all workers.",
        svg=svg.picture("".join(parts), "Images per second in each repeat"),
        legend=tuple((style, words) for style, words, _line_ in series),
    )


def loss_plot(trainings: Sequence[Training]) -> Plot | None:
    """Plot the training loss against the steps, with one line for each number of workers."""
    counts = [t.workers for t in trainings]
    drawn = [t for t in trainings if len(t.losses) > 1]
    if not drawn:
        return None
    points = [point for t in drawn for point in t.losses]
    ticks = svg.ticks(0, max(loss for _step, loss in points))
    last = max(step for step, _loss in points)
    axes = svg.Axes(x_low=0, x_high=last or 1, y_low=min(0.0, *(y for _x, y in points)), y_high=ticks[-1])
    parts = [svg.grid(axes, ticks), svg.x_labels(axes, [(x, f"{x:g}") for x in svg.ticks(0, last) if x <= last], "step")]
    parts += [svg.line(axes, list(t.losses), _style(t.workers, counts)) for t in drawn]
    return Plot(
        title=_about("Training loss", drawn),
        note="Mean loss of each batch. It must fall, and about equally for every number of workers.",
        svg=svg.picture("".join(parts), "Training loss per step"),
        legend=tuple((_style(t.workers, counts), plural(t.workers, "worker")) for t in drawn),
    )


def accuracy_plot(trainings: Sequence[Training]) -> Plot | None:
    """Plot the accuracy on images that were not used for training."""
    counts = [t.workers for t in trainings]
    bars = [
        (plural(t.workers, "worker"), t.accuracy, percent(t.accuracy), _style(t.workers, counts))
        for t in trainings
        if t.accuracy is not None
    ]
    if not bars:
        return None
    return Plot(
        title=_about("Accuracy", trainings),
        note="Share of the test images, which are not used for training, that the network recognises.",
        svg=svg.bars(bars, mark=None, words="Accuracy"),
    )


def time_plot(parts: Sequence[tuple[str, float]]) -> Plot | None:
    """Plot how long each part of the smoke test took."""
    spent = [(words, seconds) for words, seconds in parts if seconds > 0]
    if not spent:
        return None
    bars = [(words, seconds, f"{seconds:.1f} s", "s0") for words, seconds in spent]
    return Plot(
        title="Where the time went",
        note="Seconds in each part of the smoke test.",
        svg=svg.bars(bars, mark=None, words="Seconds"),
    )


def _about(title: str, trainings: Sequence[Training]) -> str:
    """Return the title of a plot, with the workload and the network if the trainings name them."""
    named = {" ".join(filter(None, (t.workload, t.net))) for t in trainings}
    word = named.pop() if len(named) == 1 else ""
    return f"{title} · {word}" if word else title


def _style(workers: int, counts: Sequence[int]) -> str:
    """Return the colour class of a number of workers. One worker is grey in every plot; each larger number of workers has the
    same colour in all plots of a group."""
    several = sorted(n for n in set(counts) if n > 1)
    return "s0" if workers == 1 else f"s{several.index(workers) % 4 + 1}"
