"""Runs one verb for several environments, each in a child process. The number of processes at the same time is limited.

docs/decisions/0023 says why processes are used and not threads.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from envbuild import errors, procs
from envbuild.model.progress import Progress

State = Literal["done", "kept", "inconclusive", "failed", "interrupted", "not started"]
# Exit codes from the best to the worst. A failure in an earlier stage is worse, because less is known about the image.
_BEST_FIRST = (0, 10, 124, 9, 8, 7, 12, 11, 6, 5, 4, 3, 2)
_INTERRUPTED = errors.InterruptedByUserError.exit_code


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """One environment of a batch: its canonical name, and the request that asked for it.

    ``also`` are further requests of the same batch that mean the same environment. The image also gets the tags of these
    requests.
    """

    name: str
    request: str
    also: tuple[str, ...] = ()

    @property
    def requests(self) -> tuple[str, ...]:
        """All requests that ask for the environment."""
        return (self.request, *self.also)


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """The result of the verb for one environment. ``document`` is the JSON document that the verb prints with ``--json``."""

    job: Job
    state: State
    exit_code: int = 0
    seconds: float = 0.0
    document: Mapping[str, Any] = field(default_factory=dict)

    @property
    def why(self) -> str:
        """The message of the error; empty if there was no error."""
        return str(self.document.get("error", {}).get("message", ""))


class Listener(Protocol):
    """Receives events about the environments of a batch."""

    def started(self, job: Job) -> None:
        """Called when the verb begins for this environment."""

    def news(self, job: Job, news: Progress) -> None:
        """Called for each step of progress of this environment."""

    def line(self, job: Job, text: str) -> None:
        """Called for each line about this environment that must stay visible."""

    def ended(self, outcome: Outcome) -> None:
        """Called when the verb has ended for the environment of ``outcome``."""


class Processes(Protocol):
    """The methods of :class:`envbuild.procs.Children` that a batch uses."""

    def start(self, key: str, argv: Sequence[str]) -> None:
        """Start a child process with the command ``argv``. The events of this process contain ``key``."""

    def next(self) -> procs.Said | procs.Ended:
        """Wait until a child process writes a line or ends, and return this event."""

    def stop(self) -> list[procs.Ended]:
        """Stop all child processes that still run, and return how they ended."""


def worst(codes: Iterable[int]) -> int:
    """Return the exit code of a batch: the worst exit code of its environments, or 0 for an empty batch."""
    return max(codes, key=_badness, default=0)


def _badness(code: int) -> tuple[int, int]:
    if code == _INTERRUPTED:
        return len(_BEST_FIRST) + 1, code
    return (_BEST_FIRST.index(code) if code in _BEST_FIRST else len(_BEST_FIRST)), code


def outcome_of(job: Job, exit_code: int, document: Mapping[str, Any], seconds: float) -> Outcome:
    """Return the outcome of a job that ended with this exit code and this JSON document."""
    states: dict[int, State] = {0: "done", errors.SmokeInconclusiveError.exit_code: "inconclusive", _INTERRUPTED: "interrupted"}
    state = states.get(exit_code, "failed")
    if state == "done" and (document.get("nothing_to_do") or document.get("kept")):
        state = "kept"
    return Outcome(job=job, state=state, exit_code=exit_code, seconds=seconds, document=document)


def run(
    jobs: Sequence[Job],
    argv_of: Callable[[Job], Sequence[str]],
    *,
    limit: int,
    keep_going: bool,
    listener: Listener,
    children: Processes,
) -> list[Outcome]:
    """Run the jobs, at most ``limit`` at the same time, and return an outcome for each, in the order of ``jobs``.

    After a failure, running jobs may finish, but no further job is started unless ``keep_going`` is true. Ctrl-C stops all
    child processes, which then only clean up.
    """
    return _Batch(argv_of, listener, children).run(jobs, limit, keep_going=keep_going)


class _Batch:
    def __init__(self, argv_of: Callable[[Job], Sequence[str]], listener: Listener, children: Processes) -> None:
        self._argv_of = argv_of
        self._listener = listener
        self._children = children
        self._running: dict[str, tuple[Job, float]] = {}
        self._outcomes: dict[str, Outcome] = {}

    def run(self, jobs: Sequence[Job], limit: int, *, keep_going: bool) -> list[Outcome]:
        pending = deque(jobs)
        try:
            while pending or self._running:
                while pending and len(self._running) < limit:
                    self._start(pending.popleft())
                event = self._children.next()
                if isinstance(event, procs.Said):
                    self._tell(event)
                elif self._end(event).state in {"failed", "interrupted"} and not keep_going:
                    pending.clear()
        except KeyboardInterrupt:
            for ended in self._children.stop():
                self._end(_as_interrupted(ended) if ended.code < 0 else ended)
            self._note_interruption(jobs)
        return [self._outcomes.get(job.name) or Outcome(job=job, state="not started") for job in jobs]

    def _note_interruption(self, jobs: Sequence[Job]) -> None:
        """Record as interrupted each job whose process was just starting or ending at Ctrl-C.

        If no job at all was interrupted, record the job that would have been started next.
        """
        left = [job for job in jobs if job.name not in self._outcomes]
        is_told = any(outcome.exit_code == _INTERRUPTED for outcome in self._outcomes.values())
        for job in [job for job in left if job.name in self._running] or ([] if is_told else left[:1]):
            self._outcomes[job.name] = Outcome(job=job, state="interrupted", exit_code=_INTERRUPTED)

    def _start(self, job: Job) -> None:
        self._running[job.name] = job, time.monotonic()
        self._listener.started(job)  # before the process starts, because the process may end at once
        self._children.start(job.name, self._argv_of(job))

    def _tell(self, said: procs.Said) -> None:
        job, _ = self._running[said.key]
        event = read_event(said.line)
        if isinstance(event, Progress):
            self._listener.news(job, event)
        elif event.strip():
            self._listener.line(job, event)

    def _end(self, ended: procs.Ended) -> Outcome:
        job, began = self._running[ended.key]
        code, document = _result(job, ended)
        outcome = outcome_of(job, code, document, time.monotonic() - began)
        self._outcomes[job.name] = outcome
        del self._running[ended.key]
        self._listener.ended(outcome)
        return outcome


def read_event(line: str) -> Progress | str:
    """Read a line that a child process with ``--progress json`` wrote to standard error.

    Return a line that is not JSON as it is.
    """
    try:
        told = json.loads(line) if line.startswith("{") else {}
        return Progress(**told["progress"]) if "progress" in told else str(told.get("line", line))
    except (ValueError, TypeError):
        return line


def _as_interrupted(ended: procs.Ended) -> procs.Ended:
    """Return the event "interrupted" for a child process that was killed after Ctrl-C and so wrote no JSON document.

    A child is killed if it has just started, or if it does not end in time.
    """
    error = errors.InterruptedByUserError("Stopped on request.")
    answer = json.dumps({"schema": 1, "error": error.to_json()})
    return procs.Ended(key=ended.key, code=error.exit_code, output=answer)


def _result(job: Job, ended: procs.Ended) -> tuple[int, Mapping[str, Any]]:
    """Return the exit code and the JSON document of a child process.

    If the process wrote no document, return an error document that says how the process ended.
    """
    try:
        document = json.loads(ended.output)
    except ValueError:
        document = None
    if isinstance(document, dict):
        return ended.code if ended.code >= 0 else 128 - ended.code, document
    how = f"was killed by signal {-ended.code}" if ended.code < 0 else f"ended with exit code {ended.code} and without a result"
    error = errors.EnvbuildError(
        f"The process for {job.name} {how}.",
        code="child-died",
        hint="If the machine ran out of memory, use a smaller --jobs. Run the same command again to continue.",
    )
    return error.exit_code, {"schema": 1, "error": error.to_json()}
