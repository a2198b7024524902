"""What the options of a command line add to a request."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Constraints:
    """What the user insists on beside the request's own words; None leaves it to the matrix."""

    driver: str | None = None
    gpu: str | None = None
    python: str | None = None
    python_from: str | None = None
    system: str | None = None
    base: str | None = None

    def any(self) -> bool:
        """Whether the user insists on anything."""
        return any(value is not None for value in asdict(self).values())
