"""The private engine on this machine, beside other engines. After it ends, nothing of it is left."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from engine_toy import nap, processes, sleeping

from envbuild.engine import bases, bootstrap, host_apt, private_engine, private_network
from envbuild.engine.choice import connect
from envbuild.engine.client import Engine
from envbuild.errors import BuildError, EngineError, UsageError
from envbuild.workspace import Workspace

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("root_machine")]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Workspace]:
    """A workspace; its engine is stopped at the end of the test in any case."""
    found = Workspace(root=tmp_path, output=tmp_path, home=tmp_path / "home")
    yield found
    private_engine.down(found, purge=True)


def test_root_follows_no_link_that_a_user_can_place(place: Workspace, tmp_path: Path) -> None:
    """Everybody can write to /run/lock. A symbolic link there once made envbuild empty a file of root."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    trap = Path("/run/lock/envbuild-network")
    if not os.path.lexists(trap):
        trap.symlink_to(victim)
    log, lock = place.engine / "docker.log", place.engine / "lock"
    place.engine.mkdir(parents=True)
    log.symlink_to(victim)
    try:
        private_engine.up(place)
        assert Path("/run/envbuild").stat().st_mode & 0o777 == 0o700
        assert not log.is_symlink()
        private_engine.down(place)
        lock.unlink(missing_ok=True)
        lock.symlink_to(victim)
        with pytest.raises(UsageError):
            private_engine.up(place)
        lock.unlink(missing_ok=True)
        place.engine.rename(tmp_path / "real")
        place.engine.symlink_to(tmp_path / "real")
        with pytest.raises(UsageError, match="only this user") as caught:
            private_engine.up(place)
        assert caught.value.code == "unsafe-folder"
        place.engine.unlink()
    finally:
        if trap.is_symlink() and trap.readlink() == victim:
            trap.unlink()
    assert victim.read_text() == "precious"


def firewall() -> list[str]:
    return subprocess.run(["iptables-save"], capture_output=True, text=True, check=True).stdout.splitlines()


def foreign() -> dict[str, list[str]]:
    """The firewall rules and network interfaces of this machine, without those of private engines, of which several may run."""
    links = [path.name for path in Path("/sys/class/net").iterdir() if not path.name.startswith(("veth", "envb"))]
    return {
        "links": sorted(links),
        "rules": sorted(
            re.sub(r"\[\d+:\d+\]", "", line) for line in firewall() if line[:1] in ":-" and "envbuild:" not in line
        ),
    }


def namespaces(pid: int) -> set[str]:
    """The PID and mount namespaces of a process. All processes in them were started by the private engine."""
    return {os.readlink(f"/proc/{pid}/ns/{kind}") for kind in ("pid", "mnt")}  # noqa: PTH115 - no file, a name


def left_of(place: Workspace, inside: set[str]) -> list[str]:
    """Everything of this workspace's engine that is still on the machine: processes, mounts, rules, links, groups, sockets."""
    status = private_engine.status(place)
    mark = private_engine._Places(folder=place.engine).mark
    found = [f"process {pid}" for pid in processes(lambda _: True) if inside & _namespaces_or_none(pid)]
    found += [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(place.home / "engine") in line]
    found += [line for line in firewall() if mark in line]
    found += [path.name for path in Path("/sys/class/net").iterdir() if mark in path.name]
    found += [str(path) for path in Path("/sys/fs/cgroup").glob(f"**/envbuild-{mark}")]
    found += [path for path in (status.socket, str(place.engine / "docker.pid")) if Path(path).exists()]
    return found


def _namespaces_or_none(pid: int) -> set[str]:
    try:
        return namespaces(pid)
    except OSError:
        return set()


def ours(state: Workspace) -> list[int]:
    return processes(lambda words: f"--data-root={state.engine / 'data'}" in words)


def test_up_serves_and_down_leaves_nothing(place, engine, debian12):
    """``engine`` is another engine that runs all the time. The private engine must not disturb or change it."""
    before = foreign()
    status = private_engine.up(place)
    try:
        assert status.pid is not None
        inside = namespaces(status.pid)
        assert not inside & namespaces(os.getpid())
        assert status.running
        assert Path(status.socket).is_socket()
        assert int((place.engine / "docker.pid").read_text()) == status.pid
        private = connect(place, {})
        if private.origin == "default socket":
            private = connect(place, {"DOCKER_HOST": f"unix://{status.socket}"})
        assert private.info.data_root == str(place.engine / "data")
        assert private.info.builder in ("buildx", "docker-buildkit")
        assert foreign() == before, "another engine's rules were touched"
        assert engine.run(debian12.reference, ["true"]).code == 0
    finally:
        down = private_engine.down(place)
    assert (down.running, down.processes, down.bridge) == (False, 0, "")
    assert down.data_exists
    assert left_of(place, inside) == []
    assert foreign() == before


