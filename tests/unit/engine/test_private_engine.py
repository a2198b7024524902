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


def test_the_socket_lies_in_the_engines_folder_unless_its_path_would_be_too_long(tmp_path):
    def socket_of(home: Path) -> str:
        return private_engine.status(Workspace(root=tmp_path, output=tmp_path, home=home)).socket

    short, long, other = socket_of(Path("/h")), socket_of(Path("/" + "x" * 150)), socket_of(Path("/" + "y" * 150))
    assert short == "/h/engine/docker.sock"
    assert len(long) <= 107
    assert long != other


def test_only_root_may_start_it(place, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(EngineError) as caught:
        private_engine.up(place)
    assert caught.value.code == "not-root"
    assert not place.engine.exists()


def test_status_of_what_never_ran(place):
    status = private_engine.status(place)
    assert (status.running, status.pid, status.processes, status.bridge, status.data_exists) == (False, None, 0, "", False)
