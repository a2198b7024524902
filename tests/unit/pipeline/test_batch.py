"""Several environments in one run: the order of their start, the effect of a failure, and the exit code of the run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from envbuild import errors
from envbuild.model.progress import Progress
from envbuild.pipeline import batch
from envbuild.pipeline.batch import Job, Outcome
from envbuild.procs import Ended, Said

PASSED = json.dumps({"schema": 1, "status": "pass"})


class Script:
    """Processes with scripted events: an exit code with a document, a line of output, or Ctrl-C while they run."""

    def __init__(self, *events: Said | Ended | type[KeyboardInterrupt]) -> None:
        self._events = list(events)
        self.started: list[str] = []
        self.stopped = 130, '{"schema": 1, "error": {"message": "Stopped."}}'
        self.running: list[str] = []
        self.most = 0

    def start(self, key: str, argv: Sequence[str]) -> None:
        assert argv == ["do", key]
        self.started.append(key)
        self.running.append(key)
        self.most = max(self.most, len(self.running))

    def next(self) -> Said | Ended:
        event = self._events.pop(0)
        if not isinstance(event, Said | Ended):
            raise event
        assert event.key in self.running
        if isinstance(event, Ended):
            self.running.remove(event.key)
        return event

    def stop(self) -> list[Ended]:
        code, output = self.stopped
        ended = [Ended(key=key, code=code, output=output) for key in self.running]
        self.running.clear()
        return ended


class Ears:
    """Records the calls of the listener."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def started(self, job: Job) -> None:
        self.told.append(("started", job.name))

    def news(self, job: Job, news: Progress) -> None:
        self.told.append((job.name, news))

    def line(self, job: Job, text: str) -> None:
        self.told.append((job.name, text))

    def ended(self, outcome: Outcome) -> None:
        self.told.append(("ended", outcome.job.name, outcome.state))


def ended(key: str, code: int = 0, output: str = PASSED) -> Ended:
    return Ended(key=key, code=code, output=output)


def run(
    script: Script, names: str, *, limit: int = 2, keep_going: bool = False, ears: Ears | None = None
) -> dict[str, Outcome]:
    jobs = [Job(name=name, request=name) for name in names]
    found = batch.run(
        jobs,
        lambda job: ["do", job.request],
        limit=limit,
        keep_going=keep_going,
        listener=ears or Ears(),
        children=script,
    )
    assert [each.job for each in found] == jobs
    assert script.running == []
    return {each.job.name: each for each in found}


def states(found: dict[str, Outcome]) -> dict[str, str]:
    return {name: each.state for name, each in found.items()}


def test_no_more_than_the_limit_run_at_the_same_time_and_all_are_done():
    script = Script(ended("b"), ended("a"), ended("c"), ended("d"))
    assert set(states(run(script, "abcd")).values()) == {"done"}
    assert script.started == ["a", "b", "c", "d"]
    assert script.most == 2


def test_one_at_a_time_is_possible():
    script = Script(ended("a"), ended("b"))
    run(script, "ab", limit=1)
    assert script.most == 1


def test_a_failure_lets_the_running_ones_finish_and_starts_nothing_more():
    script = Script(ended("a", 7, '{"error": {"message": "No."}}'), ended("b"))
    found = run(script, "abcd")
    assert states(found) == {"a": "failed", "b": "done", "c": "not started", "d": "not started"}
    assert found["a"].why == "No."
    assert script.started == ["a", "b"]


def test_keep_going_does_all_the_others():
    script = Script(ended("a", 7, "{}"), ended("b"), ended("c"))
    assert states(run(script, "abc", keep_going=True)) == {"a": "failed", "b": "done", "c": "done"}


def test_an_inconclusive_test_stops_nothing():
    script = Script(ended("a", 10), ended("b"))
    assert states(run(script, "ab", limit=1)) == {"a": "inconclusive", "b": "done"}


def test_an_environment_without_changes_is_told_as_kept():
    script = Script(ended("a", 0, '{"nothing_to_do": true}'), ended("b", 0, '{"kept": true}'), ended("c", 0, '{"kept": false}'))
    assert states(run(script, "abc")) == {"a": "kept", "b": "kept", "c": "done"}


