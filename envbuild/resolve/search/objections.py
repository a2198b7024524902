"""Objections: reasons against a choice. Each objection comes from a row of the matrix."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, NamedTuple

from envbuild.errors import Conflict
from envbuild.matrix.platform import Provenance
from envbuild.resolve.request.model import Part

SupportingField = Literal["", "cuda", "glibc", "python", "cudnn", "nccl"]


class Objection(NamedTuple):
    """The reason that one row gives against a choice. ``part`` is the part of the request to change, or None if no change of
    the request helps.

    If the row is not the framework's own, ``supporting_field`` is the field of the framework's row that leads to the objection.
    Changing ``other_part`` of the request helps as well. ``remedy`` describes another solution, which works only on some GPUs
    (:func:`takes_compat`).
    """

    part: Part | None
    conflict: Conflict
    supporting_field: SupportingField = ""
    other_part: Part | None = None
    remedy: str = ""

    def holds(self, free: Collection[Part]) -> bool:
        """Whether the objection remains if the parts in ``free`` of the request may have any value."""
        return self.part not in free and (self.other_part is None or self.other_part not in free)


def objection(part: Part | None, row: str, reason: str, source: str, supporting_field: SupportingField = "") -> Objection:
    """Make an objection from the fields of its conflict."""
    return Objection(part, Conflict(row=row, reason=reason, source=source), supporting_field)


def status_objection(key: str, origin: Provenance, part: Part | None = None) -> Objection | None:
    """Return an objection if the row has the status known bad, else None."""
    if origin.status != "known-bad":
        return None
    return objection(part, key, origin.why_bad, origin.source)
