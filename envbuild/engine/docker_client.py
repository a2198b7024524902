"""Connect the docker SDK to one engine, and explain why a connection failed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from envbuild.engine import unix_socket

if TYPE_CHECKING:
    from docker import DockerClient

NO_PARAMIKO = "the Python package paramiko is not installed"
_HANDSHAKE_S = 10


def open_client(endpoint: str, environ: Mapping[str, str]) -> DockerClient:
    """Return a client of the engine at ``endpoint`` after the engine has answered. A failure may raise errors of several
    libraries."""
    import docker

    if endpoint.startswith("ssh://"):
        # Use the ssh program, which knows the user's configuration, agent and jump hosts, instead of the library paramiko.
        # docker-py imports paramiko anyway.
        found = docker.DockerClient(base_url=endpoint, timeout=_HANDSHAKE_S, use_ssh_client=True)
    elif environ.get("DOCKER_TLS_VERIFY"):
        found = docker.DockerClient.from_env(environment=dict(environ), timeout=_HANDSHAKE_S)
    else:
        found = docker.DockerClient(base_url=endpoint, version="auto", timeout=_HANDSHAKE_S)
    found.ping()
    return found


def reach(endpoint: str, environ: Mapping[str, str]) -> Callable[[], DockerClient]:
    """Check that the engine at ``endpoint`` answers, and return a function that opens a client of the engine. Raises the same
    errors as :func:`open_client`.

    For an engine at a unix socket, this does not import the SDK, because many runs need only :meth:`Engine.image`.
    """
    if endpoint.startswith(unix_socket.SCHEME):
        unix_socket.ping(endpoint, _HANDSHAKE_S)
        return functools.partial(open_client, endpoint, environ)
    found = open_client(endpoint, environ)
    return lambda: found


def reason_of(error: Exception, endpoint: str) -> str:
    """Explain why connecting to ``endpoint`` failed."""
    text = " ".join(str(error).split())
    if "paramiko" in text:
        return NO_PARAMIKO
    broken = ("Broken pipe", "Connection aborted", "Connection reset")
    if endpoint.startswith("ssh://") and any(each in text for each in broken):
        return "ssh cannot connect, or docker does not answer there; see what ssh printed above"
    for phrase, meaning in (
        ("PermissionError", "permission denied"),
        ("Permission denied", "permission denied"),
        ("FileNotFoundError", "the socket does not exist"),
        ("No such file", "the socket does not exist"),
        ("Connection refused", "connection refused"),
        ("ConnectionRefusedError", "connection refused"),
        ("timed out", "no answer in time"),
    ):
        if phrase in text:
            return meaning
    return text
