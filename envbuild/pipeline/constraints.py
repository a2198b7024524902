"""Command-line options that constrain a request."""

from __future__ import annotations

from typing import NamedTuple


class Constraints(NamedTuple):
    """The values that the user forces in addition to the request. For a value of None, the matrix decides."""

    driver: str | None = None
    gpu: str | None = None
    python: str | None = None
    python_from: str | None = None
    system: str | None = None
    base: str | None = None

    def any(self) -> bool:
        """Whether any value is forced."""
        return any(value is not None for value in self)
