"""The settings with which a container of an image starts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Program = Literal["docker", "podman", "apptainer"]
# How a program gives a container its GPUs: with Docker's option --gpus, or by the device names of the Container Device
# Interface.
GpuOption = Literal["gpus", "cdi"]

SHM_SIZE = "8g"  # of /dev/shm, if the user names no size; the default of Docker is too small for data loaders and collectives
WORKSPACE = "/workspace"  # the working folder of every image


@dataclass(frozen=True, kw_only=True, slots=True)
class Port:
    """A port in the container, and the port of this machine that is forwarded to it. Other machines cannot reach the forwarded
    port."""

    host: int
    container: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ContainerRun:
    """A container to start. ``image`` is a reference that the program understands.

    ``folder`` is mounted as the working folder; it is None if no folder is mounted. ``user`` is ``UID:GID``, or empty for the
    image's own user. ``gpus`` has indexes or UUIDs of GPUs, or ``all``; it is empty if the container gets no GPU.
    ``is_rootless`` is true if the program maps root of the container to the user. ``tls`` is false for a registry of this
    machine without TLS.
    """

    image: str
    command: tuple[str, ...] = ()
    folder: Path | None = None
    user: str = ""
    gpus: tuple[str, ...] = ()
    gpu_option: GpuOption = "gpus"
    shm_size: str = SHM_SIZE
    ports: tuple[Port, ...] = ()
    variables: tuple[str, ...] = ()
    mounts: tuple[str, ...] = ()
    is_interactive: bool = False
    is_rootless: bool = False
    tls: bool = True
