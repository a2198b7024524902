"""Show progress on standard error: live bars on a terminal, plain lines elsewhere, nothing with -q.

Importing the live display takes a quarter of a second. So the live display starts only after a run has lasted a second.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Protocol

from envbuild.cli.session import Session
from envbuild.cli.terminal import plain
from envbuild.model.progress import Progress

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

_ROOM_FOR_BARS = 110  # a terminal with fewer columns gets no bars
PATIENCE_S = 1.0  # the live display starts, and speeds are shown, only after this time
_PLAIN_EVERY_S = 5.0  # shortest time between two plain lines about the same step
_ALIVE_EVERY_S = 15.0  # without -v: shortest time between two lines of a build's output


_EVENTS_EVERY_S = 0.2  # shortest time between two JSON lines about the same step


class Display(Protocol):
    """Shows progress messages, and lines that stay visible."""

    def news(self, news: Progress) -> None:
        """Show one step of a stage."""

    def line(self, text: str) -> None:
        """Print a line that stays visible."""

    def close(self) -> None:
        """Remove the display."""


@contextlib.contextmanager
def display(session: Session) -> Iterator[Display]:
    """Open the display that the options of the session ask for. Close it at the end, even if the work fails."""
    shown = _choose(session)
    try:
        yield shown
    finally:
        shown.close()


def _choose(session: Session) -> Display:
    kind = session.progress
    if kind == "auto":
        on_terminal = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        kind = "rich" if on_terminal else "plain"
    if session.quiet or kind == "none":
        return _Silent(session)
    if kind == "json":
        return Events(session)
    # With -v, the output of builds is printed. It cannot be shown together with bars.
    return _Live(session) if kind == "rich" and not session.verbose else Plain(session)


class Events:
    """Prints one JSON object per line, for other programs.

    A step of progress is ``{"progress": {…}}``, and a message is ``{"line": "…"}``. With ``environment``, each object also has
    the name of the environment.
    """

    def __init__(self, session: Session, environment: str = "") -> None:
        self._session = session
        self._about = {"environment": environment} if environment else {}
        self._said: dict[tuple[str, str], float] = {}
        self._lock = threading.Lock()

    def news(self, news: Progress) -> None:
        """Print the step of progress. If a counter grows fast, only some of its values are printed."""
        with self._lock:
            now, key = time.monotonic(), (news.stage, news.message)
            counts = news.done is not None and news.done != news.total
            if counts and now - self._said.get(key, -_EVENTS_EVERY_S) < _EVENTS_EVERY_S:
                return
            self._said[key] = now
        told = {name: value for name, value in asdict(news).items() if value not in (None, "", False)}
        self._session.event({**self._about, "progress": {"stage": news.stage, "message": news.message, **told}})

    def line(self, text: str) -> None:
        """Print the message as a JSON object."""
        self._session.event({**self._about, "line": text})

    def close(self) -> None:
        """Do nothing: there is no display to remove."""


class _Silent:
    def __init__(self, session: Session) -> None:
        self._session = session

    def news(self, news: Progress) -> None:
        """Print the step only if it is a warning."""
        if news.warning:
            self.line(f"warning: {news.message}")

    def line(self, text: str) -> None:
        """Print the line, unless ``-q`` was given."""
        self._session.err(text)

    def close(self) -> None:
        """Do nothing: there is no display to remove."""


class Plain:
    """Prints a line when a step starts or ends, and a line every few seconds while the numbers of the step grow.

    ``prefix`` begins every line. ``figures`` formats the numbers of a step.
    """

    def __init__(self, session: Session, prefix: str = "", figures: Callable[[Progress], str] | None = None) -> None:
        self._session = session
        self._prefix = prefix
        self._figures = figures or amount
        self._said: dict[tuple[str, str], float] = {}
        self._alive = time.monotonic()
        self._lock = threading.Lock()

    def news(self, news: Progress) -> None:
        """Print a line about the step, unless a line about the same step was printed a moment ago.

        A line of a build's output is printed as :meth:`_log` describes.
        """
        if news.warning:
            self.line(f"warning: {news.message}")
            return
        if news.log:
            self._log(news)
            return
        now = time.monotonic()
        with self._lock:
            # For a counter without a total, limit the lines per stage. For all other steps, limit the lines per message.
            key = (news.stage, "" if news.done is not None and news.total is None else news.message)
            ended = news.total is not None and news.done == news.total
            if not ended and now - self._said.get(key, -_PLAIN_EVERY_S) < _PLAIN_EVERY_S:
                return
            self._said[key] = now
        figures = self._figures(news)
        self.line(f"[{news.stage}] {news.message}{'  ' + figures if figures else ''}")

    def _log(self, news: Progress) -> None:
        """Print every line of output with ``-v``; without it, print a line now and then to show that the stage still runs."""
        now = time.monotonic()
        if self._session.verbose or now - self._alive >= _ALIVE_EVERY_S:
            self._alive = now
            self.line(f"[{news.stage}] | {news.message.rstrip()}")

    def line(self, text: str) -> None:
        """Print the line with the prefix."""
        self._session.err(self._prefix + text)

    def close(self) -> None:
        """Do nothing: there is no display to remove."""


class _Live:
    """Shows one bar for each running stage, with its last message."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._began = time.monotonic()
        self._bars: Bars | None = None
        self._tasks: dict[str, TaskID] = {}
        self._lock = threading.Lock()

    def news(self, news: Progress) -> None:
        """Update the bar of the stage. A line of output becomes the message of the bar; a warning is printed above the bars."""
        if news.warning:
            self.line(f"warning: {news.message}")
            return
        shown = plain(news.message).replace("\n", " ")
        with self._lock:
            if self._bars is None:
                if time.monotonic() - self._began < PATIENCE_S:
                    return
                self._bars = new_bars()
                self._bars.start()
            if news.stage not in self._tasks:
                for task in self._tasks.values():
                    self._bars.update(task, visible=False)
                self._tasks[news.stage] = self._bars.add_task(news.stage, total=None, figures="", message="")
            task = self._tasks[news.stage]
            if news.log:
                self._bars.update(task, message=shown.strip()[:120])
            else:
                self._bars.update(
                    task, visible=True, completed=news.done or 0, total=news.total, figures=amount(news), message=shown
                )

    def line(self, text: str) -> None:
        """Print the line above the bars."""
        with self._lock:
            if self._bars is None or self._session.quiet:
                self._session.err(text)
            else:
                self._bars.console.print(plain(self._session.copyable(text)), markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Remove the bars. Printed lines stay."""
        with self._lock:
            if self._bars is not None:
                self._bars.stop()
                self._bars = None


def new_bars() -> Bars:
    """Return progress bars on standard error that vanish at the end. Each bar has a message and figures."""
    from rich.console import Console
    from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as RichProgress
    from rich.table import Column

    return RichProgress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        TextColumn("{task.fields[figures]}", markup=False),
        TimeElapsedColumn(),
        TextColumn("{task.fields[message]}", markup=False, table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")),
        console=Console(stderr=True),
        transient=True,
        expand=True,
        refresh_per_second=8,
    )


def new_name_bars() -> Bars:
    """Return bars like those of :func:`new_bars`, with a column for the names of environments. A name gets at most a third of
    the line.

    A narrow terminal has no room for bars. There, each line is a name, followed by figures and a message.
    """
    from rich.progress import TextColumn
    from rich.table import Column

    bars = new_bars()
    width = bars.console.width
    spinner, _, *others = bars.columns
    name = Column(max_width=max(16, width // 3), no_wrap=True, overflow="ellipsis")
    if width < _ROOM_FOR_BARS:
        rest = Column(ratio=1, no_wrap=True, overflow="ellipsis")
        others = [TextColumn("{task.fields[figures]}  {task.fields[message]}", markup=False, table_column=rest)]
    bars.columns = (spinner, TextColumn("{task.description}", markup=False, table_column=name), *others)
    return bars


def amount(news: Progress) -> str:
    """Format the progress of a step in readable units: ``3/7 layers``, ``120.5/512.0 MB``."""
    if news.done is None:
        return ""
    if news.unit == "bytes":
        done, total = news.done / 1e6, None if news.total is None else news.total / 1e6
        return f"{done:.1f} MB" if total is None else f"{done:.1f}/{total:.1f} MB"
    return f"{news.done:g} {news.unit}".rstrip() if news.total is None else f"{news.done:g}/{news.total:g} {news.unit}".rstrip()


class Speeds:
    """Formats the figures of steps. For a step that counts bytes, the figures also have the speed and the remaining time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._steps: dict[tuple[str, str], tuple[float, float, float]] = {}  # time of the start, first and last value

    def figures(self, news: Progress) -> str:
        """Format one step: ``120.5/512.0 MB, 10.1 MB/s, 39 s left``."""
        text = amount(news)
        if news.done is None or news.unit != "bytes":
            return text
        now, key = self._clock(), (news.stage, "" if news.total is None else news.message)
        began, first, last = self._steps.get(key, (now, news.done, news.done))
        if news.done < last:  # the counter went back, so the step began again
            began, first = now, news.done
        self._steps[key] = began, first, news.done
        if now - began < PATIENCE_S or news.done == first:
            return text
        rate = (news.done - first) / (now - began)
        text += f", {rate / 1e6:.1f} MB/s"
        return (
            text if news.total is None or news.done >= news.total else f"{text}, {(news.total - news.done) / rate:.0f} s left"
        )
