"""The parts of a report about the exchange between workers: collectives, the links between GPUs, and other ways to train in
parallel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from envbuild.report.model import Collective, Scheme, Topology
from envbuild.report.values import ABSENT, items, mapping, mappings, number, percent, short, size, text, workers_of

HEADINGS = ("operation", "workers", "size", "time (µs)", "algorithm GB/s", "bus GB/s", "wrong elements")
SCHEME_HEADINGS = ("exchange", "workers", "speedup", "accuracy", "accuracy vs averaging", "replica distance", "steps ahead")


def collectives(report: Mapping[str, Any]) -> tuple[Collective, ...]:
    """Return the collective operations in the order of the report."""
    return tuple(map(_collective, mappings(report.get("collectives"))))


def _collective(item: Mapping[str, Any]) -> Collective:
    hosts = number(item.get("hosts"))
    return Collective(
        op=text(item.get("op")),
        type=text(item.get("type")),
        workers=workers_of(item),
        hosts=int(hosts) if hosts else 1,
        bytes=number(item.get("bytes")),
        time_us=number(item.get("time_us")),
        algorithm=number(item.get("algbw_GBps")),
        bus=number(item.get("busbw_GBps")),
        nominal=number(item.get("nominal_GBps")),
        wrong=text(item.get("wrong")),
    )


def named(each: Collective) -> str:
    """Name an operation: ``allreduce float32, 2 hosts``."""
    where = f", {each.hosts} hosts" if each.hosts > 1 else ""
    return f"{' '.join(filter(None, (each.op, each.type)))}{where}"


def collective_cells(found: tuple[Collective, ...]) -> list[tuple[str, ...]]:
    """Return the rows of the table of collectives; its column titles are :data:`HEADINGS`."""
    return [
        (
            named(each),
            text(each.workers),
            size(each.bytes) if each.bytes is not None else ABSENT,
            short(each.time_us),
            _rate(each.algorithm),
            _rate(each.bus) + (f" of {_rate(each.nominal)}" if each.nominal else ""),
            each.wrong,
        )
        for each in found
    ]


def _rate(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.3g}"


def schemes(report: Mapping[str, Any]) -> tuple[Scheme, ...]:
    """Return the ways to train in parallel, in the order of the report."""
    return tuple(map(_scheme, mappings(report.get("schemes"))))


def _scheme(item: Mapping[str, Any]) -> Scheme:
    gain = mapping(mapping(item.get("run")).get("speedup"))
    middle, low, high = (number(gain.get(key)) for key in ("median", "lo", "hi"))
    bounds = f" [{low:.2f}, {high:.2f}]" if low is not None and high is not None else ""
    change = number(item.get("accuracy_difference"))
    ahead = mapping(item.get("staleness"))
    return Scheme(
        sync=text(item.get("sync")),
        workload=text(item.get("workload")),
        workers=workers_of(item),
        speedup=ABSENT if middle is None else f"{middle:.2f}{bounds}",
        accuracy=number(mapping(item.get("training")).get("accuracy")),
        change=None if change is None else 100 * change,
        distance=number(item.get("distance")),
        staleness=f"{text(ahead.get('largest'))} of {text(ahead.get('bound'))}" if ahead else ABSENT,
    )


def scheme_cells(found: tuple[Scheme, ...]) -> list[tuple[str, ...]]:
    """Return the rows of the table of schemes; its column titles are :data:`SCHEME_HEADINGS`."""
    return [
        (
            " · ".join(filter(None, (each.sync, each.workload))),
            text(each.workers),
            each.speedup,
            percent(each.accuracy),
            ABSENT if each.change is None else f"{each.change:+.1f} points",
            ABSENT if each.distance is None else f"{each.distance:.1e}",
            each.staleness,
        )
        for each in found
    ]


def topology(report: Mapping[str, Any]) -> Topology | None:
    """Return the links between the GPUs; None if there are fewer than two GPUs, or nothing is known about their links."""
    told, link = mapping(report.get("topology")), mapping(report.get("link"))
    names = {text(item.get("index")): text(item.get("name")) for item in mappings(report.get("devices"))}
    gpus = [text(each) for each in items(told.get("gpus"))]
    links = [tuple(map(text, items(row))) for row in items(told.get("links"))]
    if len(gpus) < 2 or len(links) != len(gpus) or any(len(row) != len(gpus) for row in links):
        return None
    rate = number(link.get("GBps"))
    return Topology(
        gpus=tuple(f"GPU {each} {names.get(each, '')}".strip() for each in gpus),
        links=tuple(links),
        link=f"{text(link.get('name'))}, {short(rate)} GB/s" if link and rate is not None else "",
    )
