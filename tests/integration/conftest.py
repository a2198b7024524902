"""A real container engine for all integration tests, and a workspace of their own.

The tests use the engine that a user's command would find. If none answers, a private one is started for the test session. If
that is impossible (no root, missing packages), the tests are skipped with the reason; with
ENVBUILD_REQUIRE_ENGINE=1, as in CI and `make test`, they fail instead. If several workers run tests at once, only the first
uses the engine that was found, because the tests count and remove images.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import judges
import newer_docker
import pytest
from engine_toy import environment
from program import ROOT, share_bases, share_downloads, share_matrix
from stand_in_registry import Registry, serve

from envbuild import workspace as workspaces
from envbuild.engine import bases, daemon, private_engine
from envbuild.engine.choice import connect
from envbuild.engine.client import Engine
from envbuild.errors import EngineError
from envbuild.model.lock import Missing
from envbuild.model.progress import ignore_progress
from envbuild.workspace import Workspace


def unavailable(reason: str) -> NoReturn:
    """Skip the test, or fail it if ENVBUILD_REQUIRE_ENGINE is set: then a skipped integration test must not look like a passed
    one.
    """
    if os.environ.get("ENVBUILD_REQUIRE_ENGINE") == "1":
        pytest.fail(f"{reason} (ENVBUILD_REQUIRE_ENGINE=1)", pytrace=False)
    pytest.skip(reason)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Require the programs that the mark ``judges`` of a test names."""
    for mark in item.iter_markers("judges"):
        judges.require(*mark.args)


@pytest.fixture(scope="session")
def root_machine() -> None:
    """Require a machine on which private engines can be started."""
    if os.geteuid() != 0:
        unavailable("only root can start a private engine")
    try:
        daemon.Programs.find()
    except EngineError as error:
        unavailable(f"{error.message} {error.hint}")


@pytest.fixture(scope="session")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A workspace with this checkout's facts and its own home. Bases, downloads and the compiled matrix come from the user's
    cache.

    The cache compares hashes, so a test finds there only what it would have made itself.
    """
    home = tmp_path_factory.mktemp("home")
    for share in (share_bases, share_downloads, share_matrix):
        share(home)
    return Workspace(root=ROOT, output=home / "images", home=home)


@pytest.fixture(scope="session")
def engine(workspace: Workspace) -> Iterator[Engine]:
    """A real engine that builds with BuildKit."""
    try:
        found = connect(workspaces.find(str(ROOT))) if _may_use_another() else None
    except EngineError as error:
        if error.code != "no-engine":
            unavailable(f"{error.message} {error.hint}")
        found = None
    if found is not None:
        yield _with_buildkit(found)
        return
    try:
        private_engine.up(workspace)
    except EngineError as error:
        unavailable(f"no engine answers, and none can be started: {error.message} {error.hint}")
    try:
        address = f"unix://{private_engine.status(workspace).socket}"
        yield _with_buildkit(connect(workspace, {**os.environ, "DOCKER_HOST": address}))
    finally:
        private_engine.down(workspace, purge=True)


@pytest.fixture(scope="session")
def containerd_engine(root_machine: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """Docker of Debian sid, with containerd's image store."""
    folder = tmp_path_factory.mktemp("sid")
    try:
        if failure := newer_docker.unpack(folder / "root"):
            judges.lacks(failure)
        of = Workspace(root=ROOT, output=folder / "images", home=folder / "home")
        with newer_docker.running(folder / "root", of) as address:
            yield connect(of, {**os.environ, "DOCKER_HOST": address})
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def engine_endpoint(engine: Engine) -> str:
    """The address of the engine, for programs that read DOCKER_HOST."""
    return engine.endpoint


@pytest.fixture(scope="session")
def forget_builds(engine: Engine, workspace: Workspace) -> Callable[[], None]:
    """A function that removes what the builder keeps for later builds, if the tests started the engine."""

    def forget() -> None:
        if Path(engine.info.data_root).is_relative_to(workspace.home):
            engine.client.api.prune_builds(all=True)

    return forget


@pytest.fixture(scope="session")
def debian12(engine: Engine, workspace: Workspace) -> bases.RealisedBase:
    """A Debian 12 base image that is in the engine, pulled or bootstrapped."""
    pinned = bases.pin(environment(), engine, workspace, ignore_progress)
    if isinstance(pinned, Missing):
        unavailable(f"no Debian 12 can be had here: {pinned.why}")
    return bases.provide(pinned, environment(), engine, workspace, ignore_progress)


@pytest.fixture
def docker_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Docker settings without registry logins, and without proxies for loopback."""
    folder = tmp_path / "docker"
    folder.mkdir()
    monkeypatch.setenv("DOCKER_CONFIG", str(folder))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    return folder / "config.json"


@pytest.fixture
def registry() -> Iterator[Registry]:
    """A stand-in registry on loopback."""
    with serve(Registry()) as served:
        yield served


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working folder that another user owns."""
    made = tmp_path / "my work"
    made.mkdir()
    if os.geteuid() == 0:
        os.chown(made, 4321, 4321)
    return made


@pytest.fixture
def podman_store(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Environment variables that give Podman a separate image store."""
    judges.require("podman")
    if os.geteuid() != 0:
        unavailable("only root can give Podman a store of its own")
    run, store = Path(tempfile.mkdtemp(prefix="pod-")), tmp_path / "store"  # Podman accepts at most 50 characters for `run`
    # By default Podman raises the ulimits of a container, which fails on a machine without CAP_SYS_RESOURCE.
    settings, storage = tmp_path / "containers.conf", tmp_path / "storage.conf"
    settings.write_text('[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]\n')
    storage.write_text(f'[storage]\ndriver = "overlay"\nrunroot = "{run}"\ngraphroot = "{store}"\n')
    yield {"CONTAINERS_CONF": str(settings), "CONTAINERS_STORAGE_CONF": str(storage)}
    # Podman mounts the store's folder on itself (graph driver overlay), and rmtree cannot remove a mount point.
    subprocess.run(["umount", "--lazy", str(store / "overlay")], capture_output=True, check=False)
    shutil.rmtree(run, ignore_errors=True)


@pytest.fixture
def podman(tmp_path: Path, podman_store: dict[str, str]) -> Iterator[str]:
    """The service of Podman, with a separate image store."""
    address = f"unix://{tmp_path}/podman.sock"
    argv = ["podman", "system", "service", "--time=0", address]
    process = subprocess.Popen(argv, env={**os.environ, **podman_store}, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 30
        while not (tmp_path / "podman.sock").is_socket():
            assert time.monotonic() < end and process.poll() is None, "podman's service does not start"
            time.sleep(0.05)
        yield address
    finally:
        process.terminate()
        process.wait(30)


def _may_use_another() -> bool:
    """Whether this process may use an engine that it did not start. Without root there is only one group of tests with one."""
    return os.environ.get("PYTEST_XDIST_WORKER", "gw0") == "gw0" or os.geteuid() != 0


def _with_buildkit(engine: Engine) -> Engine:
    if engine.cli.builder == "classic":
        unavailable(f"no docker program here builds with BuildKit against {engine.endpoint}")
    return engine
