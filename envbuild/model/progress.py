"""Progress messages of the stages, and the wording of counts, such as ``2 files``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """One progress message of a stage. ``done`` and ``total`` are in ``unit`` (``bytes``, ``layers``, ``files``, ``steps``).

    ``total`` is None while it is unknown. ``log`` marks a line of output, as opposed to a change of state. ``warning`` marks a
    line that stays visible.
    """

    stage: str
    message: str
    done: float | None = None
    total: float | None = None
    unit: str = ""
    log: bool = False
    warning: bool = False


OnProgress = Callable[[Progress], None]


def as_news(stage: str, on_progress: OnProgress) -> Callable[[str], None]:
    """Return a function that takes plain texts and passes each one to ``on_progress`` as a message of ``stage``."""
    return lambda message: on_progress(Progress(stage=stage, message=message))


def counted(count: int, noun: str) -> str:
    """Return the count with its noun, which gets an "s" unless the count is 1: ``1 file``, ``2 files``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def counted_each(names: Iterable[str]) -> str:
    """Return each different name with the number of times that it occurs: ``2 x A100, 1 x H100``."""
    return ", ".join(f"{count} x {name}" for name, count in Counter(names).items())


def ignore_progress(_news: Progress) -> None:
    """A listener that ignores all messages."""
