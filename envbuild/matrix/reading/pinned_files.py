"""Read the files that a row pins, for machines that cannot reach the index. A public document states the hash of each file."""

from __future__ import annotations

from envbuild.matrix.reading.context import Context, minor
from envbuild.matrix.types import PinnedWheel
from envbuild.yaml_reader import Table

_WHEEL = r"[A-Za-z0-9._]+-(?P<version>[A-Za-z0-9.!+_]+)(-\d[A-Za-z0-9_]*)?-[A-Za-z0-9._]+-[A-Za-z0-9._]+-[A-Za-z0-9._]+\.whl"


def pinned_files(context: Context, table: Table) -> tuple[PinnedWheel, ...]:
    """Read ``files`` of a variant, in order. Each file has its own source, which states the hash."""
    found = []
    for row in table.tables("files"):
        pinned = PinnedWheel(
            filename=row.text("name", pattern=_WHEEL),
            python=minor(row, "python"),
            sha256=row.text("sha256", pattern=r"[0-9a-f]{64}"),
            requires=row.texts("requires"),
            source=context.document(row, "source", ""),
        )
        if not pinned.source:
            row.problem("a pinned file needs a `source`: the document that gives its hash")
        row.finish()
        found.append(pinned)
    return tuple(found)