def test_ctrl_c_ends_what_runs_and_says_what_was_not_started():
    script = Script(ended("a"), KeyboardInterrupt)
    found = run(script, "abcd", keep_going=True)
    assert states(found) == {"a": "done", "b": "interrupted", "c": "interrupted", "d": "not started"}
    assert batch.worst(each.exit_code for each in found.values()) == 130


def test_a_child_that_ctrl_c_kills_while_it_starts_is_interrupted_and_not_failed():
    script = Script(KeyboardInterrupt)
    script.stopped = -15, ""
    found = run(script, "ab")
    assert states(found) == {"a": "interrupted", "b": "interrupted"}
    assert batch.worst(each.exit_code for each in found.values()) == 130
    assert "memory" not in found["a"].why


class Impatient(Ears):
    """Imitates Ctrl-C while the end of an environment is reported."""

    def ended(self, outcome: Outcome) -> None:
        super().ended(outcome)
        raise KeyboardInterrupt


class Hasty(Ears):
    """Imitates Ctrl-C while the start of an environment is reported."""

    def started(self, job: Job) -> None:
        raise KeyboardInterrupt


def test_the_end_of_an_environment_is_told_only_after_its_beginning():
    script, ears = Script(), Hasty()
    assert states(run(script, "ab", ears=ears)) == {"a": "interrupted", "b": "not started"}
    assert (script.started, ears.told) == ([], [])


def test_ctrl_c_between_two_environments_is_not_told_as_success():
    found = run(Script(ended("a")), "abc", limit=1, ears=Impatient())
    assert states(found) == {"a": "done", "b": "interrupted", "c": "not started"}
    assert batch.worst(each.exit_code for each in found.values()) == 130


def test_ctrl_c_after_the_last_end_changes_nothing():
    assert states(run(Script(ended("a")), "a", ears=Impatient())) == {"a": "done"}


def test_ctrl_c_while_an_answer_is_read_is_told(monkeypatch):
    def interrupted(*_words: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(batch, "outcome_of", interrupted)
    script = Script(ended("a"))
    assert states(run(script, "ab", limit=1)) == {"a": "interrupted", "b": "not started"}


@pytest.mark.parametrize(("code", "how"), [(-9, "killed by signal 9"), (1, "ended with exit code 1")])
def test_a_child_that_dies_without_an_answer_is_a_failure_that_says_so(code, how):
    found = run(Script(ended("a", code, "")), "a")["a"]
    assert found.state == "failed"
    assert found.exit_code == errors.EnvbuildError.exit_code
    assert how in found.why


def test_progress_and_lines_of_the_children_reach_the_listener_and_damaged_ones_are_text():
    step = Progress(stage="download", message="x.whl", done=1.0, total=2.0, unit="bytes")
    lines = [
        '{"progress": {"stage": "download", "message": "x.whl", "done": 1.0, "total": 2.0, "unit": "bytes"}}',
        '{"line": "build  3 s"}',
        "error: no",
        '{"progress": {"stage": "downl',
        '{"progress": {"unknown": 1}}',
        "",
    ]
    ears = Ears()
    run(Script(*(Said(key="a", line=line) for line in lines), ended("a")), "a", ears=ears)
    assert ears.told == [
        ("started", "a"),
        ("a", step),
        ("a", "build  3 s"),
        ("a", "error: no"),
        ("a", '{"progress": {"stage": "downl'),
        ("a", '{"progress": {"unknown": 1}}'),
        ("ended", "a", "done"),
    ]


def test_the_worst_exit_code_is_that_of_the_earliest_stage():
    ordered = [0, 10, 124, 9, 8, 7, 12, 11, 6, 5, 4, 3, 2, 1, 130]
    assert set(ordered) == {0, 1, *(kind.exit_code for kind in errors.EnvbuildError.__subclasses__())}
    for at, code in enumerate(ordered):
        assert batch.worst(reversed(ordered[: at + 1])) == code
    assert batch.worst([]) == 0
