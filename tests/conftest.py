"""Fixtures and hooks of all tests. Unit tests may start no process and open no socket."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
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


# Tests that start no engine and train nothing. Each of them may run beside any other.
FREE = {"unit", "cases", "golden", "contract", "smoke/test_inside.py", "smoke/test_language.py"}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put tests that would disturb each other into one group; with ``--dist loadgroup`` one worker runs a whole group.

    The tests with an engine share one engine, and two trainings at once would each have half of the processors. The other
    integration tests of a file share its fixtures.
    """
    for item in items:
        place = item.path.relative_to(UNIT.parent)
        if not {place.parts[0], place.as_posix()} & FREE:
            shared = "engine" if item.get_closest_marker("engine") else place.as_posix()
            item.add_marker(pytest.mark.xdist_group("training" if place.parts[0] == "smoke" else shared))


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
