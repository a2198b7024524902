"""With --offline unexpected connections are refused, too. This machine itself stays reachable."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from envbuild import network
from envbuild.errors import BuildError

ELSEWHERE = "192.0.2.1"  # an address that is reserved for documentation


def refused(call) -> str:
    with pytest.raises(BuildError) as caught:
        call()
    assert caught.value.code == "offline"
    return caught.value.message


def test_connections_that_nobody_asked_for_are_refused_in_all_threads():
    found: list[str] = []

    def connect() -> None:
        with socket.socket(socket.AF_INET) as one:
            found.append(refused(lambda: one.connect((ELSEWHERE, 80))))

    with network.forbidden():
        thread = threading.Thread(target=connect)
        thread.start()
        thread.join()
        refused(lambda: socket.getaddrinfo("mirror.invalid", 80))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
            refused(lambda: other.sendto(b"x", (ELSEWHERE, 53)))
            refused(lambda: other.sendmsg([b"x"], [], 0, (ELSEWHERE, 53)))
        refused(lambda: socket.gethostbyaddr(ELSEWHERE))
        refused(lambda: socket.getnameinfo((ELSEWHERE, 80), 0))
    assert ELSEWHERE in found[0]


def test_this_machine_stays_reachable_and_the_network_is_allowed_again_afterwards(tmp_path: Path):
    with network.forbidden():
        for family, address in ((socket.AF_INET, ("127.0.0.1", 0)), (socket.AF_UNIX, str(tmp_path / "socket"))):
            with socket.socket(family) as server, socket.socket(family) as client:
                server.bind(address)
                server.listen()
                client.connect(server.getsockname())
                client.sendmsg([b"x"])
        assert network.is_forbidden()
    assert not network.is_forbidden()
    network.require("Anything")
