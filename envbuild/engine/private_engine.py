"""Start and stop the private engine: a Docker daemon whose data is in the cache folder. It leaves nothing else behind.

The daemon is the second process of a separate PID and mount namespace. ``down`` or ``kill -9`` ends the first process of the
namespace. The kernel then ends every process inside (containerd, shims, containers, build steps) and removes every mount. The
daemon is recognised by the data folder in its command line in /proc, so there is no pid file that could be wrong.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from envbuild import files, procs
from envbuild.engine import daemon, private_network, unix_socket
from envbuild.errors import EngineError
from envbuild.model.progress import OnProgress, Progress, as_news, ignore_progress
from envbuild.workspace import Workspace

_START_S = 60.0
_STOP_S = 30.0
_SOCKET_LIMIT = 107  # bytes: sizeof(sockaddr_un.sun_path) - 1, see unix(7)
# This folder is not in /run/lock, where every user may place a link. Only root can write to /run.
_SHARED = Path("/run/envbuild")


@dataclass(frozen=True, kw_only=True, slots=True)
class Status:
    """The state of the private engine. ``pid`` is the process number of dockerd, None if dockerd does not run. ``bridge`` is
    empty if there is no bridge."""

    running: bool
    pid: int | None
    socket: str
    data_root: str
    log: str
    bridge: str
    processes: int
    data_exists: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class _Places:
    folder: Path

    @property
    def mark(self) -> str:
        return hashlib.sha256(bytes(self.folder)).hexdigest()[:8]

    @property
    def bridge(self) -> str:
        return f"envb{self.mark}"  # the name of a network interface has at most 15 bytes

    @property
    def socket(self) -> Path:
        beside = self.folder / "docker.sock"
        return beside if len(bytes(beside)) <= _SOCKET_LIMIT else Path(f"/run/envbuild-{self.mark}.sock")

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def log(self) -> Path:
        return self.folder / "docker.log"

    @property
    def pid_file(self) -> Path:
        return self.folder / "docker.pid"

    @property
    def cgroup(self) -> str:
        return f"/envbuild-{self.mark}"


def status(workspace: Workspace) -> Status:
    """Return the state of the private engine. This needs no root rights and starts nothing."""
    places = _Places(folder=workspace.engine)
    found = _processes(places)
    pid = found.get("dockerd")
    return Status(
        running=pid is not None and places.socket.exists(),
        pid=pid,
        socket=str(places.socket),
        data_root=str(places.data),
        log=str(places.log),
        bridge=places.bridge if private_network.exists(places.bridge) else "",
        processes=len(found),
        data_exists=places.data.exists(),
    )


def up(workspace: Workspace, on_progress: OnProgress = ignore_progress) -> Status:
    """Start the private engine, and wait until it answers. If it runs already, do nothing.

    Raises :class:`EngineError`: ``not-root``, ``missing-program``, ``no-network``, or ``engine`` with the last lines of the
    log. After errors and Ctrl-C, all started processes are stopped.
    """
    places = _Places(folder=workspace.engine)
    if status(workspace).running and _answers(places.socket):
        return status(workspace)
    programs = _require()
    _require_safe(places.folder)
    with files.locked(places.folder / "lock", as_news("engine", on_progress), limit_s=files.SHORT_WAIT_S):
        if status(workspace).running and _answers(places.socket):  # another run has started the engine meanwhile
            return status(workspace)
        on_progress(Progress(stage="engine", message="starting a private Docker engine"))
        _clear(places)
        try:
            _start(places, programs, on_progress)
            _await(places, on_progress)
        except BaseException:
            _clear(places)
            raise
        files.write_atomic(places.pid_file, f"{_processes(places)['dockerd']}\n")
    on_progress(Progress(stage="engine", message=f"the private engine answers at unix://{places.socket}"))
    return status(workspace)


def down(workspace: Workspace, *, purge: bool = False, on_progress: OnProgress = ignore_progress) -> Status:
    """Stop the private engine, and remove its bridge, rules, control groups and socket. ``purge`` also removes its images."""
    places = _Places(folder=workspace.engine)
    if not places.folder.exists():
        return status(workspace)
    if os.geteuid() != 0:
        raise _not_root()
    _require_safe(places.folder)
    with files.locked(places.folder / "lock", as_news("engine", on_progress), limit_s=files.SHORT_WAIT_S):
        on_progress(Progress(stage="engine", message="stopping the private engine"))
        _clear(places)
        if purge:
            shutil.rmtree(places.data, ignore_errors=True)
            places.log.unlink(missing_ok=True)
    return status(workspace)


def _require() -> daemon.Programs:
    if os.geteuid() != 0:
        raise _not_root()
    return daemon.Programs.find()


def _not_root() -> EngineError:
    return EngineError(
        "The private engine can only be started and stopped by root.",
        code="not-root",
        hint="Run the command with sudo -E, or name an engine that you may use with DOCKER_HOST.",
    )


def _require_safe(folder: Path) -> None:
    """Check that only root can write to the engine's folder, because root writes logs, locks and sockets there."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    files.private_folder(folder)


