"""Chooses the engine: DOCKER_HOST, the default socket, the private engine, in that order."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from envbuild.engine import private_engine
from envbuild.engine.client import Engine
from envbuild.engine.model import EngineInfo, Origin
from envbuild.errors import EngineError
from envbuild.workspace import Workspace

if TYPE_CHECKING:
    from docker import DockerClient

DEFAULT_SOCKET = "/var/run/docker.sock"
_HANDSHAKE_S = 10
_NO_PARAMIKO = "the Python package paramiko is not installed"
_ABSENT = ("the socket does not exist", "nothing listens there")  # what a stopped engine leaves is no refusal


def connect(workspace: Workspace, environ: Mapping[str, str] = os.environ) -> Engine:
    """The first engine that answers.

    Where DOCKER_HOST is set nothing else is tried: another engine than the one named would surprise. Raises
    :class:`EngineError` with code ``no-engine`` where none is there and ``refused`` where one is and turned us away.
    """
    refusals: list[str] = []
    for endpoint, origin in _endpoints(workspace, environ):
        try:
            found = client(endpoint, environ if origin == "DOCKER_HOST" else {})
        except Exception as error:  # the SDK lets errors of several libraries through, all meaning the same
            refusals.append(f"{origin} {endpoint}: {_why(error, by_ssh=endpoint.startswith('ssh://'))}")
            continue
        return Engine(client=found, endpoint=endpoint, origin=origin)
    raise _none_answers(refusals, named=bool(environ.get("DOCKER_HOST")))


def describe(workspace: Workspace) -> EngineInfo:
    """What :func:`connect` would give, as facts; for ``doctor``."""
    return connect(workspace).info


def _endpoints(workspace: Workspace, environ: Mapping[str, str]) -> Iterator[tuple[str, Origin]]:
    named = environ.get("DOCKER_HOST")
    if named:
        yield named, "DOCKER_HOST"
        return
    if Path(DEFAULT_SOCKET).exists():
        yield f"unix://{DEFAULT_SOCKET}", "default socket"
    private = private_engine.status(workspace)
    if private.running:
        yield f"unix://{private.socket}", "private engine"


def client(endpoint: str, environ: Mapping[str, str]) -> DockerClient:
    """A client of the engine at ``endpoint``, which has answered; raises errors of several libraries where it does not."""
    import docker

    if endpoint.startswith("ssh://"):
        # The ssh program rather than paramiko's own: it knows the user's configuration, agent and jump hosts. docker-py imports
        # paramiko all the same.
        found = docker.DockerClient(base_url=endpoint, timeout=_HANDSHAKE_S, use_ssh_client=True)
    elif environ.get("DOCKER_TLS_VERIFY"):
        found = docker.DockerClient.from_env(environment=dict(environ), timeout=_HANDSHAKE_S)
    else:
        found = docker.DockerClient(base_url=endpoint, version="auto", timeout=_HANDSHAKE_S)
    found.ping()
    return found


def _why(error: Exception, *, by_ssh: bool = False) -> str:
    text = " ".join(str(error).split())
    if "paramiko" in text:
        return _NO_PARAMIKO
    if by_ssh and any(phrase in text for phrase in ("Broken pipe", "Connection aborted", "Connection reset")):
        return "ssh does not get there, or docker does not answer there; what ssh said is above"
    for phrase, meaning in (
        ("PermissionError", "permission denied"),
        ("Permission denied", "permission denied"),
        ("FileNotFoundError", "the socket does not exist"),
        ("No such file", "the socket does not exist"),
        ("Connection refused", "nothing listens there"),
        ("ConnectionRefusedError", "nothing listens there"),
        ("timed out", "no answer in time"),
    ):
        if phrase in text:
            return meaning
    return text


def _endpoint(refusal: str) -> str:
    return refusal.partition(": ")[0].partition(" ")[2]


def _none_answers(refusals: list[str], *, named: bool) -> EngineError:
    if named and refusals[0].endswith(_NO_PARAMIKO):
        return EngineError(
            f"Cannot connect to the engine in DOCKER_HOST ({_endpoint(refusals[0])}): {_NO_PARAMIKO}, which ssh needs.",
            code="missing-program",
            hint="Install it: pip install 'envbuild[ssh]'. The ssh program must reach the host without a question, and docker "
            "must be there.",
        )
    if named:
        return EngineError(
            f"Cannot connect to the engine in DOCKER_HOST ({_endpoint(refusals[0])}): {refusals[0].partition(': ')[2]}.",
            code="refused",
            hint="Start it, correct DOCKER_HOST, or unset it to use the default socket or a private engine.",
        )
    if any(not refusal.endswith(_ABSENT) for refusal in refusals):
        return EngineError(
            f"No container engine serves us: {'; '.join(refusals)}.",
            code="refused",
            hint="Join the group of the socket (usually `docker`), or run `envbuild engine up` as root for a private engine.",
        )
    return EngineError(
        f"No container engine answers: DOCKER_HOST is not set, nothing serves {DEFAULT_SOCKET}, and no private engine runs.",
        code="no-engine",
        hint="`envbuild engine up` starts a private one (as root, with docker.io installed).",
    )
