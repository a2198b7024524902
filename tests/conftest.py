"""What all tests share: unit tests start no process and open no socket, whatever they call."""

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

# How long a loaded machine takes says nothing about the program.
hypothesis.settings.register_profile("any-machine", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("any-machine")

UNIT = Path(__file__).parent / "unit"

# A shell starts what it puts into the background with interrupts ignored, which children inherit: tests that press Ctrl-C on
# a program of ours would then wait for an end that never comes.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _signals_as_before() -> Iterator[None]:
    """A program that was interrupted ignores further signals until it ends; run inside the test's process, it would leave
    that to every process that later tests start (an engine could then not be asked to stop).
    """
    watched = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in watched}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


# Tests that start no engine, wait for no clock and judge no speed: several may run at the same time.
BESIDE_OTHERS = {"unit", "cases", "golden", "contract", "smoke/test_inside.py", "smoke/test_language.py"}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that must run ``alone``: measures of time would be disturbed, and builds share one engine."""
    for item in items:
        place = item.path.relative_to(UNIT.parent)
        if not {place.parts[0], place.as_posix()} & BESIDE_OTHERS:
            item.add_marker("alone")


class LeftTheUnitError(AssertionError):
    """A unit test reached for the outside world."""


@pytest.fixture(autouse=True)
def _stay_inside(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unit tests run on values alone: starting a process or opening a socket fails the test that did it."""
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
    """``--update-golden`` rewrites the golden files instead of comparing with them; the diff is then reviewed."""
    parser.addoption("--update-golden", action="store_true", help="rewrite tests/golden/ from what the code makes now")


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    """Whether this run rewrites the golden files."""
    return bool(request.config.getoption("--update-golden"))
