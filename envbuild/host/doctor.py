"""Report what this machine has, what it lacks for building and running images, and how to fix that."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from envbuild import procs
from envbuild.errors import EnvbuildError
from envbuild.host import nvidia
from envbuild.workspace import Workspace

Status = Literal["ok", "info", "warn", "missing"]

_GB = 10**9
_LITTLE_DISK = 15 * _GB  # the size of one GPU image with its build cache
_NO_DISK = 3 * _GB  # the size of a small CPU image
_LITTLE_SHM = 256 * 10**6  # NCCL takes 7 to 10 MB of shared memory per channel, and data loaders take more


@dataclass(frozen=True, kw_only=True, slots=True)
class HostFinding:
    """One finding of the doctor. ``id`` is stable for scripts. ``hint`` says what to do, or is empty.

    ``status`` is ``missing`` if this machine lacks something that it needs to build images, or to use its GPUs. It is ``warn``
    if only some environments need what this machine lacks. It is ``info`` for other facts.
    """

    id: str
    status: Status
    title: str
    message: str
    hint: str = ""


class EngineFacts(Protocol):
    """The facts about an engine that the doctor uses; :class:`envbuild.engine.model.EngineInfo` has them."""

    @property
    def builder(self) -> str:
        """``buildx``, ``docker-buildkit`` or ``classic``."""

    @property
    def builder_version(self) -> str:
        """The version of the program that builds images."""

    @property
    def gives_gpus(self) -> bool:
        """Whether the engine is known to give GPUs to containers, by NVIDIA's runtime or by CDI."""

    @property
    def data_root(self) -> str:
        """The folder of the engine's images."""

    @property
    def free_bytes(self) -> int | None:
        """The free space in the folder of the engine's images."""

    def describe(self) -> str:
        """The engine in one line."""


def doctor(workspace: Workspace, describe_engine: Callable[[Workspace], EngineFacts] | None = None) -> list[HostFinding]:
    """Check everything and return the findings in a fixed order. The checks use no network.

    ``describe_engine`` is :func:`envbuild.engine.choice.describe`; if it is None, the engine is not checked.
    """
    found = [_python(), _home_disk(workspace)]
    facts: EngineFacts | None = None
    if describe_engine is not None:
        try:
            facts = describe_engine(workspace)
        except EnvbuildError as error:
            found += [HostFinding(id="engine", status="missing", title="engine", message=error.message, hint=error.hint)]
            found += [_private_engine()]
    if facts is not None:
        found += [HostFinding(id="engine", status="ok", title="engine", message=facts.describe()), _buildkit(facts)]
        found += _engine_disk(facts)
    found += [_bootstrap(), _shm()]
    gpus = nvidia.gpus()
    found += [_driver(), _gpus(gpus), _toolkit(nvidia.toolkit(), facts, wanted=bool(gpus))]
    return found


def _python() -> HostFinding:
    machine = os.uname()
    message = f"{platform.python_version()} on {machine.sysname} {machine.release}, {machine.machine}"
    return HostFinding(id="python", status="ok", title="Python", message=message)


def _home_disk(workspace: Workspace) -> HostFinding:
    return _disk("disk", "disk for envbuild", workspace.home, "Set ENVBUILD_HOME to a folder on a larger disk.")


def _engine_disk(facts: EngineFacts) -> list[HostFinding]:
    if facts.free_bytes is None:
        return []
    hint = "Free some with `docker system prune`, or move the engine's data root."
    return [_space("engine-disk", "disk for images", facts.data_root, facts.free_bytes, hint)]


def _disk(id_: str, title: str, folder: Path, hint: str) -> HostFinding:
    there = next(place for place in (folder, *folder.parents) if place.exists())
    return _space(id_, title, str(folder), shutil.disk_usage(there).free, hint)


def _space(id_: str, title: str, place: str, free: int, hint: str) -> HostFinding:
    message = f"{free / _GB:.1f} GB free at {place}"
    if free < _NO_DISK:
        return HostFinding(id=id_, status="missing", title=title, message=f"only {message}", hint=hint)
    if free < _LITTLE_DISK:
        return HostFinding(
            id=id_,
            status="warn",
            title=title,
            message=f"{message}; a GPU image takes {_LITTLE_DISK // _GB} GB",
            hint=hint,
        )
    return HostFinding(id=id_, status="ok", title=title, message=message)


