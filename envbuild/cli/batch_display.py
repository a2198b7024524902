"""Show the progress of several environments. A terminal shows a bar for each environment. Elsewhere, each line begins with the
name of its environment."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from envbuild.cli import wording
from envbuild.cli.batch_summary import state_word
from envbuild.cli.progress_display import Display, Events, Plain, Speeds, new_name_bars
from envbuild.cli.session import Session
from envbuild.cli.terminal import plain
from envbuild.model.progress import Progress

if TYPE_CHECKING:
    from rich.progress import TaskID

    from envbuild.pipeline.batch import Job, Outcome


class BatchDisplay(Protocol):
    """Shows the events of a batch, and remarks about the whole batch."""

    def started(self, job: Job) -> None:
        """Show that the verb begins for this environment."""

    def news(self, job: Job, news: Progress) -> None:
        """Show a step of progress of this environment."""

    def line(self, job: Job, text: str) -> None:
        """Show a line about this environment. The line stays visible."""

    def ended(self, outcome: Outcome) -> None:
        """Show that the verb has ended for the environment of ``outcome``."""

    def remark(self, text: str) -> None:
        """Print a line that concerns all environments."""

    def close(self) -> None:
        """Remove the display from the terminal."""


@contextlib.contextmanager
def display_batch(session: Session, total: int, done: int, *, is_dry_run: bool = False) -> Iterator[BatchDisplay]:
    """Open the display for ``total`` environments, and close it at the end, even on failure.

    ``done`` of these environments need no more work. With ``is_dry_run``, the verb only says what it would do.
    """
    kind = session.progress
    if kind == "auto":
        kind = "rich" if sys.stderr.isatty() and os.environ.get("TERM") != "dumb" else "plain"
    live = kind == "rich" and not session.verbose and not session.quiet
    shown: BatchDisplay
    if live:
        shown = _LiveBatch(session, total, done, is_dry_run=is_dry_run)
    else:
        kinds = _EventBatch if kind == "json" else _PlainBatch
        shown = kinds(session, total, done, is_dry_run=is_dry_run)
    try:
        yield shown
    finally:
        shown.close()


class _PlainBatch:
    """Prints lines that begin with the name of an environment. With ``--progress none``, steps of progress are left out."""

    def __init__(self, session: Session, total: int, done: int, *, is_dry_run: bool) -> None:
        self._session = session
        self._is_dry_run = is_dry_run
        self._total = total
        self._done = done
        self._lines: dict[str, Display] = {}

    def started(self, job: Job) -> None:
        """Show that work on the environment begins."""
        self._lines[job.name] = self._open(job.name)
        self._lines[job.name].line("started")

    def news(self, job: Job, news: Progress) -> None:
        """Print the step of progress."""
        if self._session.progress != "none" or news.warning:
            self._lines[job.name].news(news)

    def line(self, job: Job, text: str) -> None:
        """Print a line about the environment."""
        self._lines[job.name].line(text)

    def ended(self, outcome: Outcome) -> None:
        """Print the result of the environment, and the number of environments that have ended."""
        self._done += 1
        self._lines[outcome.job.name].line(_end(outcome, self._done, self._total, is_dry_run=self._is_dry_run))

    def remark(self, text: str) -> None:
        """Print a line about the whole batch."""
        self._session.err(text)

    def close(self) -> None:
        """Do nothing: there is no display to remove."""

    def _open(self, name: str) -> Display:
        return Plain(self._session, f"{name}: ", Speeds().figures)


class _EventBatch(_PlainBatch):
    """The display for other programs: each line is one JSON object with the name of its environment."""

    def remark(self, text: str) -> None:
        """Print a JSON object about the whole batch."""
        Events(self._session).line(text)

    def _open(self, name: str) -> Display:
        return Events(self._session, name)


class _LiveBatch:
    """Shows one bar for each environment that is being worked on, and one bar for the whole batch."""

    def __init__(self, session: Session, total: int, done: int, *, is_dry_run: bool) -> None:
        self._session = session
        self._is_dry_run = is_dry_run
        self._total = total
        self._bars = new_name_bars()
        self._all = self._bars.add_task("all", total=total, completed=done, figures=f"{done}/{total}", message="")
        self._done = done
        self._tasks: dict[str, TaskID] = {}
        self._speeds: dict[str, Speeds] = {}
        self._bars.start()

    def started(self, job: Job) -> None:
        """Add a bar for the environment."""
        self._tasks[job.name] = self._bars.add_task(job.name, total=None, figures="", message="")
        self._speeds[job.name] = Speeds()

    def news(self, job: Job, news: Progress) -> None:
        """Show the step of progress in the bar of the environment; print a warning as a line above the bars."""
        if news.warning:
            self.line(job, f"warning: {news.message}")
            return
        task, message = self._tasks[job.name], f"{news.stage}: {plain(news.message).strip()}".replace("\n", " ")[:160]
        if news.log:
            self._bars.update(task, message=message)
        else:
            figures = self._speeds[job.name].figures(news)
            self._bars.update(task, completed=news.done or 0, total=news.total, figures=figures, message=message)

    def line(self, job: Job, text: str) -> None:
        """Print the line above the bars."""
        self.remark(f"{job.name}: {text}")

    def ended(self, outcome: Outcome) -> None:
        """Remove the bar of the environment, and print the result of the environment."""
        self._done += 1
        if (task := self._tasks.pop(outcome.job.name, None)) is not None:
            self._bars.remove_task(task)
        self._bars.update(self._all, completed=self._done, figures=f"{self._done}/{self._total}")
        self.remark(f"{outcome.job.name}: {_end(outcome, self._done, self._total, is_dry_run=self._is_dry_run)}")

    def remark(self, text: str) -> None:
        """Print the line above the bars."""
        self._bars.console.print(plain(self._session.copyable(text)), markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Remove the bars. Printed lines stay."""
        self._bars.stop()


def _end(outcome: Outcome, done: int, total: int, *, is_dry_run: bool) -> str:
    return f"{state_word(outcome.state, is_dry_run=is_dry_run)} after {wording.seconds(outcome.seconds)} ({done} of {total})"
