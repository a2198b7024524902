"""Finds the steps of a Dockerfile that install Debian packages while it is rendered, and gives each step a folder. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from envbuild.errors import InvalidInputError
from envbuild.model.lock import AptPlan, Lock

_LAST = "image"  # the stage that becomes the image


class AptSteps:
    """Tracks the stage that is being rendered, and the packages that its steps install. In templates, it is named ``apt``."""

    def __init__(self, lock: Lock, *, planning: bool) -> None:
        self._lock = lock
        self._planning = planning
        self._above: dict[str, str] = {}
        self._stage = ""
        self._found: list[tuple[str, str, tuple[str, ...]]] = []

    def enter(self, above: str, stage: str) -> str:
        """Begin ``stage``, which is based on the stage ``above``."""
        self._above[stage] = above
        self._stage = stage
        return ""

    @property
    def is_pinned(self) -> bool:
        """Whether the lock pins the packages that apt installs. While steps are planned: whether the lock could pin these
        packages."""
        return self._lock.apt is not None or (self._planning and self._lock.base.bootstrap is not None)

    def step(self, packages: Sequence[str]) -> str:
        """Return the folder in the build context that has the packages for a step of the current stage.

        Raises :class:`InvalidInputError` (``stale-lock``) if the lock does not pin this step.
        """
        asked = tuple(map(str, packages))
        earlier = sum(stage == self._stage for _, stage, _ in self._found)
        name = f"{self._stage}-{earlier + 1}" if earlier else self._stage
        self._found.append((name, self._stage, asked))
        held = self._lock.apt.step(name) if self._lock.apt else None
        if not self._planning and (held is None or held.asked != asked):
            raise InvalidInputError(
                f"The lock of {self._lock.environment.name} does not pin what its build installs now: {', '.join(asked)}.",
                code="stale-lock",
                hint=f"Pin it with `envbuild lock {self._lock.environment.name}`; the Python packages stay as they are.",
            )
        return f"apt/{name}"

    def folders(self, stage: str) -> list[str]:
        """The folders of the steps of one stage, without the steps of the stages on which it is based."""
        return [f"apt/{name}" for name, where, _ in self._found if where == stage]

    def plans(self) -> tuple[AptPlan, ...]:
        """Every step that was found, in the order of the Dockerfile."""
        image = self._chain(_LAST)
        plans: list[AptPlan] = []
        for number, (name, stage, asked) in enumerate(self._found):
            chain = self._chain(stage)
            before = tuple(other for other, where, _ in self._found[:number] if where in chain)
            plans.append(AptPlan(name=name, before=before, asked=asked, build_only=stage not in image))
        return tuple(plans)

    def _chain(self, stage: str) -> set[str]:
        found: set[Any] = set()
        while stage and stage not in found:
            found.add(stage)
            stage = self._above.get(stage, "")
        return found
