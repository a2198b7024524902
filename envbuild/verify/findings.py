"""The results of verifying an image: differences, notes and counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from envbuild.errors import Problem, VerifyError

_SHOWN = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class VerifyReport:
    """The report of a verification: every difference, and what was compared.

    ``counts`` says how many items were compared. ``notes`` say what could not be compared, and why. For example, the lock has
    no hash of a package built from source. The version of this package is compared with the lock, but its files are compared
    with the package's own RECORD. ``framework`` is what the first framework reports about itself; ``others`` are the reports of
    the other frameworks.
    """

    name: str
    image: str
    quick: bool
    seconds: float
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]
    counts: dict[str, int]
    framework: dict[str, str] = field(default_factory=dict)
    others: tuple[dict[str, str], ...] = ()

    @property
    def ok(self) -> bool:
        """Whether there are no differences."""
        return not self.problems

    def to_json(self) -> dict[str, Any]:
        """The report as JSON values."""
        from envbuild import codec

        return {"ok": self.ok, **codec.encode(self)}

    def require(self) -> VerifyReport:
        """Return this report, or raise :class:`VerifyError` with every difference."""
        if self.ok:
            return self
        raise VerifyError(
            f"The image of {self.name} does not match its lock: {len(self.problems)} differences.",
            problems=self.problems,
            hint=f"Build it again with `envbuild build {self.name} --no-cache`. Do not change an image by hand.",
        )


class Findings:
    """Collects differences, notes and counts while an image is compared."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.notes: list[str] = []
        self.counts: dict[str, int] = {}

    def wrong(self, where: str, message: str) -> None:
        """Add one difference."""
        self.problems.append(Problem(where=where, line=0, message=message))

    def files(self, what: str, items: Sequence[Mapping[str, Any]], where: str) -> None:
        """Add a difference for each of the first few files, and one difference with the number of all others. There may be
        thousands of files."""
        for item in items[:_SHOWN]:
            owner = f" (of {item['of']})" if item.get("of") else ""
            self.wrong(str(item["path"]), f"{what}{owner}")
        if len(items) > _SHOWN:
            self.wrong(where, f"{len(items) - _SHOWN} more: {what}")

    def count(self, what: str, number: int) -> None:
        """Add ``number`` to the number of compared items of the kind ``what``."""
        self.counts[what] = self.counts.get(what, 0) + number
