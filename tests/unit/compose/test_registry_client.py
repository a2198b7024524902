"""How often a request is repeated, when the registry refuses the connection."""

from __future__ import annotations

import errno
import io
import re
import socket
from typing import Any

import pytest
import requests
from requests.adapters import BaseAdapter

from envbuild.compose.outputs.credentials import Credentials
from envbuild.compose.outputs.registry_client import Client, parse
from envbuild.errors import PublishError


class Dying(BaseAdapter):
    """A registry that gives ``answers`` answers, and then fails with ``failure``."""

    def __init__(self, answers: int, failure: Exception) -> None:
        super().__init__()
        self.answers, self.failure, self.asked = answers, failure, 0

    def send(self, request: requests.PreparedRequest, *_args: Any, **_named: Any) -> requests.Response:
        self.asked += 1
        if self.answers == 0:
            raise requests.ConnectionError("HTTPSConnectionPool: Max retries exceeded") from self.failure
        self.answers -= 1
        answer = requests.Response()
        answer.status_code, answer.url, answer.request, answer.raw = 200, str(request.url), request, io.BytesIO(b"ab")
        return answer

    def close(self) -> None:
        """Do nothing, because no connection is open."""


REFUSED = ConnectionRefusedError(111, "Connection refused")


def client(host: str, registry: Dying) -> tuple[Client, list[float]]:
    waits: list[float] = []
    made = Client(parse(f"{host}/lab/env"), Credentials(), pause=waits.append)
    made._session.mount("https://", registry)
    return made, waits


UNKNOWN = socket.gaierror(socket.EAI_NONAME, "Name or service not known")


@pytest.mark.parametrize("failure", [REFUSED, UNKNOWN, OSError(errno.EHOSTUNREACH, "No route to host")])
def test_a_registry_that_cannot_be_connected_to_is_given_up_within_3_seconds(failure):
    registry = Dying(0, failure)
    made, waits = client("never.example.org", registry)
    words = re.escape(str(failure.strerror))
    with pytest.raises(PublishError, match=rf"never.example.org/lab/env cannot be reached: {words}\.$") as caught:
        made.ask("HEAD", made.url("manifests/x"), (200, 404))
    assert sum(waits) <= 2.5 and registry.asked == 3
    assert caught.value.code == "registry-unreachable" and "never.example.org" in caught.value.hint
    with pytest.raises(PublishError):
        list(made.blob("a" * 64, 2))
    assert sum(waits) <= 5 and registry.asked == 6


def test_a_registry_that_answered_before_may_be_restarting():
    """The patience also holds for a second client: `publish` opens one for each step."""
    registry = Dying(1, REFUSED)
    made, waits = client("restarting.example.org", registry)
    assert made.ask("HEAD", made.url("manifests/x"), (200,)).status_code == 200
    for each, its_waits in ((made, waits), client("restarting.example.org", registry)):
        with pytest.raises(PublishError):
            each.ask("HEAD", each.url("manifests/x"), (200,))
        assert len(its_waits) == 5 and sum(its_waits) > 15


@pytest.mark.parametrize("has_layers", [True, False])
def test_only_commands_that_transfer_layers_hint_at_layers(has_layers):
    registry = Dying(0, ConnectionResetError(104, "Connection reset by peer"))
    made = Client(parse("resetting.example.org/lab/env"), Credentials(), has_layers=has_layers, pause=lambda _seconds: None)
    made._session.mount("https://", registry)
    with pytest.raises(PublishError) as caught:
        made.ask("HEAD", made.url("manifests/x"), (200,))
    assert ("layers" in caught.value.hint) == has_layers and caught.value.hint.startswith("Run the command again")


def test_other_failures_of_the_first_connection_are_repeated_as_before():
    registry = Dying(0, ConnectionResetError(104, "Connection reset by peer"))
    made, waits = client("resetting.example.org", registry)
    with pytest.raises(PublishError, match="Connection reset by peer"):
        made.ask("HEAD", made.url("manifests/x"), (200,))
    assert len(waits) == 5


@pytest.mark.parametrize("host", ["localhost:99999", "localhost:0", "r.example.org:65536", "[::1]:70000"])
def test_a_port_that_there_cannot_be_is_no_name_of_a_repository(host: str) -> None:
    with pytest.raises(PublishError, match="is not the name of a repository") as told:
        parse(f"{host}/a")
    assert told.value.code == "repository-name"
    assert told.value.hint == f"A port is a number from 1 to 65535, not {host.rpartition(':')[2]}."


@pytest.mark.parametrize("host", ["localhost:65535", "localhost", "[::1]:5000", "r.example.org"])
def test_a_host_with_or_without_a_port_is_kept(host: str) -> None:
    assert parse(f"{host}/a").host == host
