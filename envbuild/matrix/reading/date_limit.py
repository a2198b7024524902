"""Decide the date limit of a release: the last day of the packages that its environments may contain."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence

from envbuild.matrix.reading.context import date
from envbuild.yaml_reader import Table


def date_limit(
    row: Table, levels: Sequence[Table], released: str, *, checked: str, margin_days: int, of_bases: Iterable[str]
) -> str:
    """Return the date limit of a release: the field ``exclude_newer`` of its row, or the release date plus a margin.

    ``levels`` are the tables in which a row can set its own margin, the most specific last; ``margin_days`` is the margin
    without one. The limit is at most ``checked``, the day when the row was checked: if it were in the future, a lock of the
    newest releases could change every day. The limit of an add-on is at least that of each of its base releases,
    ``of_bases``. It is empty if ``released`` is not a date, which was then already reported as a problem.
    """
    own = date(row, "exclude_newer", "", whole=True)
    for level in levels:
        margin_days = level.integer("margin_days", margin_days)
    return own or max([_bound(released, checked, margin_days), *of_bases])


def _bound(released: str, checked: str, margin_days: int) -> str:
    try:
        bound = (datetime.date.fromisoformat(released) + datetime.timedelta(days=margin_days)).isoformat()
    except ValueError:
        return ""
    return max(released, min(bound, checked)) if len(checked) == len(bound) else bound
