"""Fixtures and hooks of all tests. Unit tests may start no process and open no socket."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import hypothesis
import pytest

# No deadlines: on a loaded machine an example can take long without a fault of the program.
hypothesis.settings.register_profile("any-machine", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("any-machine")

UNIT = Path(__file__).parent / "unit"

# A shell starts background processes with SIGINT ignored, and their children inherit that. Tests that send SIGINT to envbuild
# would then wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _signals_as_before() -> Iterator[None]:
    """Restore the signal handlers after each test.

    envbuild ignores further signals after it was interrupted, until it ends. If a test runs it inside the test process, all
    processes that later tests start would ignore signals, too; an engine could then not be stopped.
    """
    watched = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in watched}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


# Tests that build images of real frameworks. They take the longest, so they begin first.
FRAMEWORKS = {
    "integration/test_archive_moved_on.py",
    "integration/test_composed_images.py",
    "integration/test_make_builds.py",
    "integration/test_same_layers.py",
    "integration/test_stand_in_stacks.py",
}
assert all((UNIT.parent / place).is_file() for place in FRAMEWORKS), "a file was renamed: correct its name here, too"
# The groups that a worker begins with, in this order. The others follow, those with the most tests first.
FIRST = ("frameworks", "engine", "training", "alone")


def group_of(item: pytest.Item) -> str:
    """The tests that one worker runs one after another, because they share fixtures or would disturb each other.

    Tests with an engine share one: two engines need root, and without root there is one group. Two trainings at once would
    each have half of the processors. The other tests of a file share its fixtures and caches. "alone" is no group: these tests
    take long, and each may run beside any other.
    """
    place = item.path.relative_to(UNIT.parent)
    if item.get_closest_marker("engine"):
        return "frameworks" if place.as_posix() in FRAMEWORKS and os.geteuid() == 0 else "engine"
    if place.parts[0] != "smoke" or place.name == "test_language.py":
        return place.as_posix()
    return "alone" if place.name == "test_inside.py" else "training"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give each test its group; with ``--dist loadgroup`` one worker runs a whole group.

    With ``--no-loadscope-reorder`` the groups begin in the order of the tests: long ones first, so that no worker waits long
    at the end.
    """
    groups = {item: group_of(item) for item in items}
    for item, group in groups.items():
        if group != "alone":
            item.add_marker(pytest.mark.xdist_group(group))
    if config.getoption("loadgroup", default=False):  # set in a worker of --dist loadgroup only
        sizes = Counter(groups.values())
        rank = {name: place for place, name in enumerate(FIRST)}
        items.sort(key=lambda item: (rank.get(groups[item], len(rank)), -sizes[groups[item]]))


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Stop if pytest-xdist ignores the groups, as version 3.8 does with pytest 9.2: two workers would then share one engine.

    In a worker, pytest-xdist names the group at the end of the test's ID.
    """
    if session.config.getoption("loadgroup", default=False):  # set in a worker of --dist loadgroup only
        lost = [item.nodeid for item in session.items if item.get_closest_marker("xdist_group") and "@" not in item.nodeid]
        if lost:
            message = f"pytest-xdist ignores the group of {lost[0]}; see the bound of pytest in pyproject.toml"
            raise pytest.UsageError(message)


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Shorten the names of tests with long parameters: reports show them, and workers look tests up by them."""
    return f"{argname}-of-{len(val)}" if isinstance(val, str | bytes) and len(val) > 200 else None


FREE_BYTES: list[int] = []  # of the disk with temporary files: at the start, and at the least


def pytest_sessionstart(session: pytest.Session) -> None:
    """Watch the disk, once for all workers."""

    def watch() -> None:
        while True:
            now = shutil.disk_usage(tempfile.gettempdir()).free
            FREE_BYTES[:] = [FREE_BYTES[0], min(FREE_BYTES[1], now)] if FREE_BYTES else [now, now]
            time.sleep(2)

    if not hasattr(session.config, "workerinput"):
        threading.Thread(target=watch, daemon=True).start()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how much of the disk the run needed, if it was much."""
    if FREE_BYTES and FREE_BYTES[0] - FREE_BYTES[1] > 1e9:
        start, least = (f"{each / 1e9:.1f} GB" for each in FREE_BYTES)
        terminalreporter.write_line(f"disk of temporary files: {start} free at the start, {least} at the least")


class LeftTheUnitError(AssertionError):
    """A unit test started a process or opened a socket."""


@pytest.fixture(autouse=True)
def _stay_inside(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail a unit test that starts a process or opens a socket."""
    if UNIT not in request.path.parents:
        return

    def refuse(what: str):
        def call(*args: object, **kwargs: object) -> NoReturn:
            raise LeftTheUnitError(f"a unit test must not {what}; such tests live in tests/integration")

        return call

    monkeypatch.setattr(subprocess, "Popen", refuse("start a process"))
    for name in ("fork", "forkpty", "posix_spawn", "posix_spawnp", "system", "execv", "execve"):
        monkeypatch.setattr(os, name, refuse("start a process"))
    monkeypatch.setattr(socket.socket, "connect", refuse("open a socket"))
    monkeypatch.setattr(socket.socket, "bind", refuse("open a socket"))
    monkeypatch.setattr(socket, "create_connection", refuse("open a socket"))
    monkeypatch.setattr(socket, "getaddrinfo", refuse("look a host up"))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--update-golden``, which rewrites the golden files instead of comparing with them. Review the diff afterwards."""
    parser.addoption("--update-golden", action="store_true", help="rewrite tests/golden/ from what the code makes now")


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    """Whether this run rewrites the golden files."""
    return bool(request.config.getoption("--update-golden"))
