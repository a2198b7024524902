"""Read the lines that BuildKit prints with ``--progress=plain``, and turn them into progress messages. Keep the last lines for
error messages."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from envbuild.model.progress import OnProgress, Progress

_VERTEX = re.compile(r"^#(?P<number>\d+) (?P<rest>.*)$")
_STEP = re.compile(r"^\[(?:(?P<stage>[^\]]*?) )?(?P<index>\d+)/(?P<count>\d+)\] (?P<instruction>.*)$", re.DOTALL)
_TIMED = re.compile(r"^(?P<seconds>\d+\.\d+) (?P<line>.*)$")
_DONE = re.compile(r"^DONE (?P<seconds>[\d.]+)s$")
_TRANSFER = re.compile(
    r"^(?:sha256:\S+|transferring \w+:) (?P<done>[\d.]+)(?P<unit>[kMG]?B)(?: / (?P<total>[\d.]+)(?P<tunit>[kMG]?B))?"
)
# Every shell step begins with the same commands (options, reading secrets). This beginning is not shown.
_PREAMBLE = re.compile(r"(?<=RUN )(?:if \[ .*?; fi; |set -\w+;? (?:&& )?|export [^;]*; )+")
_UNITS = {"B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9}
_KEPT = 60


@dataclass(slots=True)
class _Vertex:
    name: str = ""
    started: float = 0.0
    finished: bool = False
    cached: bool = False
    error: str = ""
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=_KEPT))


@dataclass(slots=True)
class PlainProgress:
    """A parser that gets the output line by line. ``total`` is the number of the Dockerfile's instructions, None if unknown.

    After a failure, ``failed`` is the name of the failed step, ``reason`` the builder's reason, and ``tail`` the last lines of
    the step.
    """

    on_progress: OnProgress
    total: int | None = None
    clock: Callable[[], float] = time.monotonic
    _vertices: dict[str, _Vertex] = field(default_factory=dict)
    _others: deque[str] = field(default_factory=lambda: deque(maxlen=_KEPT))

    def feed(self, line: str) -> None:
        """Parse one line of the builder's output."""
        match = _VERTEX.match(line)
        if match is None:
            if line.strip():
                self._others.append(line)
            return
        vertex = self._vertices.setdefault(match["number"], _Vertex(started=self.clock()))
        if not vertex.name:
            vertex.name = match["rest"]
            self._start(vertex)
        elif match["rest"] != vertex.name:  # the builder repeats the name when it switches between parallel steps
            self._news(vertex, match["rest"])

    @property
    def steps(self) -> int:
        """The number of instructions that have succeeded so far."""
        return sum(v.finished and _STEP.match(v.name) is not None for v in self._vertices.values())

    @property
    def cached(self) -> int:
        """The number of instructions whose result came from the cache."""
        return sum(v.cached and _STEP.match(v.name) is not None for v in self._vertices.values())

    @property
    def failed(self) -> str:
        """The name of the failed step; empty if no step failed."""
        return next((v.name for v in self._vertices.values() if v.error and v.error != "CANCELED"), "")

    @property
    def reason(self) -> str:
        """The builder's reason for the failure."""
        errors = [v.error for v in self._vertices.values() if v.error and v.error != "CANCELED"]
        return errors[0] if errors else (self._others[-1] if self._others else "the builder gave no reason")

    @property
    def tail(self) -> list[str]:
        """The last lines of the failed step. If no step failed, the last lines of the builder itself."""
        failing = [v for v in self._vertices.values() if v.error and v.error != "CANCELED"]
        return list(failing[0].lines) if failing else list(self._others)

    def _start(self, vertex: _Vertex) -> None:
        step = _STEP.match(vertex.name)
        if step is not None:
            self._tell(instruction_of(vertex.name))
        elif vertex.name.startswith("exporting"):
            self._tell("exporting the image")

    def _news(self, vertex: _Vertex, text: str) -> None:
        if text == "CACHED":
            vertex.cached = vertex.finished = True
            self._tell(f"{instruction_of(vertex.name)} (cached)")
        elif text.startswith("ERROR:"):
            vertex.error = text.removeprefix("ERROR:").strip()
        elif text == "CANCELED":
            vertex.error = text
        elif done := _DONE.match(text):
            vertex.finished = True
            if not vertex.name.startswith("[internal]"):
                self._tell(f"{instruction_of(vertex.name)} ({float(done['seconds']):.1f} s)")
        elif timed := _TIMED.match(text):
            vertex.lines.append(timed["line"])
            self.on_progress(Progress(stage="build", message=timed["line"], log=True))
        elif moved := _TRANSFER.match(text):
            self._bytes(vertex, moved)

    def _bytes(self, vertex: _Vertex, moved: re.Match[str]) -> None:
        total = float(moved["total"]) * _UNITS[moved["tunit"]] if moved["total"] else None
        done = float(moved["done"]) * _UNITS[moved["unit"]]
        self.on_progress(Progress(stage="build", message=instruction_of(vertex.name), done=done, total=total, unit="bytes"))

    def _tell(self, message: str) -> None:
        total = None if self.total is None else float(max(self.total, self.steps))
        self.on_progress(Progress(stage="build", message=message, done=float(self.steps), total=total, unit="steps"))


def instruction_of(name: str, limit: int = 100) -> str:
    """Return a readable name of a step: its stage and its instruction in one line, without mount options."""
    step = _STEP.match(name)
    if step is None:
        return name[:limit]
    words = " ".join(word for word in step["instruction"].split() if not word.startswith("--"))
    text = f"{step['stage']}: {_PREAMBLE.sub('', words)}" if step["stage"] else _PREAMBLE.sub("", words)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def count_steps(dockerfile: str) -> int:
    """Return how many instructions of a Dockerfile the builder will report as steps.

    The builder does not report a FROM that names an earlier stage.
    """
    joined = re.sub(r"\\\r?\n", " ", re.sub(r"(?m)^\s*#.*\n?", "", dockerfile))
    stages: set[str] = set()
    steps = 0
    for line in joined.splitlines():
        words = line.split()
        word = words[0].upper() if words else ""
        if word == "FROM":
            rest = [w for w in words[1:] if not w.startswith("--")]
            steps += rest[0].lower() not in stages
            if len(rest) >= 3 and rest[1].upper() == "AS":
                stages.add(rest[2].lower())
        else:
            steps += word in {"RUN", "COPY", "ADD", "WORKDIR"}
    return steps
