"""Writes the files with which other programs start an image: Compose, and editors that use development containers. Pure.

Compose: https://github.com/compose-spec/compose-spec/blob/main/spec.md. Development containers:
https://containers.dev/implementors/json_reference/.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from envbuild.run_commands.model import WORKSPACE, Port

COMPOSE, DEVCONTAINER = "compose.yaml", ".devcontainer/devcontainer.json"
_USER = "envbuild"


@dataclass(frozen=True, kw_only=True, slots=True)
class Exported:
    """The values that the files contain. ``python`` is the image's interpreter. The Compose file starts the ``services``.

    ``user`` is the name of the account in the image, if the image is based on an image of your own; it is empty for the
    account that envbuild makes.
    """

    name: str
    image: str
    title: str
    gpu: bool
    shm_size: str
    ports: tuple[Port, ...] = ()
    services: tuple[str, ...] = ()
    python: str = ""
    user: str = ""


def compose(what: Exported) -> str:
    """A Compose file with one service. The service mounts the folder of the Compose file, and gives a GPU image all GPUs."""
    service: dict[str, Any] = {
        "image": what.image,
        "user": "${ENVBUILD_USER:-1000:1000}",
        "volumes": [f".:{WORKSPACE}"],
        "working_dir": WORKSPACE,
        "shm_size": what.shm_size,
        "stdin_open": True,
        "tty": True,
    }
    if what.services:
        service["command"] = ["envbuild-start", *what.services]
    if what.ports:
        service["ports"] = [f"127.0.0.1:{port.host}:{port.container}" for port in what.ports]
    if what.gpu:
        devices = [{"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}]
        service["ulimits"] = {"memlock": -1, "stack": 67108864}
        service["deploy"] = {"resources": {"reservations": {"devices": devices}}}
    head = [
        f"{what.title}, written by `envbuild export {what.name} --format compose`.",
        "Start it:      docker compose up" if what.services else f"Enter it:      docker compose run --rm {_key(what.name)}",
        "The container writes files here as user 1000. To own them, run: export ENVBUILD_USER=$(id -u):$(id -g)",
    ]
    if what.gpu:
        head.append("Without a GPU: remove the part `deploy`, with which no container starts there.")
    text = yaml.safe_dump({"services": {_key(what.name): service}}, sort_keys=False, width=200)
    return "".join(f"# {line}\n" for line in head) + text


def devcontainer(what: Exported) -> str:
    """A `devcontainer.json`. Editors run as the image's user. The UID of that user is changed to the UID of the user on this
    machine."""
    settings = {"python.defaultInterpreterPath": what.python} if what.python else {}
    content: dict[str, Any] = {
        "name": what.title,
        "image": what.image,
        "workspaceFolder": WORKSPACE,
        "workspaceMount": f"source=${{localWorkspaceFolder}},target={WORKSPACE},type=bind",
        "remoteUser": what.user or _USER,
        "updateRemoteUserUID": True,
        "runArgs": _run_arguments(what),
        "customizations": {"vscode": {"extensions": ["ms-python.python"], "settings": settings}},
    }
    if what.gpu:
        content["hostRequirements"] = {"gpu": "optional"}  # use GPUs if the machine has any
    if what.ports:
        content["forwardPorts"] = [port.container for port in what.ports]
    if what.services:
        content["postAttachCommand"] = f"echo 'Services of this image: envbuild-start {' '.join(what.services)}'"
    return json.dumps(content, indent=2) + "\n"


def _run_arguments(what: Exported) -> Sequence[str]:
    return [f"--shm-size={what.shm_size}", *(["--ulimit=memlock=-1", "--ulimit=stack=67108864"] if what.gpu else [])]


def _key(name: str) -> str:
    """The name of the Compose service: ``name``, with underscores in place of characters that are not allowed there."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", name)
