"""Two reports side by side: the same image on two hosts, or two images on one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from envbuild.report.shapes import Check, Group, Row, View
from envbuild.report.values import percent, plural, short
from envbuild.report.view import speedup, view


def compare(a: Mapping[str, Any], b: Mapping[str, Any]) -> str:
    """Plain text: verdicts, figures per number of workers, checks whose result changed, facts that differ.

    Two speedups are called different only where their intervals do not overlap.
    """
    first, second = view(a), view(b)
    lines = [f"A  {first.verdict.upper():13} {first.name}", f"B  {second.verdict.upper():13} {second.name}", ""]
    others = {group.title: group for group in second.groups}
    for group in first.groups:
        if group.title in others:
            lines += [group.title, *_rows(group, others[group.title]), ""]
        else:
            lines += [f"{group.title}: only in A", ""]
    lines += [f"{title}: only in B" for title in others.keys() - {group.title for group in first.groups}]
    lines += _block("frameworks", _parts(first, second)) if first.parts or second.parts else []
    return (
        "\n".join([*lines, *_block("checks", _checks(first, second)), *_block("facts", _facts(first, second))]).rstrip() + "\n"
    )


def _rows(a: Group, b: Group) -> list[str]:
    others = {row.workers: row for row in b.rows}
    lines = []
    for row in a.rows:
        other = others.get(row.workers)
        if other is None:
            lines.append(f"  {plural(row.workers, 'worker')}: only in A")
            continue
        lines.append(f"  {plural(row.workers, 'worker')}")
        change = _change(row.images_per_s, other.images_per_s)
        lines.append(f"    images/s  {short(row.images_per_s):>9} → {short(other.images_per_s):>9}  {change}")
        if row.workers > 1:
            lines.append(f"    speedup   {speedup(row)} → {speedup(other)}  {_overlap(row, other)}")
        lines.append(f"    accuracy  {percent(row.accuracy):>9} → {percent(other.accuracy):>9}")
    return [*lines, *(f"  {plural(n, 'worker')}: only in B" for n in others.keys() - {row.workers for row in a.rows})]


def _change(a: float | None, b: float | None) -> str:
    return "" if not a or b is None else f"{100 * (b / a - 1):+.1f} %"


def _overlap(a: Row, b: Row) -> str:
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return "(no interval: not judged)"
    if a.low <= b.high and b.low <= a.high:
        return "(within the noise)"
    return "(B is better)" if b.low > a.high else "(B is worse)"


def _parts(a: View, b: View) -> list[str]:
    before, after = ({part.title: part.status for part in seen.parts} for seen in (a, b))
    return [
        f"{title}: {before.get(title, 'absent')} → {after.get(title, 'absent')}"
        for title in dict.fromkeys([*before, *after])
        if before.get(title) != after.get(title)
    ]


def _checks(a: View, b: View) -> list[str]:
    before, after = _by_check(a), _by_check(b)
    lines = []
    for key in dict.fromkeys([*before, *after]):
        old, new = before.get(key), after.get(key)
        if (old and old.status) != (new and new.status):
            about = f" ({plural(key[1], 'worker')})" if key[1] else ""
            lines.append(f"{key[0]}{about}: {old.status if old else 'absent'} → {new.status if new else 'absent'}")
            if new and new.status in ("fail", "error", "inconclusive", "warn"):
                lines.append(f"  {new.message}")
    return lines


def _by_check(seen: View) -> dict[tuple[str, int | None], Check]:
    return {(check.id, check.workers): check for check in reversed(seen.checks) if check.id != "PART"}


def _facts(a: View, b: View) -> list[str]:
    before, after = _by_fact(a), _by_fact(b)
    keys = dict.fromkeys([*before, *after])
    return [
        f"{title} {label}: {before.get((title, label), 'absent')} → {after.get((title, label), 'absent')}"
        for title, label in keys
        if before.get((title, label)) != after.get((title, label))
    ]


def _by_fact(seen: View) -> dict[tuple[str, str], str]:
    return {(title, label): value for title, rows in seen.facts for label, value in rows}


def _block(title: str, lines: list[str]) -> list[str]:
    return [f"{title} that differ", *(f"  {line}" for line in lines), ""] if lines else [f"{title}: the same", ""]
