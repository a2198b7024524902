"""Which framework an add-on's name means: one add-on has a table for each framework that it can stand upon.

Its usual name is that of one table. Beside the framework that another table stands upon, it means that other one.
"""

from __future__ import annotations

from envbuild.matrix.types import FrameworkTable, Matrix
from envbuild.matrix.versions import version_matches
from envbuild.resolve.request.draft import Draft, Piece


def settle(matrix: Matrix, draft: Draft) -> dict[str, str]:
    """Put the right table in the place of an add-on's usual one, and say for each what the request called it.

    Who names the usual table by a longer name of its own means it: what it stands upon then becomes a part of the request, so
    that the environment's name says it.
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


def _has_release(table: FrameworkTable, piece: Piece) -> bool:
    try:
        return any(version_matches(release.version, piece.parts.get("version", "")) for release in table.releases)
    except ValueError:  # a version that cannot be compared is refused later, with its reason
        return False
