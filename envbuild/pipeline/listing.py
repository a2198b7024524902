"""The list of everything, found once for a matrix and kept: it is the first thing that people ask, and the longest answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from envbuild import kept
from envbuild.pipeline.tools import Tools

_RESOLVER = Path(__file__).parent.parent / "resolve"


def doubts(tools: Tools, filters: Mapping[str, Any]) -> list[str]:
    """What could not be checked of the filters."""
    from envbuild import resolve

    return resolve.doubts(tools.matrix, resolve.Filters(**filters))


def catalogue(tools: Tools, **filters: Any) -> Sequence[dict[str, Any]]:
    """The rows of :func:`envbuild.resolve.catalogue` as ``list --json`` shows them; ``filters`` are the fields of its filters.

    Without any filter they are read from the copy that an earlier run kept. Raises what that function raises.
    """
    if any(filters.values()):
        return _rows(tools, filters)
    path = tools.workspace.list_cache / f"{tools.matrix.fingerprint}.json"
    program = kept.program(_RESOLVER)
    known = kept.recall(path, program)
    if known is not None:
        return [dict(zip(known.about, values, strict=True)) for values in known.part(0)]
    rows = _rows(tools, filters)
    if rows:
        kept.keep(path, program, [[list(row.values()) for row in rows]], list(rows[0]))
    return rows


def _rows(tools: Tools, filters: Mapping[str, Any]) -> list[dict[str, Any]]:
    from envbuild import codec, resolve

    return [codec.encode(row) for row in resolve.catalogue(tools.matrix, resolve.Filters(**filters))]
