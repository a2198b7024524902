"""Reads raw JSON values of a report without raising errors, and formats numbers for display."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

ABSENT = "\N{EN DASH}"
MOST_DIGITS = 6  # decimal places of a percentage


def number(value: Any) -> float | None:
    """Return ``value`` as a finite float, or None if it is not a number. True and false are not numbers."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        result = float(value)
    except OverflowError:
        return None
    return result if math.isfinite(result) else None


def text(value: Any) -> str:
    """Format ``value`` for people: None gives an empty text, the items of lists are joined, and numbers are shortened."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return short(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {text(item)}" for key, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(filter(None, map(text, value)))
    return str(value).encode("utf-8", "replace").decode()  # JSON text can contain half a surrogate pair, UTF-8 cannot


def short(value: float | None) -> str:
    """Format a number: small numbers get three significant figures, large numbers get separated thousands. Anything but a
    number gives a dash."""
    finite = number(value)
    if finite is None:
        return ABSENT
    if isinstance(value, int) and abs(finite) < 1e15:
        return f"{value:,}"
    size = abs(finite)
    if size >= 1e9 or 0 < size < 1e-3:
        return f"{finite:.1e}".replace("e-0", "e-").replace("e+0", "e")
    if size >= 100:
        return f"{finite:,.0f}"
    return f"{finite:.3g}"


def percent(value: float | None, digits: int = 1) -> str:
    """Format a share as a percentage. Anything but a number gives a dash. A share below one is never shown as 100 %: it gets
    more digits instead (0.9999 gives 99.99 %)."""
    if value is None:
        return ABSENT
    while value < 1 and digits < MOST_DIGITS and round(100 * value, digits) >= 100:
        digits += 1
    return f"{100 * value:.{digits}f} %"


def duration(seconds: float | None) -> str:
    """Format a duration, such as ``22 s`` or ``3 min 05 s``. Anything but a number gives a dash."""
    if seconds is None or seconds < 0:
        return ABSENT
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s"


def plural(count: int, word: str) -> str:
    """Return ``count`` and ``word``, which gets an "s" unless ``count`` is 1: ``1 worker``, ``2 workers``."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def with_unit(value: Any, unit: str) -> str:
    """Return ``value`` with its unit. Units such as ``ratio`` are left out, because they say nothing to the reader."""
    if isinstance(value, float) and number(value) is None:
        return "not a number"
    if unit in ("B", "bytes") and number(value) is not None:
        return size(value)
    if unit == "fraction" and number(value) is not None:
        return percent(number(value))
    shown = text(value)
    return f"{shown} {unit}" if shown and unit not in ("", "relative", "share", "ratio", "1") else shown


def mapping(value: Any) -> Mapping[str, Any]:
    """Return ``value`` if it is a JSON object, else an empty object."""
    return value if isinstance(value, Mapping) else {}


def items(value: Any) -> Iterable[Any]:
    """Return ``value`` if it is a list, else an empty list."""
    return value if isinstance(value, list | tuple) else ()


def mappings(value: Any) -> list[Mapping[str, Any]]:
    """Return the JSON objects in the list ``value``."""
    return [item for item in items(value) if isinstance(item, Mapping)]


def size(amount: float) -> str:
    """Format a number of bytes in units of powers of 1000, such as ``25.3 GB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(amount) < 1000:
            return f"{amount:.3g} {unit}"
        amount /= 1000
    return f"{amount:.3g} TB"


def workers_of(item: Mapping[str, Any]) -> int | None:
    """The number of workers that a check, run or training is about, if it names one."""
    count = number(item.get("n"))
    return int(count) if count is not None and 1 <= count <= 1_000_000 else None
