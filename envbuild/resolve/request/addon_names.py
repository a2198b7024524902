"""Decides which table of the matrix an add-on's name means: an add-on has one table for each of its base frameworks.

By default, the name means one fixed table. If the request also names a base framework, the name means the add-on's table for
this base framework. A request that names several base frameworks, among them that of the fixed table, still means the fixed
table.
"""

from __future__ import annotations

from envbuild.matrix.types import FrameworkTable, Matrix
from envbuild.matrix.versions import version_matches
from envbuild.resolve.request.draft import Draft, FrameworkDraft


def settle(matrix: Matrix, draft: Draft) -> dict[str, str]:
    """Replace an add-on's default table if the request means another table. Return a mapping from the name of each table that
    replaces a default table to the name that the request uses for the add-on.

    A longer name (an alias) of the default table always means the default table. The base framework of the default table is
    then added to the request, so that the environment's name shows it.
    """
    said: dict[str, str] = {}
    for piece in list(draft.pieces):
        usual = piece.framework
        named = [each.framework.name for each in draft.pieces]
        others = [
            table for name in named for table in matrix.frameworks if (table.instead_of, table.beside) == (usual.name, name)
        ]
        fitting = next((table for table in others if _has_release(table, piece)), None)
        bases = list(dict.fromkeys(pairs.framework for release in usual.releases for pairs in release.pairs)) if others else []
        if not bases or set(bases) & set(named) or {table.name for table in others} & set(named):
            continue
        if piece.name not in (usual.name, usual.short):
            draft.piece(next(table for table in matrix.frameworks if table.name == bases[0]))
        elif fitting is not None:
            piece.framework, said[fitting.name] = fitting, piece.name
    return said


def _has_release(table: FrameworkTable, piece: FrameworkDraft) -> bool:
    try:
        return any(version_matches(release.version, piece.parts.get("version", "")) for release in table.releases)
    except ValueError:  # another check refuses a version that cannot be compared, and says why
        return False
