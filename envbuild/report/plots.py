"""Small SVG plots drawn by hand: no script, no font, no colour of their own (the page's style sheet gives those)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from statistics import median

from envbuild.report.shapes import Group, Training
from envbuild.report.values import percent, plural, short

_WIDTH, _HEIGHT = 440.0, 260.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 52.0, 20.0, 16.0, 42.0
_BAR, _PITCH = 16.0, 30.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Plot:
    """A drawn plot with its title, one line on how to read it, and its legend as (style class, words)."""

    title: str
    note: str
    svg: str
    legend: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class _Axes:
    x_low: float
    x_high: float
    y_low: float
    y_high: float

    def x(self, value: float) -> float:
        return _LEFT + (value - self.x_low) / ((self.x_high - self.x_low) or 1) * (_WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        return _HEIGHT - _BOTTOM - (value - self.y_low) / ((self.y_high - self.y_low) or 1) * (_HEIGHT - _TOP - _BOTTOM)


def of_group(group: Group) -> list[Plot]:
    """The plots that the figures of ``group`` allow, the headline first."""
    drawn = [speedup_plot(group), efficiency_plot(group), throughput_plot(group)]
    return [plot for plot in drawn if plot is not None]


def speedup_plot(group: Group) -> Plot | None:
    """Measured speedup with its interval against the ideal line."""
    rows = [row for row in group.rows if row.speedup is not None]
    if not any(row.workers > 1 for row in rows):
        return None
    most = max(row.workers for row in rows)
    tallest = max(float(most), *(row.high or row.speedup or 0 for row in rows), *(row.ceiling or 0 for row in rows))
    ticks = _ticks(0, tallest)
    axes = _Axes(x_low=1 - 0.15 * (most - 1), x_high=most + 0.2 * (most - 1), y_low=0, y_high=ticks[-1])
    parts = [_grid(axes, ticks), _x_labels(axes, [(row.workers, str(row.workers)) for row in rows], "workers")]
    parts.append(_line(axes, [(1, 1), (most, most)], "ideal"))
    parts.append(_line(axes, [(row.workers, row.speedup or 0) for row in rows], "s1"))
    for row in rows:
        if row.low is not None and row.high is not None:
            parts.append(_whisker(axes, row.workers, row.low, row.high))
        if row.ceiling is not None:
            parts.append(_dot(axes, row.workers, row.ceiling, "hollow", f"ceiling without exchange {row.ceiling:.2f}"))
        value = row.speedup or 0
        parts.append(_dot(axes, row.workers, value, "s1", f"{plural(row.workers, 'worker')}: {value:.2f}"))
        if row.workers > 1:
            parts.append(_label(axes.x(row.workers) + 9, axes.y(value) + 15, f"{value:.2f}", "value"))
    legend = [("s1", "measured, with interval"), ("ideal", "ideal")]
    if any(row.ceiling is not None for row in rows):
        legend.append(("hollow", "ceiling: no exchange"))
    described = ", ".join(f"{plural(row.workers, 'worker')} {row.speedup:.2f}" for row in rows)
    return Plot(
        title="Speedup",
        note="Images a second against one worker; the ideal line is one worker's rate times their number.",
        svg=_svg("".join(parts), f"Speedup: {described}"),
        legend=tuple(legend),
    )


def efficiency_plot(group: Group) -> Plot | None:
    """Efficiency, and how much of the loss comes from sharing the machine and how much from the exchange."""
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
        title="Efficiency, and what it is made of",
        note="100 % would be no loss. Efficiency is what is left after sharing the machine and exchanging gradients.",
        svg=_bars([(words, share, percent(share, 0), style) for words, share, style in bars], mark=1.0, words="Efficiency"),
    )


def throughput_plot(group: Group) -> Plot | None:
    """Images a second in every repeat, so that noise and drift can be seen."""
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
    ticks = _ticks(0, max(y for _x, y in points))
    last = max(x for x, _y in points)
    axes = _Axes(x_low=0.5, x_high=last + 0.5, y_low=0, y_high=ticks[-1])
    shown = range(1, int(last) + 1, max(1, math.ceil(last / 10)))
    parts = [_grid(axes, ticks), _x_labels(axes, [(n, str(n)) for n in shown], "repeat")]
    for style, words, line in series:
        middle = median(y for _x, y in line)
        parts.append(_line(axes, [(axes.x_low, middle), (axes.x_high, middle)], f"{style} thin"))
        parts.append(_line(axes, line, style))
        parts += [_dot(axes, x, y, style, f"repeat {x:.0f}, {words}: {short(y)} images/s") for x, y in line]
    return Plot(
        title="Throughput in every repeat",
        note="Images a second; the thin line is the median. Repeats alternate between one worker and all of them.",
        svg=_svg("".join(parts), "Images a second per repeat"),
        legend=tuple((style, words) for style, words, _line_ in series),
    )


def loss_plot(trainings: Sequence[Training]) -> Plot | None:
    """Training loss against steps, one line per number of workers."""
    counts = [t.workers for t in trainings]
    drawn = [t for t in trainings if len(t.losses) > 1]
    if not drawn:
        return None
    points = [point for t in drawn for point in t.losses]
    ticks = _ticks(0, max(loss for _step, loss in points))
    last = max(step for step, _loss in points)
    axes = _Axes(x_low=0, x_high=last or 1, y_low=min(0.0, *(y for _x, y in points)), y_high=ticks[-1])
    parts = [_grid(axes, ticks), _x_labels(axes, [(x, f"{x:g}") for x in _ticks(0, last) if x <= last], "step")]
    parts += [_line(axes, list(t.losses), _style(t.workers, counts)) for t in drawn]
    return Plot(
        title="Training loss",
        note="Mean loss of the batches; it has to fall, and alike for every number of workers.",
        svg=_svg("".join(parts), "Training loss per step"),
        legend=tuple((_style(t.workers, counts), plural(t.workers, "worker")) for t in drawn),
    )


def accuracy_plot(trainings: Sequence[Training]) -> Plot | None:
    """Accuracy on unseen images."""
    counts = [t.workers for t in trainings]
    bars = [
        (plural(t.workers, "worker"), t.accuracy, percent(t.accuracy), _style(t.workers, counts))
        for t in trainings
        if t.accuracy is not None
    ]
    if not bars:
        return None
    return Plot(
        title="Accuracy",
        note="Share of images never seen in training that the trained network recognises.",
        svg=_bars(bars, mark=None, words="Accuracy"),
    )


def time_plot(parts: Sequence[tuple[str, float]]) -> Plot | None:
    """Where the seconds of the smoke test went."""
    spent = [(words, seconds) for words, seconds in parts if seconds > 0]
    if not spent:
        return None
    bars = [(words, seconds, f"{seconds:.1f} s", "s0") for words, seconds in spent]
    return Plot(
        title="Where the time went", note="Seconds in each part of the smoke test.", svg=_bars(bars, mark=None, words="Seconds")
    )


def _style(workers: int, counts: Sequence[int]) -> str:
    """The colour class of a number of workers: one worker is the grey yardstick in every plot, the others keep theirs."""
    several = sorted(n for n in set(counts) if n > 1)
    return "s0" if workers == 1 else f"s{several.index(workers) % 4 + 1}"


def _ticks(low: float, high: float, wanted: int = 5) -> list[float]:
    """Round numbers from ``low`` to at least ``high``."""
    span = high - low
    if not math.isfinite(span) or span <= 0:
        return [low, low + 1]
    rough = span / wanted
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999)
    count = math.ceil(span / step - 1e-9)
    return [low + step * place for place in range(count + 1)]


def _svg(body: str, words: str, height: float = _HEIGHT) -> str:
    spoken = escape(words)
    return (
        f'<svg viewBox="0 0 {_WIDTH:.0f} {height:.0f}" role="img" aria-label="{spoken}" xmlns="http://www.w3.org/2000/svg">'
        f"<title>{spoken}</title>{body}</svg>"
    )


def _grid(axes: _Axes, ticks: Sequence[float]) -> str:
    lines = []
    for tick in ticks:
        y = axes.y(tick)
        style = "axis" if tick == ticks[0] else "grid"
        lines.append(f'<line class="{style}" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        lines.append(_label(_LEFT - 8, y + 4, short(int(tick) if float(tick).is_integer() else tick), "tick end"))
    return "".join(lines)


def _x_labels(axes: _Axes, labels: Sequence[tuple[float, str]], title: str) -> str:
    words = "".join(_label(axes.x(place), _HEIGHT - _BOTTOM + 17, label, "tick middle") for place, label in labels)
    return words + _label((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 6, title, "tick middle")


def _line(axes: _Axes, points: Sequence[tuple[float, float]], style: str) -> str:
    path = " ".join(f"{axes.x(x):.1f},{axes.y(y):.1f}" for x, y in points)
    return f'<polyline class="line {style}" points="{path}"/>'


def _dot(axes: _Axes, x: float, y: float, style: str, words: str) -> str:
    return (
        f'<circle class="dot {style}" cx="{axes.x(x):.1f}" cy="{axes.y(y):.1f}" r="4"><title>{escape(words)}</title></circle>'
    )


def _whisker(axes: _Axes, x: float, low: float, high: float) -> str:
    place, top, bottom = axes.x(x), axes.y(high), axes.y(low)
    ends = "".join(f"M{place - 6:.1f} {end:.1f}h12" for end in (top, bottom))
    return f'<path class="whisker" d="M{place:.1f} {top:.1f}V{bottom:.1f}{ends}"/>'


def _label(x: float, y: float, words: str, style: str) -> str:
    return f'<text class="{style}" x="{x:.1f}" y="{y:.1f}">{escape(words)}</text>'


def _bars(bars: Sequence[tuple[str, float, str, str]], *, mark: float | None, words: str) -> str:
    """Horizontal bars: each its words above, its figure at the end; ``mark`` draws a line at that value."""
    longest = max([value for _words, value, _shown, _style in bars] + [mark or 0]) or 1
    room = _WIDTH - 76
    parts = []
    height = len(bars) * (_PITCH + 10) + 12
    for place, (label, value, shown, style) in enumerate(bars):
        top = place * (_PITCH + 10) + 22
        length = max(2.0, value / longest * room)
        parts.append(_label(2, top - 7, label, "bar-label"))
        parts.append(f'<rect class="track" x="0" y="{top:.0f}" width="{room:.0f}" height="{_BAR:.0f}" rx="3"/>')
        parts.append(f'<rect class="bar {style}" x="0" y="{top:.0f}" width="{length:.1f}" height="{_BAR:.0f}" rx="3"/>')
        parts.append(_label(room + 8, top + 13, shown, "value"))
    if mark is not None and mark < longest:
        x = mark / longest * room
        parts.append(f'<line class="ideal line" x1="{x:.1f}" x2="{x:.1f}" y1="8" y2="{height - 4:.0f}"/>')
    return _svg("".join(parts), f"{words}: " + ", ".join(f"{label} {shown}" for label, _value, shown, _style in bars), height)
