"""The private engine without starting it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from envbuild.engine import private_engine
from envbuild.errors import EngineError
from envbuild.workspace import Workspace


@pytest.fixture
def place(tmp_path: Path) -> Workspace:
    return Workspace(root=tmp_path, output=tmp_path, home=tmp_path)


def test_names_fit_their_limits(tmp_path):
    short = private_engine._Places(folder=Path("/h/engine"))
    long = private_engine._Places(folder=Path("/" + "x" * 150) / "engine")
    assert short.socket == Path("/h/engine/docker.sock")
    assert len(str(long.socket)) <= 107
    assert long.socket != private_engine._Places(folder=Path("/" + "y" * 150) / "engine").socket
    assert len(short.bridge) <= 15


def test_only_root_may_start_it(place, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(EngineError) as caught:
        private_engine.up(place)
    assert caught.value.code == "not-root"
    assert not place.engine.exists()


def test_status_of_what_never_ran(place):
    status = private_engine.status(place)
    assert (status.running, status.pid, status.processes, status.bridge, status.data_exists) == (False, None, 0, "", False)
