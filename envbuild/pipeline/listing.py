"""``list``: lists all environments of the matrix. The unfiltered list is cached, because it takes longest to compute."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from envbuild import disk_cache
from envbuild.errors import InvalidInputError
from envbuild.pipeline.tools import Tools

_PROGRAM = [Path(__file__).parent.parent / room for room in ("resolve", "matrix")]


def doubts(tools: Tools, filters: Mapping[str, Any]) -> list[str]:
    """Return a warning for each filter whose value could not be checked."""
    from envbuild.resolve.build_list import Filters, doubts

    return doubts(tools.matrix, Filters(**filters))


def list_builds(tools: Tools, **filters: Any) -> Sequence[dict[str, Any]]:
    """Return the rows of ``envbuild.resolve.build_list.list_builds`` in the form of ``list --json``.

    ``filters`` are fields of ``Filters``. Without filters, the rows come from a cached copy if there is one. Raises the errors
    of ``envbuild.resolve.build_list.list_builds``.
    """
    if any(filters.values()):
        return _rows(tools, filters)
    path = tools.workspace.list_cache / f"{_fingerprint(tools)}.json"
    program = disk_cache.program(*_PROGRAM)
    known = disk_cache.recall(path, program)
    if known is not None:
        with contextlib.suppress(ValueError):  # a damaged copy is ignored, and the rows are made again
            return [dict(zip(known.about, values, strict=True)) for values in known.part(0)]
    rows = _rows(tools, filters)
    if rows:
        disk_cache.keep(path, program, [[list(row.values()) for row in rows]], list(rows[0]))
    return rows


def _fingerprint(tools: Tools) -> str:
    """Return the fingerprint of the matrix.

    The rows are read for it only if there is a policy, because the rules of a policy may change rows.
    """
    if tools.workspace.policy is not None:
        return tools.matrix.fingerprint
    from envbuild.matrix.cache import fingerprint

    return fingerprint(tools.workspace)


def list_stacks(tools: Tools) -> list[dict[str, Any]]:
    """Return all stacks, in the form of ``list --json``."""
    from envbuild import stacks

    return [
        {
            "name": stack.name,
            "title": stack.title,
            "frameworks": [member.request for member in stack.members],
            "python": list(stack.pythons),
            "os": stack.system,
            "cuda": stack.cuda or None,
            "driver": stack.driver or None,
            "gpus": list(stack.gpus),
        }
        for stack in stacks.load(tools.workspace).values()
    ]


def with_evidence(tools: Tools, rows: Sequence[dict[str, Any]], warnings: list[str]) -> list[dict[str, Any]]:
    """Add to each row the kinds of its valid proofs, in the order of the stages.

    Evidence is not cached, because many verbs change it. If a lock or an evidence file is unreadable, the row gets no evidence,
    and ``warnings`` gets the reason.
    """
    from envbuild.pipeline import proofs

    folders = {path.parent for path in proofs.files_of(tools, "x")}
    with_files = {path.stem for folder in folders for path in folder.glob("*.json")}
    found: dict[str, list[str]] = {}
    for name in sorted(with_files & {row["name"] for row in rows}):
        try:
            found[name] = list(proofs.held_kinds(tools, name))
        except InvalidInputError as error:
            warnings.append(f"{name}: {error.message}")
    return [{**row, "evidence": found.get(row["name"], [])} for row in rows]


def _rows(tools: Tools, filters: Mapping[str, Any]) -> list[dict[str, Any]]:
    from envbuild import codec
    from envbuild.resolve.build_list import Filters, list_builds

    return [codec.encode(row) for row in list_builds(tools.matrix, Filters(**filters))]
