"""Run a command in a new container, and always remove the container."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import socket
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envbuild import cdi, guard
from envbuild.engine.dialogue import Dialogue
from envbuild.engine.docker_client import open_client
from envbuild.engine.model import Mount, RunResult
from envbuild.errors import EngineError, TimedOutError

if TYPE_CHECKING:
    from docker import DockerClient

_OWNER = "org.envbuild.owner"
_TAIL = 40
# Seconds before each check. Several checks are needed: if the engine was making a container when the process died, this
# container appears a moment later.
_LOOKS_S = (0.0, 1.0, 4.0)
_PROGRAM = "import os, sys; from envbuild.engine import containers; containers.clear(sys.argv[1], os.environ)"
_watched: set[tuple[int, str]] = set()


@dataclass(frozen=True, kw_only=True, slots=True)
class ContainerSpec:
    """The command to run, and the settings of its container; see :meth:`envbuild.engine.client.Engine.run`."""

    image: str
    argv: tuple[str, ...]
    mounts: tuple[Mount, ...]
    env: dict[str, str]
    gpus: str | Sequence[str] | None
    shm_size: str | None
    ulimits: dict[str, int]
    network: str | None
    user: str | None
    read_only: bool
    timeout_s: float | None
    stdin: bytes | None
    entrypoint: tuple[str, ...] | None
    collect: tuple[str, ...]
    deliver: tuple[tuple[str, Path], ...] = ()
    by_cdi: bool = False


def run(client: DockerClient, spec: ContainerSpec, on_line: Callable[[str], None] | None) -> RunResult:
    """Create the container, deliver files, start it, follow its output, collect files, and remove it.

    The ulimits are optional. An engine without CAP_SYS_RESOURCE cannot raise limits; then the container runs with the default
    limits.
    """
    sweep(client)
    try:
        return _once(client, spec, on_line)
    except EngineError as error:
        if not spec.ulimits or "rlimit" not in error.message:
            raise
    if on_line is not None:
        on_line(f"note: this engine cannot raise limits, so the container runs without {', '.join(spec.ulimits)}")
    return _once(client, dataclasses.replace(spec, ulimits={}), on_line)


def _once(client: DockerClient, spec: ContainerSpec, on_line: Callable[[str], None] | None) -> RunResult:
    from docker.errors import APIError

    started = time.monotonic()
    container = ""
    try:
        container = _create(client, spec)
        _deliver(client, container, spec.deliver)
        # Attach before the start, so that no output is lost. Do not set logs=True, because it would repeat the first lines.
        stream = client.api.attach(container, stdout=True, stderr=True, stream=True, demux=True)
        with _limit(client, container, spec.timeout_s) as passed:
            _start(client, container, spec)
            output = _follow(stream, on_line)
            code = int(client.api.wait(container)["StatusCode"])
        state: dict[str, Any] = client.api.inspect_container(container)["State"]
        files = _collect(client, container, spec.collect)
    except APIError as error:
        raise _refused(spec, error) from error
    finally:
        if container:
            _remove(client, container)
    if passed.is_set():
        raise TimedOutError(
            f"The container of {spec.image} was stopped because its time limit of {spec.timeout_s:g} s passed.",
            details=output.splitlines()[-_TAIL:],
        )
    return RunResult(
        code=code,
        output=output,
        seconds=time.monotonic() - started,
        oom_killed=bool(state.get("OOMKilled")),
        files=files,
    )


class Workshop:
    """A container that keeps running, so that programs can be started in it. :func:`workshop` makes one."""

    def __init__(self, client: DockerClient, container: str) -> None:
        self._client = client
        self._container = container
        self._closing = threading.Lock()

    def start(self) -> None:
        """Start the container."""
        self._client.api.start(self._container)

    def talk(self, argv: Sequence[str], env: Mapping[str, str]) -> Dialogue:
        """Start, as root, a program that answers requests. Several programs may run at the same time."""
        return Dialogue(self._client, self._container, argv, env)

    def close(self) -> None:
        """Remove the container. If it was removed before, do nothing."""
        with self._closing:
            container, self._container = self._container, ""
            if container:
                _remove(self._client, container)


@contextlib.contextmanager
def workshop(client: DockerClient, image: str) -> Iterator[Workshop]:
    """Yield a running container of ``image``, which has no network. The container is removed at the end of the block."""
    from docker.errors import APIError

    sweep(client)
    spec = ContainerSpec(
        image=image,
        argv=("sleep", "infinity"),
        mounts=(),
        env={},
        gpus=None,
        shm_size=None,
        ulimits={},
        network="none",
        user="0",
        read_only=False,
        timeout_s=None,
        stdin=None,
        entrypoint=(),
        collect=(),
    )
    found: Workshop | None = None
    try:
        found = Workshop(client, _create(client, spec))
        found.start()
        yield found
    except APIError as error:
        raise _refused(spec, error) from error
    finally:
        if found is not None:
            found.close()


def sweep(client: DockerClient) -> int:
    """Remove the containers of killed runs on this machine. Return how many were removed."""
    from docker.errors import APIError

    removed = 0
    for found in client.api.containers(all=True, filters={"label": _OWNER}):
        host, _, identity = str(found["Labels"][_OWNER]).partition("/")
        if host == socket.gethostname() and not is_alive(identity):
            with contextlib.suppress(APIError):
                client.api.remove_container(found["Id"], force=True, v=True)
                removed += 1
    return removed


def remove_if_killed(endpoint: str) -> None:
    """Register a command with the guard. If this process is killed, the command removes the containers of this process at
    ``endpoint``. Repeated calls register it only once."""
    if (os.getpid(), endpoint) not in _watched:
        _watched.add((os.getpid(), endpoint))
        # The option -P prevents a file in the working folder from replacing the package envbuild.
        guard.run_if_killed([sys.executable, "-P", "-c", _PROGRAM, endpoint])


def clear(endpoint: str, environ: Mapping[str, str]) -> None:
    """Remove the containers at ``endpoint`` whose process has ended. Check several times."""
    client = open_client(endpoint, environ)
    for pause in _LOOKS_S:
        time.sleep(pause)
        sweep(client)


def _create(client: DockerClient, spec: ContainerSpec) -> str:
    api: Any = client.api
    host_config = api.create_host_config(
        mounts=[{"Type": "bind", "Source": m.source, "Target": m.target, "ReadOnly": m.read_only} for m in spec.mounts],
        shm_size=spec.shm_size,
        ulimits=[{"Name": name, "Soft": value, "Hard": value} for name, value in spec.ulimits.items()],
        network_mode=spec.network,
        read_only=spec.read_only,
        tmpfs={"/tmp": "exec,mode=1777"} if spec.read_only else None,  # noqa: S108 - a path inside the container
        device_requests=device_requests(spec.gpus, by_cdi=spec.by_cdi),
    )
    created: dict[str, Any] = api.create_container(
        spec.image,
        command=list(spec.argv),
        entrypoint=None if spec.entrypoint is None else list(spec.entrypoint),
        environment=spec.env,
        user=spec.user,
        # Without a network, the container's own name cannot be resolved, and libraries that resolve it (such as Gloo) fail.
        hostname="localhost" if spec.network == "none" else None,
        stdin_open=spec.stdin is not None,
        host_config=host_config,
        labels={_OWNER: f"{socket.gethostname()}/{identity_of(os.getpid())}"},
    )
    return str(created["Id"])


def _deliver(client: DockerClient, container: str, wanted: Sequence[tuple[str, Path]]) -> None:
    """Copy files (path in the container → file on this machine) into the container, readable by all. They are not mounted,
    because the engine may be on another machine."""
    if not wanted:
        return
    with tempfile.TemporaryFile() as stream:
        with tarfile.open(fileobj=stream, mode="w") as archive:
            for target, source in wanted:
                entry = archive.gettarinfo(source.resolve(), target.lstrip("/"))
                entry.uid, entry.gid, entry.uname, entry.gname, entry.mode = 0, 0, "", "", 0o444
                with source.open("rb") as content:
                    archive.addfile(entry, content)
        stream.seek(0)
        client.api.put_archive(container, "/", stream)


def device_requests(gpus: str | Sequence[str] | None, *, by_cdi: bool = False) -> list[dict[str, Any]] | None:
    """Return Docker's ``DeviceRequests`` for ``gpus``, which is ``all``, or indexes or UUIDs of GPUs.

    With ``by_cdi``, the GPUs are requested by their CDI names. Without it, NVIDIA's runtime or hook must be installed.
    """
    if not gpus:
        return None
    if by_cdi:
        names = cdi.gpu_names([gpus] if isinstance(gpus, str) else gpus)
        return [{"Driver": "cdi", "DeviceIDs": list(names), "Capabilities": [], "Options": {}}]
    which: dict[str, Any] = {"Count": -1} if gpus == "all" else {"DeviceIDs": [gpus] if isinstance(gpus, str) else list(gpus)}
    return [{"Driver": "", "Capabilities": [["gpu"]], "Options": {}, **which}]


def _start(client: DockerClient, container: str, spec: ContainerSpec) -> None:
    if spec.stdin is None:
        client.api.start(container)
        return
    channel = client.api.attach_socket(container, params={"stdin": 1, "stream": 1})
    client.api.start(container)
    raw: socket.socket = getattr(channel, "_sock", channel)
    threading.Thread(target=_feed, args=(raw, channel, spec.stdin), daemon=True).start()


def _feed(raw: socket.socket, channel: Any, content: bytes) -> None:
    # This runs in a separate thread. Otherwise, a program that writes before it has read all input would block envbuild and
    # itself.
    with contextlib.suppress(OSError), contextlib.closing(channel):
        raw.sendall(content)
        raw.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def _limit(client: DockerClient, container: str, seconds: float | None) -> Iterator[threading.Event]:
    passed = threading.Event()

    def stop() -> None:
        passed.set()
        with contextlib.suppress(Exception):  # the container may have ended just now
            client.api.kill(container)

    timer = threading.Timer(seconds, stop) if seconds is not None else None
    if timer is not None:
        timer.daemon = True
        timer.start()
    try:
        yield passed
    finally:
        if timer is not None:
            timer.cancel()


def _follow(stream: Iterator[tuple[bytes | None, bytes | None]], on_line: Callable[[str], None] | None) -> str:
    """Return the output. ``on_line`` gets complete lines of standard output and standard error as they arrive. No line mixes
    the two streams."""
    whole = io.StringIO()
    rests = [b"", b""]
    for pieces in stream:
        for which, piece in enumerate(pieces):
            *lines, rests[which] = (rests[which] + (piece or b"")).split(b"\n")
            for line in lines:
                _say(line, whole, on_line)
    for rest in filter(None, rests):
        _say(rest, whole, on_line)
    return whole.getvalue()


def _say(line: bytes, whole: io.StringIO, on_line: Callable[[str], None] | None) -> None:
    text = line.decode("utf-8", "replace").rstrip("\r")
    whole.write(f"{text}\n")
    if on_line is not None:
        on_line(text)


def _collect(client: DockerClient, container: str, paths: Sequence[str]) -> dict[str, bytes]:
    from docker.errors import NotFound

    files: dict[str, bytes] = {}
    for path in paths:
        try:
            pieces, _ = client.api.get_archive(container, path)
        except NotFound:
            continue
        parent = path.rstrip("/").rpartition("/")[0]
        with tarfile.open(fileobj=io.BytesIO(b"".join(pieces))) as archive:
            for entry in archive:
                content = archive.extractfile(entry) if entry.isfile() else None
                if content is not None:
                    files[f"{parent}/{entry.name}"] = content.read()
    return files


def _remove(client: DockerClient, container: str) -> None:
    from docker.errors import NotFound

    with contextlib.suppress(NotFound):
        client.api.remove_container(container, force=True, v=True)


def _refused(spec: ContainerSpec, error: Exception) -> EngineError:
    words = " ".join(str(getattr(error, "explanation", "") or error).split())
    if spec.gpus and ("device driver" in words or "nvidia" in words.lower()):
        hint = "Install the NVIDIA driver and nvidia-container-toolkit, and restart the engine; `envbuild doctor` checks them."
        if spec.by_cdi:
            hint = (
                "Check the names of the GPUs, and write the CDI file again, which must fit this machine and its driver: "
                "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"
            )
        return EngineError(f"The engine cannot give GPUs to a container ({words}).", code="no-gpu-support", hint=hint)
    if "No such image" in words:
        return EngineError(
            f"The engine does not have the image {spec.image}.", code="no-image", hint="To build it, run `envbuild build NAME`."
        )
    return EngineError(f"The engine could not run {spec.image} ({words}).", code="refused")


def identity_of(pid: int) -> str:
    """Return an identity of the process ``pid``. It includes the start time of the process, because process numbers are
    reused."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return f"{pid}@{stat.rpartition(')')[2].split()[19]}"


def is_alive(identity: str) -> bool:
    """Whether the process with this ``identity`` (from :func:`identity_of`) still runs."""
    pid = identity.partition("@")[0]
    return pid.isdigit() and identity_of(int(pid)) == identity
