"""The facts of a report, as blocks of pairs (label, value), and the times of the parts of the smoke test."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from envbuild.report.values import mapping, mappings, number, plural, size, text

_UNITS = {"_bytes": " B", "_s": " s", "_ms": " ms", "_us": " µs", "_GBps": " GB/s", "_MBps": " MB/s"}


def fact_blocks(report: Mapping[str, Any]) -> tuple[tuple[str, tuple[tuple[str, str], ...]], ...]:
    """Return the facts of a report about environment, framework, image, data, devices, hosts and variables.

    Each block is (title, facts), and each fact is (label, value). Blocks without facts are left out.
    """
    blocks = [(title, mapping(report.get(key))) for title, key in (("Environment", "environment"), ("Framework", "framework"))]
    blocks += [(title, mapping(report.get(key))) for title, key in (("Image", "image"), ("Host", "host"))]
    sets = mappings(report.get("datasets")) or [mapping(report.get("data"))]
    blocks += [("Data" if len(sets) == 1 else f"Data of {text(item.get('workload'))}", item) for item in sets]
    devices = mappings(report.get("devices"))
    blocks += [(f"Device {text(item.get('index')) or place}", item) for place, item in enumerate(devices)]
    blocks += [(f"Host {text(item.get('name'))}", item) for item in mappings(report.get("hosts"))]
    blocks += [("Variables", mapping(report.get("variables")))]
    filled = ((title, tuple(_labelled(block))) for title, block in blocks)
    return tuple((title, rows) for title, rows in filled if rows)


def timing(report: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Return the seconds that each part of the smoke test took. The name ``2x_train_s`` becomes ``2 workers: train``."""
    parts = []
    for key, value in mapping(report.get("timing")).items():
        seconds = number(value)
        if seconds is not None:
            count, several, part = text(key).removesuffix("_s").partition("x_")
            words = f"{plural(int(count), 'worker')}: {part}" if several and count.isdecimal() else text(key).removesuffix("_s")
            parts.append((words.replace("_", " "), seconds))
    return parts


def _labelled(block: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    for key, value in block.items():
        shown = text(value)
        if not shown:
            continue
        unit = next((u for u in _UNITS if str(key).endswith(u)), "")
        amount = number(value)
        if unit == "_bytes" and amount is not None:
            shown = size(amount)
        elif unit and amount is not None:
            shown += _UNITS[unit]
        yield text(key).removesuffix(unit).replace("_", " "), shown
