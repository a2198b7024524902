"""One build of a framework's release. A candidate has one build for each requested framework."""

from __future__ import annotations

from dataclasses import dataclass, field

from envbuild.matrix.types import FrameworkTable, Release, Variant


@dataclass(frozen=True, kw_only=True, slots=True)
class Build:
    """A variant together with its release and its framework.

    ``beside_gpus`` marks a CPU build that may be in a GPU environment, because no requested build of its framework is for GPUs.
    """

    framework: FrameworkTable = field(compare=False)
    release: Release
    variant: Variant
    beside_gpus: bool = False

    @property
    def row(self) -> str:
        """The build's name in messages."""
        return f"{self.framework.name} {self.release.version} {self.variant.name}"