def _start(places: _Places, programs: daemon.Programs, on_progress: OnProgress) -> None:
    network_lock = files.private_folder(_SHARED) / "network"
    # The file lock prevents two private engines from choosing the same subnet.
    with files.locked(network_lock, as_news("engine", on_progress), limit_s=files.SHORT_WAIT_S):
        subnet = private_network.choose_subnet(private_network.taken_subnets())
        private_network.up(places.bridge, subnet)
    _forget_other_subnet(places, subnet)
    config = places.folder / "daemon.json"
    files.write_atomic(config, daemon.configuration())
    argv = daemon.argv(
        programs,
        config=config,
        data=places.data,
        endpoint=f"unix://{places.socket}",
        bridge=places.bridge,
        cgroup=places.cgroup,
    )
    procs.start_daemon(argv, log=places.log)


def _forget_other_subnet(places: _Places, subnet: str) -> None:
    """Remove dockerd's stored network if its subnet is not the current subnet of the bridge.

    Otherwise, dockerd would give the bridge the stored address. If another engine uses that subnet now, builds would have no
    network.
    """
    remembered = places.data / "network" / "files" / "local-kv.db"
    if remembered.is_file() and subnet.encode() not in remembered.read_bytes():
        remembered.unlink()


def _await(places: _Places, on_progress: OnProgress) -> None:
    started = time.monotonic()
    while not _answers(places.socket):
        waited = time.monotonic() - started
        alive = bool(_processes(places))
        if waited > _START_S or (waited > 1 and not alive):
            lines = places.log.read_text(encoding="utf-8", errors="replace").splitlines() if places.log.exists() else []
            raise EngineError(
                f"The private engine did not {'answer in time' if alive else 'start'}: {_cause(lines)}",
                hint=f"Its log was {places.log}; the last lines are above.",
                details=lines[-15:],
            )
        if waited > 1:
            news = Progress(stage="engine", message="waiting for the engine", done=round(waited, 1), unit="seconds")
            on_progress(news)
        time.sleep(0.1)


def _cause(lines: list[str]) -> str:
    telling = [line for line in lines if "failed to start daemon" in line or "level=fatal" in line or line.startswith("mount:")]
    return (telling or lines or ["it wrote no log"])[-1]


def _clear(places: _Places) -> None:
    """Stop a running engine, and remove everything that a stopped or killed engine left behind."""
    _stop(places)
    private_network.down(places.bridge)
    _remove_cgroups(places.cgroup)
    places.socket.unlink(missing_ok=True)
    places.pid_file.unlink(missing_ok=True)
    # The empty folder daemon.HIDDEN is not removed. Another private engine may have a mount on this folder in its own
    # namespace, and removing the folder would drop that mount (https://man7.org/linux/man-pages/man7/mount_namespaces.7.html,
    # "Linux 3.18").


def _stop(places: _Places) -> None:
    found = _processes(places)
    if "sh" in found:  # the shell that runs daemon.INIT; it passes SIGTERM to dockerd, which stops its containers
        _signal(found["sh"], signal.SIGTERM)
        _wait_gone(places, _STOP_S)
    for pid in _processes(places).values():  # the outer processes; the kernel then kills all others
        _signal(pid, signal.SIGKILL)
    if not _wait_gone(places, _STOP_S):
        raise EngineError(
            f"The private engine's processes do not end: {', '.join(map(str, _processes(places).values()))}.",
            hint="A disk or kernel problem holds them; see `dmesg`.",
        )


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _wait_gone(places: _Places, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not _processes(places):
            return True
        time.sleep(0.05)
    return False


def _processes(places: _Places) -> dict[str, int]:
    """Return the outer processes of the private engine: name of the program (unshare, sh, dockerd) → process number."""
    wanted = os.fsencode(daemon.data_option(places.data))
    found: dict[str, int] = {}
    for entry in _numbers(Path("/proc")):
        with contextlib.suppress(OSError):  # the process has ended, or this user may not read it
            words = (entry / "cmdline").read_bytes().split(b"\0")
            if wanted in words:
                found[os.fsdecode(words[0]).rpartition("/")[2]] = int(entry.name)
    return found


def _numbers(folder: Path) -> Iterator[Path]:
    return (entry for entry in folder.iterdir() if entry.name.isdigit())


def _answers(path: Path) -> bool:
    try:
        unix_socket.ping(f"{unix_socket.SCHEME}{path}", timeout_s=5)
    except OSError:
        return False
    return True


def _remove_cgroups(name: str) -> None:
    root = Path("/sys/fs/cgroup")
    tops = [root / name.lstrip("/"), *(folder / name.lstrip("/") for folder in root.glob("*") if folder.is_dir())]
    for top in tops:
        if top.is_dir():
            for folder, _, _ in os.walk(top, topdown=False):
                with contextlib.suppress(OSError):
                    Path(folder).rmdir()
