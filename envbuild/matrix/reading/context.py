"""The state that all table readers share: the problems found, the known sources, and the provenance of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from envbuild.errors import Problem
from envbuild.matrix.platform import PackageSet, Provenance, WheelSet
from envbuild.matrix.types import Requirement
from envbuild.matrix.versions import MINOR, NUMBERS, SPECIFIER, numbers
from envbuild.yaml_reader import Table

T = TypeVar("T")

STATUSES = ("ok", "known-bad", "unknown", "base-deleted", "end-of-life")
URL = r"https?://\S+"
DOCUMENT = r"(https?://|pkg:)\S+"
NAME = r"[A-Za-z0-9][A-Za-z0-9._+-]*"
YEARS = range(2007, 2100)  # nothing in the matrix is older than CUDA 1.0, released in 2007
NOTHING = Provenance(sources=(), checked="", status="ok", note="", fields=(), at="")


class Context:
    """The problems found so far, and facts that the readers of later rows need. ``sources`` maps the ids of sources, from all
    files, to addresses. ``overlays`` are the files whose rows replace rows of earlier files.

    ``pythons`` are the Python versions that have a row; the versions are known only after these rows have been read.
    ``wheel_sets`` and ``package_sets`` are the rows of these tables, by name.
    """

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.sources: dict[str, str] = {}
        self.overlays: set[str] = set()
        self.pythons: set[str] = set()
        self.wheel_sets: dict[str, WheelSet] = {}
        self.package_sets: dict[str, PackageSet] = {}

    def define_sources(self, table: Table) -> None:
        """Read a file's ``sources``. The ids of sources are global: two files must not define the same id differently."""
        for name, source in table.named_tables("sources"):
            source.text("title")
            url = source.text("url", pattern=DOCUMENT)
            if self.sources.get(name, url) != url and table.where not in self.overlays:
                source.problem(f"the source {name} is defined twice with different addresses")
            self.sources[name] = url
            source.finish()

    def origin(self, table: Table, parent: Provenance, *, inherit_note: bool = False) -> Provenance:
        """Return the provenance of a row. The row's own keys override inherited values. With ``inherit_note``, the note of
        ``parent`` is inherited, too. A row without a source is a problem."""
        status = table.choice("status", STATUSES, parent.status)
        handed_down = inherit_note or (
            status == "known-bad" and "status" not in table
        )  # a row with its own status does not inherit the note
        note = table.text("note", parent.note if handed_down else "")
        fields = table.table("field_source")
        own = {} if fields is None else {key: self._documents(fields, key) for key in fields.keys()}  # noqa: SIM118
        handed = {} if "source" in table else {key: sources for key, sources in parent.fields if key not in own}
        found = Provenance(
            sources=self._documents(table, "source") or parent.sources,
            checked=date(table, "checked", parent.checked),
            status=status,
            note=note,
            fields=tuple((own | handed).items()),
            at=f"{table.where}:{table.line}",
        )
        above = bool(parent.at)  # the row is part of another row, which already reported what is missing
        if not found.sources and not above:
            table.problem("the row has no source: name a document under `source`")
        if not found.checked and not above:
            table.problem("the row does not say when it was checked: write the day under `checked`")
        if status == "known-bad" and not note:
            table.problem("a row with the status known-bad needs a `note` with the reason", "status")
        return found

    def defaults(self, table: Table) -> Provenance:
        """Return the provenance in a file's ``defaults``, which the rows of the file inherit."""
        found = table.table("defaults")
        if found is None:
            return NOTHING
        origin = Provenance(
            sources=self._documents(found, "source"),
            checked=date(found, "checked", ""),
            status=found.choice("status", STATUSES, "ok"),
            note="",
            fields=(),
            at="",
        )
        found.finish()
        return origin

    def document(self, table: Table, key: str, inherited: str = "") -> str:
        """Read an optional source: the id of a source, a URL or a purl."""
        found = self._documents(table, key)
        return found[0] if found else inherited

    def _documents(self, table: Table, key: str) -> tuple[str, ...]:
        found: list[str] = []
        for text in table.texts(key, one=True):
            if text.startswith(("https://", "http://", "pkg:")):
                found.append(text)
            elif text in self.sources:
                found.append(self.sources[text])
            else:
                table.problem(f"unknown source {text!r}: write a name from `sources`, a URL, or a package URL (pkg:…)", key)
        return tuple(found)


def version(table: Table, key: str, default: str | None = None) -> str:
    """A version of dotted numbers."""
    return table.text(key, default, pattern=NUMBERS)


def minor(table: Table, key: str, default: str | None = None) -> str:
    """A version of two numbers."""
    return table.text(key, default, pattern=MINOR)


def minors(table: Table, key: str, *, required: bool = False) -> tuple[str, ...]:
    """A list of versions of two numbers."""
    return table.texts(key, required=required, pattern=MINOR)


def date(table: Table, key: str, default: str | None = None, *, whole: bool = False) -> str:
    """Read a date in the allowed years. With ``whole``, a date without a day is refused."""
    found = table.date(key, default)
    if found and int(found[:4]) not in YEARS:
        table.problem(f"the year of {found} is not between {YEARS[0]} and {YEARS[-1]}", key)
    elif whole and found and len(found) < len("2018-11-05"):
        table.problem(f"{found!r} is not a full date: write it as 2018-11-05", key)
    else:
        return found
    return default or ""


def requirement_list(context: Context, table: Table, key: str, source: str) -> tuple[Requirement, ...]:
    """Read a list of requirements: PEP 508 strings, or mappings that limit such a string to some Pythons."""

    def checked(text: str, where: Table, name: str) -> str:
        from packaging import requirements

        try:
            requirements.Requirement(text)
        except requirements.InvalidRequirement:
            if text:  # a missing text is already reported as a problem
                where.problem(f"{text!r} is not a requirement: write it as name>=1.2,<2", name)
        return text

    def from_table(item: Table) -> Requirement:
        found = Requirement(
            requirement=checked(item.text("requirement", pattern=r"\S.*"), item, "requirement"),
            python=item.text("python", "", pattern=SPECIFIER),
            source=context.document(item, "source", source),
        )
        item.finish()
        return found

    return table.mixed(
        key, lambda text: Requirement(requirement=checked(text, table, key), python="", source=source), from_table
    )


def descending(rows: Iterable[T], key: Callable[[T], str]) -> tuple[T, ...]:
    """Sort rows by a version of dotted numbers, newest first. Rows with an invalid version come last."""
    return tuple(sorted(rows, key=lambda row: numbers(key(row) or "0"), reverse=True))


def unique(context: Context, rows: Iterable[tuple[str, Table, T]]) -> list[T]:
    """Return one row for each name. A repeated name is a problem, except in an overlay: a row of an overlay replaces the row of
    an earlier file."""
    found: dict[str, tuple[Table, T]] = {}
    for name, table, row in rows:
        first = found[name][0] if name in found else None
        if first is not None and (first.where == table.where or table.where not in context.overlays):
            table.problem(f"{name} is defined twice; the first definition is in {first.where}:{first.line}")
        found[name] = (table, row)
    return [row for _, row in found.values()]
