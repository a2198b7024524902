"""Choose the container engine. Try DOCKER_HOST first, then the default socket, then the private engine."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from envbuild import network
from envbuild.engine import docker_program, private_engine
from envbuild.engine.client import Engine
from envbuild.engine.docker_client import NO_PARAMIKO, reach, reason_of
from envbuild.engine.model import EngineInfo, Origin
from envbuild.errors import EngineError
from envbuild.workspace import Workspace

DEFAULT_SOCKET = "/var/run/docker.sock"
_ABSENT = ("the socket does not exist", "connection refused")  # a stopped engine may leave its socket behind


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
    """The reason why the engine at ``endpoint`` cannot be used."""

    origin: Origin
    endpoint: str
    reason: str


def connect(workspace: Workspace, environ: Mapping[str, str] = os.environ) -> Engine:
    """Return the first engine that answers.

    If DOCKER_HOST is set, no other engine is tried, because the user named this engine. Raises :class:`EngineError`:
    ``no-engine`` if there is no engine, ``refused`` if there is an engine but connecting to it fails. With ``--offline``, an
    ssh address raises :class:`BuildError` (``offline``).
    """
    refusals: list[Refusal] = []
    for endpoint, origin in endpoints(workspace, environ):
        if endpoint.startswith("ssh://"):  # the ssh program makes the connections, and this process cannot control them
            network.require(f"The engine in DOCKER_HOST ({endpoint})")
        try:
            open_client = reach(endpoint, environ if origin == "DOCKER_HOST" else {})
        except Exception as error:  # the SDK raises errors of several libraries; all of them mean that connecting failed
            refusals.append(Refusal(origin=origin, endpoint=endpoint, reason=reason_of(error, endpoint)))
            continue
        programs = docker_program.candidates(environ)
        return Engine(open_client=open_client, endpoint=endpoint, origin=origin, docker_programs=programs)
    raise no_engine_error(refusals)


def describe(workspace: Workspace) -> EngineInfo:
    """Return the facts about the engine that :func:`connect` would return. ``doctor`` shows them."""
    return connect(workspace).info


def endpoints(workspace: Workspace, environ: Mapping[str, str]) -> Iterator[tuple[str, Origin]]:
    """Yield the engines to try, in order: the address of each, and the reason for trying it."""
    named = environ.get("DOCKER_HOST")
    if named:
        yield named, "DOCKER_HOST"
        return
    if Path(DEFAULT_SOCKET).exists():
        yield f"unix://{DEFAULT_SOCKET}", "default socket"
    private = private_engine.status(workspace)
    if private.running:
        yield f"unix://{private.socket}", "private engine"


def no_engine_error(refusals: Sequence[Refusal]) -> EngineError:
    """Return the error for a machine without a usable engine. ``refusals`` has the reason for each engine that was tried."""
    named = next((each for each in refusals if each.origin == "DOCKER_HOST"), None)
    if named is not None and named.reason == NO_PARAMIKO:
        return EngineError(
            f"Cannot connect to the engine in DOCKER_HOST ({named.endpoint}): {NO_PARAMIKO}, which ssh needs.",
            code="missing-program",
            hint="To install it, run: pip install 'envbuild[ssh]'. The ssh program must be able to log in to the host "
            "without a question, and docker must be installed there.",
        )
    if named is not None:
        return EngineError(
            f"Cannot connect to the engine in DOCKER_HOST ({named.endpoint}): {named.reason}.",
            code="refused",
            hint="Start the engine, correct DOCKER_HOST, or unset DOCKER_HOST to use the default socket or a private engine.",
        )
    if any(each.reason not in _ABSENT for each in refusals):
        tried = "; ".join(f"{each.origin} {each.endpoint}: {each.reason}" for each in refusals)
        return EngineError(
            f"Cannot connect to a container engine: {tried}.",
            code="refused",
            hint="Join the group of the socket (usually `docker`), or start a private engine as root: envbuild engine up",
        )
    return EngineError(
        f"No container engine responds: DOCKER_HOST is not set, no engine listens on {DEFAULT_SOCKET}, and no private "
        "engine runs.",
        code="no-engine",
        hint="To start a private engine, run `envbuild engine up` (as root, with docker.io installed).",
    )
