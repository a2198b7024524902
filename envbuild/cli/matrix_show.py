"""``envbuild matrix show``: show a table of the matrix, or one row with its sources and compatible rows."""

from __future__ import annotations

import textwrap
from functools import partial
from typing import Any

import click

from envbuild.cli import options, wording
from envbuild.cli.session import Session
from envbuild.model.progress import counted

_WIDE = 100


@click.command("show")
@click.argument("table", required=False)
@click.argument("row", required=False)
@options.common
@click.pass_obj
def command(session: Session, /, table: str | None, row: str | None) -> int:
    """Show all tables of the matrix, the rows of one TABLE, or one ROW with its fields, its sources and its compatible
    rows.

    Name a row as in a request, for example `gpus "GTX 1080 Ti"`, `drivers 470`, `cuda 10.1.243` or `cudnn 7.6.5`.
    """
    from envbuild.matrix import queries
    from envbuild.resolve.build_list import newest_environments

    facts = session.tools().matrix
    if table is None:
        counts = {name: len(kind.rows(facts)) for name, kind in queries.TABLES.items()}
        session.document({"schema": 1, "tables": counts})
        session.out(wording.columns([[name, counted(count, "row")] for name, count in counts.items()]))
        return 0
    name = queries.find_table(table)
    if row is None:
        rows = queries.listing(facts, name)
        session.document({"schema": 1, "table": name, "rows": rows})
        session.out(_list(queries.TABLES[name].columns, rows))
        return 0
    found = queries.find_row(facts, name, row)
    value, goes = queries.row_json(found), queries.related(facts, found, partial(newest_environments, facts))
    session.document({"schema": 1, "table": name, "row": value, "goes_with": goes})
    session.out(_one(value, goes))
    return 0


def _list(columns: tuple[str, ...], rows: list[dict[str, Any]]) -> str:
    shown = (*columns, "status")
    head = [column.upper().replace("_", " ") for column in shown]
    return wording.columns(
        [head, *([_text(row["origin"]["status"] if key == "status" else row[key]) for key in shown] for row in rows)]
    )


def _one(value: dict[str, Any], goes: dict[str, Any]) -> str:
    origin = value["origin"]
    lines = [line for key, item in value.items() if key != "origin" for line in _field(key, item, whole=True)]
    lines += [["status", origin["status"]], *([["note", origin["note"]]] if origin["note"] else [])]
    lines += [
        ["checked", origin["checked"]],
        *(["source" if not number else "", url] for number, url in enumerate(origin["sources"])),
    ]
    lines += [[f"source of {key}", ", ".join(urls)] for key, urls in origin["fields"]]
    lines.append(["defined in", origin["at"]])
    text = wording.columns(lines)
    with_it = [line for key, item in goes.items() for line in _field(key, item)]
    return f"{text}\n\nsuitable for this row\n{wording.columns(with_it, indent='  ')}" if with_it else text


def _field(key: str, item: Any, *, whole: bool = False) -> list[list[str]]:
    """Format a field of a row as lines.

    A list of rows gets a line for each row. A mapping gets a line for each key. An empty value gets no line. With ``whole``, a
    list of texts is shown in full, on as many lines as it needs.
    """
    name = key.replace("_", " ")
    if item is None or item in ("", [], {}):
        return []
    if isinstance(item, dict):
        return [[name if not number else "", f"{inner}: {_text(part)}"] for number, (inner, part) in enumerate(item.items())]
    if isinstance(item, list) and isinstance(item[0], dict):
        return [[name if not number else "", _short(part)] for number, part in enumerate(item)]
    if whole and isinstance(item, list):
        texts = textwrap.wrap(", ".join(str(part) for part in item), _WIDE, break_long_words=False, break_on_hyphens=False)
        return [[name if not number else "", text] for number, text in enumerate(texts)]
    return [[name, _text(item)]]


def _short(value: dict[str, Any]) -> str:
    """Format a nested row on one line: its plain fields, the names of the rows that it contains, and its note.

    The status is included if it is not ``ok``.
    """
    parts = [f"{key.replace('_', ' ')} {text}" for key, item in value.items() if (text := _nested(item))]
    origin = value.get("origin", {})
    status, note = origin.get("status", "ok"), origin.get("note")
    return ", ".join([*parts, *([status] if status != "ok" else []), *([note] if note else [])])


def _nested(item: Any) -> str:
    """Format a field of a nested row; the text is empty if the field has no short form."""
    if isinstance(item, list) and all(isinstance(part, str) for part in item):
        return _enumeration(item) if item else ""
    if isinstance(item, dict):
        return str(item.get("name") or item.get("requirement", ""))
    return str(item) if isinstance(item, str | int) and item not in ("", False) else ""


def _text(value: Any) -> str:
    if isinstance(value, list):
        return _enumeration([str(item) for item in value])
    if isinstance(value, bool):
        return "yes" if value else "-"
    if isinstance(value, float):
        return f"{value:g}" if value < 1e6 else f"{value:.0f}"
    return "-" if value in (None, "") else str(value)


def _enumeration(items: list[str]) -> str:
    """Return as many ``items`` as fit on a line. If some are left out, add the total number; ``--json`` shows all items."""
    fitting = 0
    while fitting < len(items) and len(", ".join(items[: fitting + 1])) <= _WIDE:
        fitting += 1
    return ", ".join(items) if fitting == len(items) else f"{', '.join(items[: max(fitting, 1)])} … ({len(items)})"
