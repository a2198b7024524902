"""The plot of bandwidth against message size."""

from __future__ import annotations

import math
from collections.abc import Sequence

from envbuild.report import svg
from envbuild.report.exchange import named
from envbuild.report.model import Collective
from envbuild.report.svg import Plot
from envbuild.report.values import plural, size

_MOST_LINES = 4


def bandwidth_plot(found: Sequence[Collective]) -> Plot | None:
    """Plot the bus bandwidth of the all-reduce against the message size, with the link's nominal rate if it is known.

    Both axes are logarithmic. There is one line for each combination of a number of workers and a data type. Only the first
    four lines are drawn.
    """
    lines: dict[tuple[int, str], list[tuple[float, float]]] = {}
    for each in found:
        if each.op == "allreduce" and each.bytes and each.bus and each.workers:
            lines.setdefault((each.workers, named(each)), []).append((math.log2(each.bytes), math.log10(each.bus)))
    drawn = [(key, sorted(points)) for key, points in sorted(lines.items()) if len(points) > 1][:_MOST_LINES]
    if not drawn:
        return None
    points = [point for _key, line in drawn for point in line]
    nominal = max((each.nominal for each in found if each.nominal), default=None)
    tops = [y for _x, y in points] + ([math.log10(nominal)] if nominal else [])
    left, right = min(x for x, _y in points), max(x for x, _y in points)
    ticks = [float(power) for power in range(math.floor(min(tops)), math.ceil(max(tops)) + 1)]
    ticks = ticks if len(ticks) > 1 else [ticks[0], ticks[0] + 1]
    axes = svg.Axes(x_low=left, x_high=right, y_low=ticks[0], y_high=ticks[-1])
    sizes = sorted({x for x, _y in points})
    shown = [x for place, x in enumerate(sizes) if place % max(1, math.ceil(len(sizes) / 5)) == 0]
    parts = [svg.grid(axes, ticks, lambda tick: f"{10**tick:g}")]
    parts.append(svg.x_labels(axes, [(x, size(2**x)) for x in shown], "message size"))
    if nominal:
        parts.append(svg.line(axes, [(left, math.log10(nominal)), (right, math.log10(nominal))], "ideal"))
    for place, (_key, line) in enumerate(drawn, 1):
        parts.append(svg.line(axes, line, f"s{place}"))
        parts += [svg.dot(axes, x, y, f"s{place}", f"{size(2**x)}: {10**y:.3g} GB/s") for x, y in line]
    legend = [(f"s{place}", f"{plural(key[0], 'worker')}, {key[1]}") for place, (key, _line) in enumerate(drawn, 1)]
    legend += [("ideal", f"the link's nominal {nominal:g} GB/s")] if nominal else []
    return Plot(
        title="All-reduce bandwidth",
        note="Bus bandwidth in GB/s (10⁹ bytes) by message size. Latency limits small messages, the link limits large ones.",
        svg=svg.picture("".join(parts), "All-reduce bus bandwidth by message size"),
        legend=tuple(legend),
    )
