"""Requests to an engine at a Unix socket without the docker SDK, and errors for malformed or missing answers."""

from __future__ import annotations

import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from envbuild.engine import unix_socket
from envbuild.engine.choice import connect
from envbuild.engine.client import Engine
from envbuild.errors import EngineError
from envbuild.workspace import Workspace

ANSWERS: dict[str, bytes] = {}


class Handler(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        target = self.rfile.readline().split()[1].decode()
        while self.rfile.readline().strip():
            pass
        self.wfile.write(ANSWERS.get(target, b""))


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[str]:
    ANSWERS.clear()
    ANSWERS["/_ping"] = b"HTTP/1.0 200 OK\r\n\r\nOK"
    with socketserver.ThreadingUnixStreamServer(str(tmp_path / "s"), Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield f"unix://{tmp_path / 's'}"
        server.shutdown()


def engine_at(endpoint: str, tmp_path: Path) -> Engine:
    return connect(Workspace(root=tmp_path, output=tmp_path, home=tmp_path), {"DOCKER_HOST": endpoint})


def test_an_image_is_found_by_every_kind_of_name(endpoint: str, tmp_path: Path) -> None:
    body = b'{"Id": "sha256:1", "RepoTags": null, "Config": {"Labels": null, "Env": ["A=1"]}, "RootFS": {"Layers": ["x"]}}'
    for name in ("host.example:5000/a/b:1", "a@sha256:1", "sha256:1"):
        ANSWERS[f"/images/{name}/json"] = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n" + body
        found = engine_at(endpoint, tmp_path).image(name)
        assert found is not None and (found.id, found.tags, found.env, found.layers) == ("sha256:1", (), ("A=1",), ("x",))


def test_an_image_that_is_not_there_is_none(endpoint: str, tmp_path: Path) -> None:
    ANSWERS["/images/a/json"] = b'HTTP/1.0 404 Not Found\r\n\r\n{"message":"No such image: a"}'
    assert engine_at(endpoint, tmp_path).image("a") is None


@pytest.mark.parametrize("answer", [b"", b"nonsense", b'HTTP/1.0 500 Oops\r\n\r\n{"message":"no disk"}'])
def test_an_engine_that_ends_or_refuses_is_gone(endpoint: str, tmp_path: Path, answer: bytes) -> None:
    ANSWERS["/images/a/json"] = answer
    with pytest.raises(EngineError) as caught:
        engine_at(endpoint, tmp_path).image("a")
    assert caught.value.code == "engine-gone"
    assert "no disk" in caught.value.message or "does not use HTTP" in caught.value.message


@pytest.mark.parametrize(("answer", "reason"), [(b"SSH-2.0\r\n", "does not use HTTP"), (b"HTTP/1.0 403 No\r\n\r\n", "403")])
def test_what_is_no_engine_is_refused(endpoint: str, tmp_path: Path, answer: bytes, reason: str) -> None:
    ANSWERS["/_ping"] = answer
    with pytest.raises(EngineError, match=reason) as caught:
        engine_at(endpoint, tmp_path)
    assert caught.value.code == "refused"


def test_nobody_there_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        unix_socket.ping(f"unix://{tmp_path / 'absent'}", 5)


def test_the_sdk_is_not_imported_to_look_for_an_image(endpoint: str, tmp_path: Path) -> None:
    ANSWERS["/images/a/json"] = b"HTTP/1.0 404 Not Found\r\n\r\n"
    code = (
        "import sys; from pathlib import Path\n"
        "from envbuild.engine.choice import connect; from envbuild.workspace import Workspace\n"
        "w = Workspace(**dict.fromkeys(('root', 'output', 'home'), Path(sys.argv[2])))\n"
        "assert connect(w, {'DOCKER_HOST': sys.argv[1]}).image('a') is None\n"
        "assert not {'docker', 'requests'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, endpoint, str(tmp_path)], check=True)
