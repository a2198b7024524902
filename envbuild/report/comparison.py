"""Compares two reports, for example of one image on two hosts, or of two images on one host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from envbuild.report.model import Check, Group, View
from envbuild.report.regression import Figure, find_regression, word
from envbuild.report.values import percent, plural, short
from envbuild.report.view import speedup, view


def compare(a: Mapping[str, Any], b: Mapping[str, Any]) -> str:
    """Return plain text with the verdicts, the figures for each number of workers, checks whose result changed, and facts that
    differ.

    The rule for figures is the same as in the guest (`envbuild-smoke diff`). If the intervals of two figures overlap, the
    difference is noise. If the medians differ by at most a tenth, the difference is too small to matter. Otherwise B is better
    or worse.
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
    lines += [*_block("checks", _checks(first, second)), *_block("facts", _facts(first, second)), *_verdict(a, b)]
    return "\n".join(lines).rstrip() + "\n"


def _verdict(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    found = find_regression(a, b)
    answer = {"worse": "B is worse", "open": "nothing is proved about B", "not worse": "B is not worse"}[found.standing]
    return [f"verdict: {answer}", *(f"  {reason}" for reason in found.reasons)]


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
        word = _word((row.images_per_s, row.slowest, row.fastest), (other.images_per_s, other.slowest, other.fastest))
        lines.append(f"    images/s  {short(row.images_per_s):>9} → {short(other.images_per_s):>9}  {change}  {word}".rstrip())
        if row.workers > 1:
            word = _word((row.speedup, row.low, row.high), (other.speedup, other.low, other.high))
            lines.append(f"    speedup   {speedup(row)} → {speedup(other)}  {word}")
        lines.append(f"    accuracy  {percent(row.accuracy):>9} → {percent(other.accuracy):>9}")
    return [*lines, *(f"  {plural(n, 'worker')}: only in B" for n in others.keys() - {row.workers for row in a.rows})]


def _change(a: float | None, b: float | None) -> str:
    return "" if not a or b is None else f"{100 * (b / a - 1):+.1f} %"


def _word(old: Figure, new: Figure) -> str:
    said = word(old, new)
    return f"(B is {said})" if said in ("better", "worse") else f"({said})"


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
            about = ", ".join(filter(None, (key[2], plural(key[1], "worker") if key[1] else "")))
            about = f" ({about})" if about else ""
            lines.append(f"{key[0]}{about}: {old.status if old else 'absent'} → {new.status if new else 'absent'}")
            if new and new.status in ("fail", "error", "inconclusive", "warn"):
                lines.append(f"  {new.message}")
    return lines


def _by_check(seen: View) -> dict[tuple[str, int | None, str], Check]:
    return {(check.id, check.workers, check.workload): check for check in reversed(seen.checks) if check.id != "PART"}


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
