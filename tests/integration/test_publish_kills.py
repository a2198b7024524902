"""`envbuild publish` is killed (SIGKILL) at any moment, with Debian's docker-registry as the registry.

At no moment a tag names an unproved image, and the next run completes the publication.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from debian_registry import DebianRegistry, run_debians, serve_debians
from killed_commands import publish_words, run_and_kill
from registry_judge import Judge
from stood_in_stages import Stages, stand_in

ONE, TWO = "opencv-5.0.0.93-cpu-py311-debian12", "opencv-4.10.0.84-cpu-py311-debian12"


@pytest.fixture
def stages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stages:
    return stand_in(tmp_path, monkeypatch, {ONE: "first", TWO: "first"})


@pytest.fixture
def host(tmp_path: Path) -> Iterator[str]:
    with serve_debians(tmp_path) as address:
        yield address


def kills(
    stages: Stages,
    judge: Judge,
    words: list[str],
    names: list[str],
    moments: Iterator[dict[str, Any]],
    before: Callable[[], None],
) -> int:
    """Kill the command at each of the moments, each time with new images; return how often the kill came before its end."""
    killed = 0
    for number, moment in enumerate(moments):
        stages.contents |= dict.fromkeys(names, f"content {number}")
        before()
        old = judge.require_truth()
        killed += run_and_kill(words, **moment) < 0
        there = judge.require_truth()
        assert run_and_kill(words) == 0
        after = judge.require_truth()
        for name in names:
            assert after[name] != old.get(name) and there.get(name) in (old.get(name), after[name]), moment
    judge.require_truth(whole=True)
    return killed


def moments(requests_: range, times: int, longest: float) -> Iterator[dict[str, Any]]:
    yield from ({"after_requests": number} for number in requests_)
    chance = random.Random(15)
    yield from ({"after_seconds": chance.uniform(0.001, longest)} for _ in range(times))


@pytest.mark.parametrize("count", [24])
def test_a_killed_publisher_leaves_no_lie(stages, host, tmp_path, count):
    words = publish_words(host, tmp_path, ONE)
    assert run_and_kill(words) == 0
    found = moments(range(count, count + 1), 0, 0)
    assert kills(stages, Judge(host), words, [ONE], found, lambda: None) == 1


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[DebianRegistry]:
    with run_debians(tmp_path) as running:
        yield running


@contextlib.contextmanager
def _restarted_when_killed(registry: DebianRegistry) -> Iterator[list[int]]:
    """Start the registry again a moment after it is killed, and yield a list that then has its exit code."""
    is_over, codes = threading.Event(), list[int]()

    def watch() -> None:
        while (code := registry.process.poll()) is None and not is_over.wait(0.02):
            pass
        if code is not None:
            time.sleep(0.2)
            registry.start()
            codes.append(code)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield codes
    finally:
        is_over.set()
        thread.join(90)


@pytest.mark.parametrize("numbers", [(4, 22), pytest.param(itertools.count(1), marks=pytest.mark.prove)], ids=["two", "each"])
def test_a_registry_that_is_killed_and_comes_back_gets_the_whole_image(stages, registry, tmp_path, numbers):
    words, judge = publish_words(registry.host, tmp_path, ONE), Judge(registry.host)
    assert run_and_kill(words) == 0
    for number in numbers:
        old = judge.require_truth()
        stages.contents[ONE] = f"content {number}"
        with _restarted_when_killed(registry) as killed:
            assert run_and_kill(words, after_requests=number, registry=registry.process.pid) == 0, number
        assert judge.require_truth()[ONE] != old[ONE]
        if not killed:  # the publication needed fewer requests
            assert number > 30
            break
        assert killed == [-signal.SIGKILL]


@pytest.mark.prove
def test_a_registry_that_is_killed_and_stays_away_is_an_error(stages, registry, tmp_path, capfd):
    """The command says so after about half a minute, and publishes when the registry is back."""
    words, judge = publish_words(registry.host, tmp_path, ONE), Judge(registry.host)
    assert run_and_kill(words) == 0
    old = judge.require_truth()
    stages.contents[ONE] = "new"
    assert run_and_kill(words, after_requests=22, registry=registry.process.pid) == 11
    error = capfd.readouterr().err
    assert f"The registry of {registry.host}/lab/dl cannot be reached" in error and "Traceback" not in error
    assert registry.process.wait(60) == -signal.SIGKILL
    registry.start()
    assert judge.require_truth()[ONE] == old[ONE]
    assert run_and_kill(words) == 0
    assert judge.require_truth()[ONE] != old[ONE]


@pytest.mark.prove
def test_a_publisher_is_killed_a_hundred_times(stages, host, tmp_path):
    """Kill it after each request until it needs no more requests, then at random moments."""
    words, judge = publish_words(host, tmp_path, ONE), Judge(host)
    began = time.monotonic()
    assert run_and_kill(words) == 0
    longest = time.monotonic() - began
    killed = kills(stages, judge, words, [ONE], moments(range(1, 51), 70, longest), lambda: None)
    assert killed >= 70, killed


def release_and_hold(stages: Stages, host: str, folder: Path, words: list[str]) -> Callable[[], None]:
    """Return a function that publishes both images without moving tags. It sets ``words`` to the command that releases them."""
    held = [publish_words(host, folder, name, "--hold-tags") for name in (ONE, TWO)]
    turns = iter(range(1_000))

    def hold() -> None:
        for each in held:
            assert run_and_kill(each) == 0
        words[:] = publish_words(host, folder, ONE, TWO, "--release", f"r{next(turns)}")

    return hold


@pytest.mark.parametrize(
    ("numbers", "times", "least"),
    [((40,), 0, 1), pytest.param(range(1, 90, 2), 10, 30, marks=pytest.mark.prove)],
    ids=["one", "each"],
)
def test_a_release_is_killed_after_each_request(stages, host, tmp_path, numbers, times, least):
    """The registry has both images, and the release moves their tags."""
    judge, words = Judge(host), list[str]()
    hold = release_and_hold(stages, host, tmp_path, words)
    hold()
    assert run_and_kill(words) == 0
    killed = kills(stages, judge, words, [ONE, TWO], moments(numbers, times, 1.0), hold)
    print(f"\n{killed} kills of a release, {judge.requests} requests of the judge")
    assert killed >= least


@pytest.mark.parametrize("numbers", [(12,), pytest.param(range(1, 60, 2), marks=pytest.mark.prove)], ids=["one", "each"])
def test_a_rollback_is_killed_after_each_request(stages, host, tmp_path, numbers):
    judge, words, killed = Judge(host), list[str](), 0
    hold = release_and_hold(stages, host, tmp_path, words)
    for content in ("first", "second"):
        stages.contents |= dict.fromkeys((ONE, TWO), content)
        hold()
        assert run_and_kill(words) == 0
    back = publish_words(host, tmp_path, "--rollback")
    new = judge.require_truth()
    for number in numbers:
        killed += run_and_kill(back, after_requests=number) < 0
        between = judge.require_truth()
        if between["release"] == new["release"]:
            assert run_and_kill(back) == 0
        old = judge.require_truth()
        assert all(between[name] in (old[name], new[name]) and old[name] != new[name] for name in (ONE, TWO)), number
        assert run_and_kill(words) == 0
        assert {name: judge.require_truth()[name] for name in (ONE, TWO)} == {name: new[name] for name in (ONE, TWO)}
    judge.require_truth(whole=True)
    print(f"\n{killed} kills of a rollback, {judge.requests} requests of the judge")


@pytest.mark.parametrize("deletes", [True, False], ids=["deletes", "cannot delete"])
@pytest.mark.parametrize("numbers", [(24,), pytest.param(range(1, 70, 2), marks=pytest.mark.prove)], ids=["one", "each"])
def test_a_rollback_that_removes_tags_is_killed_after_each_request(stages, tmp_path, numbers, deletes):
    """The earlier release does not have the second image. No moving tag names this image when the rollback is complete."""
    with serve_debians(tmp_path, deletes=deletes) as host:
        judge, words, killed = Judge(host), list[str](), 0
        hold = release_and_hold(stages, host, tmp_path, words)
        hold()
        assert run_and_kill(publish_words(host, tmp_path, ONE, "--release", "small")) == 0
        stages.contents |= dict.fromkeys((ONE, TWO), "second")
        hold()
        back = publish_words(host, tmp_path, "--rollback")
        for number in numbers:
            assert run_and_kill(words) == 0
            new = judge.require_truth()
            killed += run_and_kill(back, after_requests=number) < 0
            between = judge.require_truth()
            if between["release"] == new["release"]:
                assert run_and_kill(back) == 0
            old = judge.require_truth()
            assert old[ONE] != new[ONE] and old.get(TWO) != new[TWO] and (TWO in old) != deletes, number
            assert between.get(TWO) in (new[TWO], old.get(TWO)) or judge.names_nothing(between[TWO]), number
            moving = {tag: digest for tag, digest in old.items() if not judge.is_fixed(tag)}
            assert not {*moving.values()} & {new[ONE], new[TWO]}, number
        judge.require_truth(whole=True)
        print(f"\n{killed} kills of a rollback that removes tags, {judge.requests} requests of the judge")