@pytest.mark.network
def test_its_builds_and_containers_reach_the_network(place, workspace, debian12, tmp_path):
    engine = start(place)
    reference = hold(engine, workspace, debian12)
    (tmp_path / "Dockerfile").write_text(
        f"FROM {reference}\n"
        "RUN --mount=type=secret,id=envbuild-apt,target=/etc/apt/sources.list.d/envbuild.list apt-get -q update\n"
    )
    mirror = host_apt.with_host_options(bootstrap.mirror(workspace, "bookworm"), host_apt.host_options())
    sources = bootstrap.source_lines(mirror) if debian12.how == "bootstrapped" else b""
    built = engine.build(tmp_path, tag="t:1", secrets={"envbuild-apt": sources})
    assert engine.run(built.id, ["sh", "-c", "test -s /etc/resolv.conf"]).code == 0


def test_one_private_engine_goes_on_when_another_goes_down(place, workspace, debian12, tmp_path):
    engine = start(place)
    reference = hold(engine, workspace, debian12)
    other = Workspace(root=tmp_path, output=tmp_path, home=tmp_path / "other")
    private_engine.up(other)
    private_engine.down(other, purge=True)
    assert engine.run(reference, ["true"]).code == 0


SERVER = """
use IO::Socket::INET;
$| = 1;
my $listener = IO::Socket::INET->new(LocalPort => 8000, Listen => 5, ReuseAddr => 1) or die "cannot listen: $!";
while (my $client = $listener->accept) {
    while (my $line = <$client>) { last if $line =~ /^\\s*$/ }
    print $client "HTTP/1.0 200 OK\\r\\nContent-Length: 5\\r\\n\\r\\nready";
    close $client;
}
"""


@pytest.mark.parametrize("published", ["127.0.0.1:{port}:8000", "{port}:8000"])
def test_a_published_port_answers_on_the_host(place, workspace, debian12, published):
    """Run as in the README, with Docker's own program. Without an address, only loopback listens."""
    engine = start(place)
    reference = hold(engine, workspace, debian12)
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        port = chosen.getsockname()[1]
    argv = ["docker", "run", "--rm", "-d", "-p", published.format(port=port), reference, "perl", "-e", SERVER]
    environment = {**os.environ, "DOCKER_HOST": engine.endpoint}
    started = subprocess.run(argv, check=False, env=environment, capture_output=True, text=True)
    assert started.returncode == 0, started.stderr
    assert ask(f"http://127.0.0.1:{port}/") == b"ready"
    assert listeners(port) == [f"127.0.0.1:{port}"]
    private_engine.down(place)
    assert listeners(port) == []


def listeners(port: int) -> list[str]:
    told = subprocess.run(["ss", "-Hltn", f"sport = :{port}"], capture_output=True, text=True, check=True).stdout
    return [line.split()[3] for line in told.splitlines()]


def ask(url: str, seconds: float = 20.0) -> bytes:
    end = time.monotonic() + seconds
    while True:
        try:
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=5) as answer:
                return answer.read()
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


def test_up_twice_is_one_engine(place):
    first = private_engine.up(place)
    again = private_engine.up(place)
    assert first == again
    assert len(ours(place)) == 3  # the processes: unshare, its init, dockerd


