"""The choice of an engine, and the error if none answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild.engine import choice, docker_client, private_engine
from envbuild.errors import EngineError
from envbuild.workspace import Workspace


@pytest.fixture
def place(tmp_path: Path) -> Workspace:
    return Workspace(root=tmp_path, output=tmp_path, home=tmp_path)


def test_docker_host_is_the_only_choice_where_it_is_set(place):
    assert list(choice.endpoints(place, {"DOCKER_HOST": "tcp://h:1"})) == [("tcp://h:1", "DOCKER_HOST")]


def test_the_default_socket_comes_before_the_private_engine(place, monkeypatch, tmp_path):
    socket = tmp_path / "docker.sock"
    socket.touch()
    monkeypatch.setattr(choice, "DEFAULT_SOCKET", str(socket))
    monkeypatch.setattr(private_engine, "status", lambda _: private_engine.Status(
        running=True, pid=1, socket="/p.sock", data_root="", log="", bridge="", processes=3, data_exists=True
    ))  # fmt: skip
    assert list(choice.endpoints(place, {})) == [(f"unix://{socket}", "default socket"), ("unix:///p.sock", "private engine")]


def test_no_engine_says_what_was_tried_and_what_to_do(place, monkeypatch):
    monkeypatch.setattr(choice, "DEFAULT_SOCKET", "/nowhere/docker.sock")
    with pytest.raises(EngineError) as caught:
        choice.connect(place, {})
    assert (caught.value.code, caught.value.exit_code) == ("no-engine", 6)
    assert "/nowhere/docker.sock" in caught.value.message
    assert "engine up" in caught.value.hint


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("connection refused", "no-engine"),  # a stopped engine leaves its socket
        ("permission denied", "refused"),
    ],
)
def test_a_socket_that_nobody_serves_is_no_refusal(reason, code):
    for origin, wanted in (("default socket", code), ("DOCKER_HOST", "refused")):
        refusal = choice.Refusal(origin=origin, endpoint="unix:///s", reason=reason)
        assert choice.no_engine_error([refusal]).code == wanted


@pytest.mark.parametrize(
    ("words", "meaning"),
    [
        ("('Connection aborted.', PermissionError(13, 'Permission denied'))", "permission denied"),
        ("('Connection aborted.', FileNotFoundError(2, 'No such file or directory'))", "the socket does not exist"),
        ("('Connection aborted.', ConnectionRefusedError(111, 'Connection refused'))", "connection refused"),
        ("UnixHTTPConnectionPool: Read timed out. (read timeout=10)", "no answer in time"),
    ],
)
def test_refusals_in_words(words, meaning):
    assert docker_client.reason_of(Exception(words), "unix:///s") == meaning
