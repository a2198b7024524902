"""One build of one framework's release: what a candidate holds for each framework that was asked for."""

from __future__ import annotations

from dataclasses import dataclass, field

from envbuild.matrix.types import FrameworkTable, Release, Variant


@dataclass(frozen=True, kw_only=True, slots=True)
class Build:
    """A variant with the release and the framework that it is of.

    ``beside_gpus`` marks a CPU build that goes into GPU environments as it is: of what was asked for, nothing is for GPUs.
    """

    framework: FrameworkTable = field(compare=False)
    release: Release
    variant: Variant
    beside_gpus: bool = False

    @property
    def row(self) -> str:
        """The build's name in messages."""
        return f"{self.framework.name} {self.release.version} {self.variant.name}"
