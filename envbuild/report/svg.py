"""Draws small SVG pictures without scripts. Their colours and fonts come from the page's style sheet."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from envbuild.report.values import short

_WIDTH, _HEIGHT = 440.0, 260.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 52.0, 20.0, 16.0, 42.0
_BAR, _PITCH = 16.0, 30.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Plot:
    """A drawn plot with its title, one line on how to read it, and its legend as pairs (style class, words)."""

    title: str
    note: str
    svg: str
    legend: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Axes:
    """The ranges of a plot's axes, and the position of a value in the picture."""

    x_low: float
    x_high: float
    y_low: float
    y_high: float

    def x(self, value: float) -> float:
        """The distance from the left edge of the picture."""
        return _LEFT + (value - self.x_low) / ((self.x_high - self.x_low) or 1) * (_WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        """The distance from the upper edge of the picture."""
        return _HEIGHT - _BOTTOM - (value - self.y_low) / ((self.y_high - self.y_low) or 1) * (_HEIGHT - _TOP - _BOTTOM)


def ticks(low: float, high: float, wanted: int = 5) -> list[float]:
    """Return round numbers from ``low`` to at least ``high``, for the marks of an axis."""
    span = high - low
    if not math.isfinite(span) or span <= 0:
        return [low, low + 1]
    rough = span / wanted
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999)
    count = math.ceil(span / step - 1e-9)
    return [low + step * place for place in range(count + 1)]


def picture(body: str, words: str, height: float = _HEIGHT) -> str:
    """Return the whole drawing. ``words`` describes the picture for readers who cannot see it."""
    spoken = escape(words)
    return (
        f'<svg viewBox="0 0 {_WIDTH:.0f} {height:.0f}" role="img" aria-label="{spoken}" xmlns="http://www.w3.org/2000/svg">'
        f"<title>{spoken}</title>{body}</svg>"
    )


def figure(tick: float) -> str:
    """Format the number that stands beside a grid line."""
    return short(int(tick) if float(tick).is_integer() else tick)


def grid(axes: Axes, ticks: Sequence[float], shown: Callable[[float], str] = figure) -> str:
    """Draw horizontal lines with their values. The lowest line is the axis."""
    lines = []
    for tick in ticks:
        y = axes.y(tick)
        style = "axis" if tick == ticks[0] else "grid"
        lines.append(f'<line class="{style}" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        lines.append(label(_LEFT - 8, y + 4, shown(tick), "tick end"))
    return "".join(lines)


def x_labels(axes: Axes, labels: Sequence[tuple[float, str]], title: str) -> str:
    """Draw the values of the horizontal axis, and its title."""
    words = "".join(label(axes.x(place), _HEIGHT - _BOTTOM + 17, shown, "tick middle") for place, shown in labels)
    return words + label((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 6, title, "tick middle")


def line(axes: Axes, points: Sequence[tuple[float, float]], style: str) -> str:
    """Draw a line through the points."""
    path = " ".join(f"{axes.x(x):.1f},{axes.y(y):.1f}" for x, y in points)
    return f'<polyline class="line {style}" points="{path}"/>'


def dot(axes: Axes, x: float, y: float, style: str, words: str) -> str:
    """Draw one point, with its value as a tooltip."""
    return (
        f'<circle class="dot {style}" cx="{axes.x(x):.1f}" cy="{axes.y(y):.1f}" r="4"><title>{escape(words)}</title></circle>'
    )


def whisker(axes: Axes, x: float, low: float, high: float) -> str:
    """Draw a vertical line for a range of values, from ``low`` to ``high``."""
    place, top, bottom = axes.x(x), axes.y(high), axes.y(low)
    ends = "".join(f"M{place - 6:.1f} {end:.1f}h12" for end in (top, bottom))
    return f'<path class="whisker" d="M{place:.1f} {top:.1f}V{bottom:.1f}{ends}"/>'


def label(x: float, y: float, words: str, style: str) -> str:
    """Write text at a position in the picture."""
    return f'<text class="{style}" x="{x:.1f}" y="{y:.1f}">{escape(words)}</text>'


def bars(rows: Sequence[tuple[str, float, str, str]], *, mark: float | None, words: str) -> str:
    """Draw a chart of horizontal bars. Each bar has its name above it and its value at its end.

    If ``mark`` is given, a vertical line is drawn at that value.
    """
    longest = max([value for _words, value, _shown, _style in rows] + [mark or 0]) or 1
    room = _WIDTH - 76
    parts = []
    height = len(rows) * (_PITCH + 10) + 12
    for place, (name, value, shown, style) in enumerate(rows):
        top = place * (_PITCH + 10) + 22
        length = max(2.0, value / longest * room)
        parts.append(label(2, top - 7, name, "bar-label"))
        parts.append(f'<rect class="track" x="0" y="{top:.0f}" width="{room:.0f}" height="{_BAR:.0f}" rx="3"/>')
        parts.append(f'<rect class="bar {style}" x="0" y="{top:.0f}" width="{length:.1f}" height="{_BAR:.0f}" rx="3"/>')
        parts.append(label(room + 8, top + 13, shown, "value"))
    if mark is not None and mark < longest:
        x = mark / longest * room
        parts.append(f'<line class="ideal line" x1="{x:.1f}" x2="{x:.1f}" y1="8" y2="{height - 4:.0f}"/>')
    spoken = ", ".join(f"{name} {shown}" for name, _value, shown, _style in rows)
    return picture("".join(parts), f"{words}: {spoken}", height)