def _private_engine() -> HostFinding:
    lacking = [program for program in ("dockerd", "containerd", "runc", "iptables", "ip") if procs.find(program) is None]
    if lacking:
        return HostFinding(
            id="private-engine",
            status="missing",
            title="private engine",
            message=f"cannot be started: {', '.join(lacking)} not installed",
            hint="apt-get install --no-install-recommends docker.io iproute2",
        )
    if os.geteuid() != 0:
        return HostFinding(
            id="private-engine",
            status="warn",
            title="private engine",
            message="only root can start one",
            hint="sudo -E envbuild engine up",
        )
    return HostFinding(
        id="private-engine",
        status="info",
        title="private engine",
        message="not running, but it can be started",
        hint="envbuild engine up",
    )


def _buildkit(facts: EngineFacts) -> HostFinding:
    if facts.builder == "classic":
        return HostFinding(
            id="buildkit",
            status="missing",
            title="BuildKit",
            message="no docker program on this machine can build with BuildKit on this engine",
            hint="Install the buildx plugin (docker-buildx-plugin or docker-buildx), or docker.io before 23.",
        )
    way = "docker buildx" if facts.builder == "buildx" else "docker build with BuildKit"
    return HostFinding(id="buildkit", status="ok", title="BuildKit", message=f"{way} {facts.builder_version}".strip())


def _bootstrap() -> HostFinding:
    title = "base bootstrap"
    if procs.find("mmdebstrap") is None:
        return HostFinding(
            id="bootstrap",
            status="warn",
            title=title,
            message="mmdebstrap is not installed; bases can only be pulled",
            hint="apt-get install --no-install-recommends mmdebstrap",
        )
    if os.geteuid() != 0:
        return HostFinding(
            id="bootstrap",
            status="info",
            title=title,
            message="mmdebstrap is installed, but without root it needs user namespaces",
        )
    return HostFinding(id="bootstrap", status="ok", title=title, message="mmdebstrap, as root")


def _shm() -> HostFinding:
    place = Path("/dev/shm")  # noqa: S108 - only its size is read
    if not place.is_dir():
        return HostFinding(id="shm", status="warn", title="shared memory", message=f"{place} does not exist")
    size = shutil.disk_usage(place).total
    message = f"{place} has {size / _GB:.1f} GB; containers have a /dev/shm of their own (--shm-size)"
    if size < _LITTLE_SHM:
        hint = "Mount a larger one, because workers exchange data there: mount -o remount,size=2G /dev/shm"
        return HostFinding(id="shm", status="warn", title="shared memory", message=message, hint=hint)
    return HostFinding(id="shm", status="ok", title="shared memory", message=message)


def _driver() -> HostFinding:
    driver = nvidia.driver()
    if driver is None:
        return HostFinding(
            id="driver",
            status="info",
            title="NVIDIA driver",
            message="none: GPU images can be built here, but their smoke test will be inconclusive",
        )
    return HostFinding(id="driver", status="ok", title="NVIDIA driver", message=f"{driver.version}, up to CUDA {driver.cuda}")


def _gpus(gpus: Sequence[nvidia.InstalledGpu]) -> HostFinding:
    if not gpus:
        return HostFinding(id="gpus", status="info", title="GPUs", message="none")
    words = [f"{g.index}: {g.name} (sm_{g.capability.replace('.', '')}, {g.memory_bytes / _GB:.0f} GB)" for g in gpus]
    return HostFinding(id="gpus", status="ok", title="GPUs", message="; ".join(words))


def _toolkit(toolkit: nvidia.Toolkit, facts: EngineFacts | None, *, wanted: bool) -> HostFinding:
    title = "NVIDIA container toolkit"
    parts = [word for word in (toolkit.version, toolkit.runtime, toolkit.hook, *toolkit.cdi) if word]
    installed = bool(toolkit.runtime or toolkit.hook or toolkit.cdi)
    hint = "Install nvidia-container-toolkit, run `nvidia-ctk runtime configure --runtime=docker`, restart the engine."
    if not installed:
        if not wanted:
            return HostFinding(
                id="toolkit", status="info", title=title, message="none, but this machine has no GPU that needs it"
            )
        return HostFinding(id="toolkit", status="missing", title=title, message="none: containers get no GPU", hint=hint)
    if wanted and facts is not None and not facts.gives_gpus and not toolkit.hook:
        if toolkit.cdi and not toolkit.runtime:
            message = f"{', '.join(toolkit.cdi)}, but the engine does not use CDI"
            hint = 'With Docker 25 or later, add "features": {"cdi": true} to /etc/docker/daemon.json, and restart the engine.'
        else:
            message = "installed, but the engine does not know its runtime"
        return HostFinding(id="toolkit", status="warn", title=title, message=message, hint=hint)
    return HostFinding(id="toolkit", status="ok", title=title, message=", ".join(parts))
