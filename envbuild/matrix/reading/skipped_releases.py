"""Read which published releases have no row on purpose."""

from __future__ import annotations

from envbuild.matrix.platform import Provenance
from envbuild.matrix.reading.context import Context
from envbuild.matrix.skipped_releases import PRERELEASES
from envbuild.matrix.types import LeftOut
from envbuild.yaml_reader import Table


def left_out(context: Context, file: Table, defaults: Provenance) -> tuple[LeftOut, ...]:
    """Read a file's ``left_out``; in a file without a framework, ``left_out`` applies to all frameworks."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    found = []
    for table in file.tables("left_out"):
        releases = table.texts("releases", required=True)
        for text in releases:
            try:
                if text != PRERELEASES:
                    SpecifierSet(text)
            except InvalidSpecifier:
                table.problem(f"{text!r} is not a condition on versions: write it as <1.4, or write {PRERELEASES}", "releases")
        origin = context.origin(table, defaults)
        if not origin.note:
            table.problem("an entry of `left_out` needs a `note` with the reason")
        found.append(LeftOut(releases=releases, origin=origin))
        table.finish()
    return tuple(found)