def test_two_at_once_make_one_engine(place):
    code = (
        "from pathlib import Path; from envbuild.engine import private_engine; from envbuild.workspace import Workspace\n"
        f"r = Path({str(place.root)!r})\n"
        f"print(private_engine.up(Workspace(root=r, output=r, home=Path({str(place.home)!r}))).pid)\n"
    )
    argv, env = [sys.executable, "-c", code], {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    started = [subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    answers = {process.communicate(timeout=120)[0] for process in started}
    assert {process.returncode for process in started} == {0}
    assert len(answers) == 1
    assert len(ours(place)) == 3


def test_two_private_engines_side_by_side(place, tmp_path):
    other = Workspace(root=tmp_path, output=tmp_path, home=tmp_path / "other")
    try:
        first, second = private_engine.up(place), private_engine.up(other)
        assert first.bridge != second.bridge
        subnets = [rule for rule in private_network.taken_subnets() if rule.startswith("10.213.") and rule.endswith(".1/24")]
        assert len(subnets) == len(set(subnets)) >= 2
    finally:
        private_engine.down(other, purge=True)
    assert private_engine.status(place).running
    assert private_network.exists(first.bridge)


@pytest.mark.parametrize("victim", ["dockerd", "unshare", "containerd"])
def test_killed_outright_it_takes_everything_along_and_comes_back(place, workspace, debian12, victim):
    engine = start(place)
    pid = private_engine.status(place).pid
    assert pid is not None
    inside = namespaces(pid)
    reference = hold(engine, workspace, debian12)
    seconds = nap(len(victim))
    engine.client.containers.run(reference, ["sleep", str(seconds)], detach=True)
    tree = descendants(ours(place))
    os.kill(next(pid for pid in tree if Path(f"/proc/{pid}/comm").read_text().strip() == victim), signal.SIGKILL)
    if victim != "containerd":  # dockerd itself starts containerd again
        wait_for(lambda: not ours(place))
        wait_for(lambda: not sleeping(seconds))
        assert not private_engine.status(place).running
    assert private_engine.up(place).running
    assert engine_of(place).image(reference) is not None
    private_engine.down(place)
    assert sleeping(seconds) == []
    assert left_of(place, inside) == []


@pytest.mark.parametrize("delay", [0.02, 0.06, 0.12, 0.25])
def test_a_start_that_is_killed_can_be_repeated_and_taken_down(place, delay):
    code = (
        "from pathlib import Path; from envbuild.engine import private_engine; from envbuild.workspace import Workspace\n"
        "print('go', flush=True)\n"
        f"r = Path({str(place.root)!r})\n"
        f"private_engine.up(Workspace(root=r, output=r, home=Path({str(place.home)!r})))\n"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    process = subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(delay)
    process.kill()
    process.communicate()
    assert private_engine.up(place).running
    private_engine.down(place)
    assert left_of(place, set()) == []
    assert ours(place) == []


def test_a_stale_socket_and_pid_file_are_no_engine(place):
    place.engine.mkdir(parents=True)
    (place.engine / "docker.sock").touch()
    (place.engine / "docker.pid").write_text(f"{os.getpid()}\n")  # a running process that is not the engine
    assert not private_engine.status(place).running
    assert private_engine.up(place).running
    private_engine.down(place)
    os.kill(os.getpid(), 0)


def test_a_path_too_long_for_a_socket_gets_a_short_one(tmp_path):
    place = Workspace(root=tmp_path, output=tmp_path, home=tmp_path / ("long" * 30))
    try:
        status = private_engine.up(place)
        assert len(status.socket) <= 107
        assert engine_of(place).info.data_root.startswith(str(tmp_path))
    finally:
        private_engine.down(place, purge=True)
    assert not Path(status.socket).exists()


def test_purge_takes_the_images_too(place):
    private_engine.up(place)
    assert not private_engine.down(place, purge=True).data_exists


def test_down_without_an_engine_is_no_error(place):
    assert not private_engine.down(place).running


def test_a_daemon_that_cannot_start_says_why_and_is_cleared_away(place):
    place.engine.mkdir(parents=True)
    (place.engine / "data").write_text("a file where the data folder should be")
    with pytest.raises(EngineError) as caught:
        private_engine.up(place)
    assert "data" in caught.value.message
    assert caught.value.details
    assert left_of(place, set()) == []
    assert ours(place) == []


def test_a_full_disk_is_named(tmp_path, workspace, debian12):
    home = tmp_path / "small"
    home.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=420m", "envbuild-test", str(home)], check=True)
    place = Workspace(root=tmp_path, output=tmp_path, home=home)
    try:
        engine = start(place)
        reference = hold(engine, workspace, debian12)
        context = tmp_path / "context"
        context.mkdir()
        (context / "Dockerfile").write_text(f"FROM {reference}\nRUN dd if=/dev/zero of=/big bs=1M count=2000\n")
        with pytest.raises(BuildError) as caught:
            engine.build(context, tag="t:1")
        assert caught.value.code == "no-space"
        (context / "Dockerfile").write_text(f"FROM {reference}\nRUN echo small\n")
        assert engine.build(context, tag="t:1").id  # unfinished files do not disturb the next build
    finally:
        private_engine.down(place, purge=True)
        subprocess.run(["umount", str(home)], check=True)


def test_a_base_that_does_not_fit_is_named(tmp_path, workspace, debian12):
    home = tmp_path / "tiny"
    home.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100m", "envbuild-test", str(home)], check=True)
    place = Workspace(root=tmp_path, output=tmp_path, home=home)
    try:
        engine = start(place)
        with pytest.raises(BuildError) as caught:
            hold(engine, workspace, debian12)
        assert caught.value.code == "no-space"
    finally:
        private_engine.down(place, purge=True)
        subprocess.run(["umount", str(home)], check=True)


def start(place: Workspace) -> Engine:
    private_engine.up(place)
    return engine_of(place)


def engine_of(place: Workspace) -> Engine:
    return connect(place, {"DOCKER_HOST": f"unix://{private_engine.status(place).socket}"})


def hold(engine: Engine, workspace: Workspace, base: bases.RealisedBase) -> str:
    """Load the session's base, which another engine has, into ``engine``; return its reference."""
    from engine_toy import environment

    from envbuild.model.lock import BaseLock
    from envbuild.model.progress import ignore_progress

    pinned = bases.pin(environment(), engine, workspace, ignore_progress)
    assert isinstance(pinned, BaseLock)
    real = bases.provide(pinned, environment(), engine, workspace, ignore_progress)
    assert real.image_id == base.image_id
    return real.reference


def descendants(pids: list[int]) -> list[int]:
    found = list(pids)
    for pid in found:
        children = Path(f"/proc/{pid}/task/{pid}/children")
        threads = Path(f"/proc/{pid}/task").glob("*/children") if children.exists() else []
        for listing in threads:
            found += [int(word) for word in listing.read_text().split() if int(word) not in found]
    return found


def wait_for(condition, seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to pass in time"
        time.sleep(0.05)
