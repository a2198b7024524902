"""What a row holds against a choice."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from envbuild.errors import Conflict
from envbuild.matrix.platform import Provenance
from envbuild.resolve.request.model import Part

Premise = Literal["", "cuda", "glibc", "python", "cudnn", "nccl"]


@dataclass(frozen=True, slots=True)
class Objection:
    """What one row holds against a choice, and the part of the request that would have to change (None: none would help).

    ``premise`` is the field of the framework's own row that it rests on, where that is another row: the second fact of the two.
    ``also`` is a part whose change would help as well, ``relief`` what would help on GPUs that take it (:func:`takes_compat`).
    """

    part: Part | None
    conflict: Conflict
    premise: Premise = ""
    also: Part | None = None
    relief: str = ""

    def holds(self, free: Collection[Part]) -> bool:
        """Whether it stands where the request leaves the parts of ``free`` open."""
        return self.part not in free and (self.also is None or self.also not in free)


def objection(part: Part | None, row: str, reason: str, source: str, premise: Premise = "") -> Objection:
    """An objection from its words."""
    return Objection(part, Conflict(row=row, reason=reason, source=source), premise)


def status_objection(key: str, origin: Provenance, part: Part | None = None) -> Objection | None:
    """A row that is known not to work stands against everything that uses it."""
    if origin.status != "known-bad":
        return None
    return objection(part, key, f"known not to work: {origin.note}", origin.source)
