"""Command-line options that constrain a request."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Constraints:
    """The values that the user forces in addition to the request; None means that the matrix decides."""

    driver: str | None = None
    gpu: str | None = None
    python: str | None = None
    python_from: str | None = None
    system: str | None = None
    base: str | None = None

    def any(self) -> bool:
        """Whether there is any constraint."""
        return any(value is not None for value in asdict(self).values())
