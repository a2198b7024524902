"""Real base images: bootstrapped from the host's mirror, pulled by digest from a registry, and unreachable."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import http.server
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from engine_toy import environment, processes

from envbuild.engine import bases, bootstrap, host_apt, package_store
from envbuild.engine.client import Engine
from envbuild.errors import BuildError
from envbuild.model.lock import BaseLock, Bootstrap, Missing
from envbuild.model.progress import Progress, ignore_progress
from envbuild.workspace import Workspace

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.usefixtures("mirror")]


@pytest.fixture(scope="session")
def mirror() -> None:
    from conftest import unavailable

    if os.geteuid() != 0:
        unavailable("mmdebstrap needs root here")
    for program in ("mmdebstrap", "apt-get"):
        if not Path("/usr/bin", program).exists():
            unavailable(f"{program} is not installed: apt-get install --no-install-recommends mmdebstrap")
    if not host_apt.sources_for("bookworm", host_apt.host_sources(), codename=host_apt.codename()):
        unavailable("this machine's apt names no Debian mirror")


@pytest.fixture
def package_list() -> Iterator[Path]:
    """A package list in the place where `apt-get update` writes it on this machine."""
    path = Path("/var/lib/apt/lists/envbuild.test_debian_dists_bookworm_main_binary-amd64_Packages")
    path.write_text("")
    yield path
    path.unlink(missing_ok=True)


@pytest.fixture
def place(tmp_path: Path) -> Workspace:
    return Workspace(root=tmp_path, output=tmp_path, home=tmp_path / "home")


def addresses(sources: list[host_apt.Source]) -> set[str]:
    return {source.uri.partition("://")[2].partition("/")[0] for source in sources}


def stored(place: Workspace, planned: Bootstrap) -> package_store.Store:
    """A store with the files of these packages."""
    store = package_store.Store(place)
    mirrors = host_apt.sources_for(planned.suite, host_apt.host_sources(), codename=host_apt.codename())
    store.collect(planned.packages, package_store.mirror_servers(mirrors), ignore_progress)
    return store


def sources_of(workspace: Workspace, suite: str) -> bytes:
    """The apt sources of this machine's mirror, in the form of a build secret."""
    return bootstrap.source_lines(host_apt.with_host_options(bootstrap.mirror(workspace, suite), host_apt.host_options()))


# --- bootstrapped ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("suite", ["bookworm", "bullseye"])
def test_a_suite_is_bootstrapped_as_planned_and_can_install_packages(engine, workspace, suite, tmp_path):
    planned = bootstrap.plan(workspace, suite)
    assert {"apt", "dpkg", "libc6", "base-files"} <= {package.name for package in planned.packages}
    assert all(len(package.sha256) == 64 for package in planned.packages)
    rootfs = bootstrap.cached(workspace, planned) or bootstrap.make(
        workspace, planned, stored(workspace, planned), ignore_progress
    )
    assert rootfs.bootstrap == planned
    assert bootstrap.cached(workspace, planned) == rootfs
    decided = environment(suite=suite)
    lock = BaseLock(image="debian:x", digest=None, bootstrap=planned)
    real = bases.provide(lock, decided, engine, workspace, ignore_progress)
    assert real.how == "bootstrapped"
    assert real.notes == ()
    again = bases.provide(lock, decided, engine, workspace, ignore_progress)
    assert again.image_id == real.image_id
    (tmp_path / "Dockerfile").write_text(
        f"FROM {real.reference}\n"
        "RUN --mount=type=secret,id=envbuild-apt,target=/etc/apt/sources.list.d/envbuild.list"
        " apt-get -q update && apt-get -q install -y --no-install-recommends tini && rm -rf /var/lib/apt/lists/*\n"
    )
    built = engine.build(tmp_path, tag="envbuild-test/base:1", secrets={"envbuild-apt": sources_of(workspace, suite)})
    try:
        assert engine.run(built.id, ["tini", "--version"]).output.startswith("tini version")
    finally:
        engine.remove_image("envbuild-test/base:1")


def test_a_base_says_nothing_of_this_machine_or_its_mirror(engine, workspace, debian12):
    if debian12.how != "bootstrapped":
        pytest.skip("the engine pulled the base, which is not ours to clean")
    hosts = [host.encode() for host in addresses(bootstrap.mirror(workspace, "bookworm"))]
    seen: dict[str, bytes] = {}
    for entry in engine.layer_files(debian12.reference):
        if entry.kind == "file" and entry.path.startswith(("/etc/", "/var/", "/root", "/tmp/")):
            seen[entry.path] = entry.open().read()
    assert seen["/etc/apt/sources.list"] == b""
    assert not {"/etc/machine-id", "/etc/hostname"} & seen.keys()
    # Engines mount files at these paths. If the files were missing, a step would leave them in the image.
    assert (seen["/etc/resolv.conf"], seen["/etc/hosts"]) == (b"", b"")
    assert not [path for path in seen if path.startswith(("/var/lib/apt/lists/", "/var/log/", "/etc/apt/sources.list.d/"))]
    assert [path for path, content in seen.items() if any(host in content for host in hosts)] == []


@pytest.mark.slow
@pytest.mark.prove
def test_the_same_packages_are_the_same_bytes_wherever_they_are_made(place, workspace):
    planned = bootstrap.plan(workspace, "bookworm")
    first = bootstrap.cached(workspace, planned) or bootstrap.make(
        workspace, planned, stored(workspace, planned), ignore_progress
    )
    second = bootstrap.make(place, planned, stored(place, planned), ignore_progress)
    assert second.archive_sha256 == first.archive_sha256
    assert second.path != first.path
    assert [
        path.name for path in place.bases.iterdir() if path.name not in ("lock", f"bookworm-{bootstrap.architecture()}")
    ] == []


def test_a_base_that_is_not_the_pinned_one_stops_the_build(engine, workspace, debian12):
    if debian12.how != "bootstrapped":
        pytest.skip("the engine pulled the base: there is no package list to drift")
    lock = bases.pin(environment(), engine, workspace, ignore_progress)
    assert isinstance(lock, BaseLock)
    assert lock.bootstrap is not None
    first, *rest = lock.bootstrap.packages
    older = dataclasses.replace(lock.bootstrap, packages=(dataclasses.replace(first, version="0.1"), *rest))
    with pytest.raises(BuildError) as stopped:
        bases.provide(dataclasses.replace(lock, bootstrap=older), environment(), engine, workspace, ignore_progress)
    assert stopped.value.code == "base-differs"
    assert [str(each) for each in stopped.value.problems] == [f"{first.name}: pinned 0.1, found {first.version}"]


@pytest.mark.slow
def test_killed_in_the_middle_the_next_run_succeeds_and_leaves_this_machines_apt_alone(place, workspace, package_list):
    planned = bootstrap.plan(workspace, "bookworm")
    code = (
        "from pathlib import Path; from envbuild.engine import bootstrap, package_store\n"
        "from envbuild.workspace import Workspace\n"
        f"r = Path({str(place.root)!r}); w = Workspace(root=r, output=r, home=Path({str(place.home)!r}))\n"
        "p = bootstrap.plan(w, 'bookworm')\n"
        "bootstrap.make(w, p, package_store.Store(w), lambda news: print(news.message, flush=True))\n"
    )
    stored(place, planned)
    env = {**os.environ, "PYTHONPATH": str(workspace.root)}
    process = subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout is not None
    for line in process.stdout:
        if "installing" in line:
            break
    process.send_signal(signal.SIGKILL)
    process.wait()
    work = str(place.bases / "work")
    wait_for(lambda: not processes(lambda words: any(work in word for word in words)))
    assert bootstrap.cached(place, planned) is None  # an unfinished base is not used
    assert str(place.home) not in Path("/proc/self/mountinfo").read_text()
    made = bootstrap.make(place, planned, stored(place, planned), ignore_progress)
    assert made.bootstrap == planned
    assert not Path(work).exists()
    assert package_list.exists()


def test_what_is_still_mounted_is_let_go_before_anything_is_removed(tmp_path):
    place, outside = tmp_path / "work" / "proc", tmp_path / "outside"
    place.mkdir(parents=True)
    outside.mkdir()
    (outside / "precious").write_text("of this machine")
    subprocess.run(["mount", "--bind", str(outside), str(place)], check=True)
    bootstrap.discard(tmp_path / "work")
    assert not (tmp_path / "work").exists()
    assert (outside / "precious").read_text() == "of this machine"


def test_without_a_mirror_the_pinned_base_that_was_made_before_serves(engine, workspace, debian12, monkeypatch):
    if debian12.how != "bootstrapped":
        pytest.skip("the engine pulled the base")
    pinned = bases.pin(environment(), None, workspace, ignore_progress)
    assert isinstance(pinned, BaseLock)
    monkeypatch.setattr(host_apt, "host_sources", list)
    real = bases.provide(pinned, environment(), engine, workspace, ignore_progress)
    assert real.image_id == debian12.image_id


def test_a_mirror_out_of_reach_is_named_within_seconds(place, engine, monkeypatch):
    unreachable = host_apt.Source(uri="http://mirror.invalid/debian", suite="bookworm")
    monkeypatch.setattr(host_apt, "host_sources", lambda: [unreachable])
    planned = Bootstrap(suite="bookworm", architecture="amd64", variant="minbase", packages=())
    lock = BaseLock(image="debian:12", digest=None, bootstrap=planned)
    started = time.monotonic()
    with pytest.raises(BuildError) as caught:
        bases.provide(lock, environment(), engine, place, ignore_progress)
    assert time.monotonic() - started < 120
    assert caught.value.code == "base-unreachable"
    for word in ("mirror.invalid", "debian:12", "`distribution`"):
        assert word in caught.value.message
    assert "wheels, conda" in caught.value.hint


# --- out of reach ----------------------------------------------------------------------------------------------------


def test_a_registry_out_of_reach_is_missing_in_the_lock_and_named_in_the_build(place, engine):
    decided = environment(image="registry.invalid/ubuntu:16.04", suite="", provider="apt")
    started = time.monotonic()
    pinned = bases.pin(decided, engine, place, ignore_progress)
    assert isinstance(pinned, Missing)
    assert pinned.what == "base registry.invalid/ubuntu:16.04"
    lock = BaseLock(image=decided.base.image, digest=None, bootstrap=None)
    for base in (lock, dataclasses.replace(lock, digest="sha256:" + "a" * 64)):
        with pytest.raises(BuildError) as caught:
            bases.provide(base, decided, engine, place, ignore_progress)
        assert (caught.value.code, caught.value.exit_code) == ("base-unreachable", 7)
        for word in ("registry.invalid/ubuntu:16.04", "`apt`"):
            assert word in caught.value.message
        assert "wheels, conda" in caught.value.hint
    assert time.monotonic() - started < 160


def test_a_repository_of_the_base_out_of_reach_is_named(engine):
    from envbuild.model.environment import AptRepository

    repository = AptRepository(
        name="cuda-repo", url="https://cuda.invalid/repos", suite="/", components="", key_url="", key_fingerprint=""
    )
    decided = environment()
    decided = dataclasses.replace(decided, base=dataclasses.replace(decided.base, repositories=(repository,), provider="apt"))
    started = time.monotonic()
    with pytest.raises(BuildError) as caught:
        bases.check_repositories(decided)
    assert time.monotonic() - started < 80
    assert caught.value.code == "base-unreachable"
    assert "cuda-repo" in caught.value.message
    assert "https://cuda.invalid/repos" in caught.value.message


def test_without_an_engine_a_base_that_only_a_registry_has_is_missing(place):
    decided = environment(image="registry.invalid/ubuntu:16.04", suite="")
    assert isinstance(bases.pin(decided, None, place, ignore_progress), Missing)


# --- pulled ----------------------------------------------------------------------------------------------------------


class Registry:
    """A registry with one image, over real HTTP by the distribution protocol."""

    def __init__(self, word: str) -> None:
        layer = io.BytesIO()
        with tarfile.open(fileobj=layer, mode="w") as tar:
            info = tarfile.TarInfo("hello")
            info.size = len(word)
            tar.addfile(info, io.BytesIO(word.encode()))
        packed = gzip.compress(layer.getvalue(), mtime=0)
        config = json.dumps(
            {
                "architecture": "amd64",
                "os": "linux",
                "config": {},
                "rootfs": {"type": "layers", "diff_ids": [digest(layer.getvalue())]},
            }
        ).encode()
        manifest = {
            "schemaVersion": 2,
            "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
            "config": part("application/vnd.docker.container.image.v1+json", config),
            "layers": [part("application/vnd.docker.image.rootfs.diff.tar.gzip", packed)],
        }
        self.manifest = json.dumps(manifest).encode()
        self.digest = digest(self.manifest)
        self.image_id = digest(config)
        self.blobs = {digest(config): config, digest(packed): packed}
        self.layer = digest(packed)
        self.asked: list[str] = []
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    @property
    def image(self) -> str:
        return f"127.0.0.1:{self.server.server_address[1]}/os:1"

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        registry = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry.asked.append(self.path)
                name = self.path.rsplit("/", 1)[-1]
                if self.path == "/v2/":
                    self._answer(b"{}", "application/json")
                elif "/manifests/" in self.path and name in ("1", registry.digest):
                    self._answer(registry.manifest, "application/vnd.docker.distribution.manifest.v2+json")
                elif name in registry.blobs:
                    self._answer(registry.blobs[name], "application/octet-stream")
                else:
                    self.send_error(404)

            do_HEAD = do_GET

            def _answer(self, body: bytes, kind: str) -> None:
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Docker-Content-Digest", digest(body))
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Write no log."""

        return Handler


def digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def part(kind: str, content: bytes) -> dict[str, object]:
    return {"mediaType": kind, "size": len(content), "digest": digest(content)}


@pytest.fixture
def registry(engine: Engine) -> Iterator[Registry]:
    if not engine.endpoint.startswith("unix://"):
        pytest.skip("the engine is on another machine and cannot reach a registry of this one")
    found = Registry(f"hello {time.time()}")
    yield found
    found.server.shutdown()
    engine.remove_image(f"envbuild/base:pulled-{found.digest[7:19]}")
    engine.remove_image(found.image_id)


def test_a_pulled_base_is_locked_by_digest_and_built_from(engine, place, registry, tmp_path):
    decided = environment(image=registry.image, suite="")
    pinned = bases.pin(decided, engine, place, ignore_progress)
    assert pinned == BaseLock(image=registry.image, digest=registry.digest, bootstrap=None)
    assert not [path for path in registry.asked if path.endswith(registry.layer)]  # pinning does not download the layer
    news: list[Progress] = []
    real = bases.provide(pinned, decided, engine, place, news.append)
    assert (real.how, real.digest, real.image_id) == ("pulled", registry.digest, registry.image_id)
    registry.asked.clear()
    assert bases.provide(pinned, decided, engine, place, ignore_progress) == real
    (tmp_path / "Dockerfile").write_text(f"FROM {real.reference}\nCOPY Dockerfile /x\n")
    engine.build(tmp_path, tag="envbuild-test/pulled:1")
    engine.remove_image("envbuild-test/pulled:1")
    assert registry.asked == []  # the engine has the image, so the registry gets no request


def test_a_locked_digest_that_the_registry_no_longer_has(engine, place, registry):
    decided = environment(image=registry.image, suite="", provider="tag")
    gone = BaseLock(image=registry.image, digest="sha256:" + "b" * 64, bootstrap=None)
    with pytest.raises(BuildError) as caught:
        bases.provide(gone, decided, engine, place, ignore_progress)
    assert caught.value.code == "base-unreachable"
    assert "`tag`" in caught.value.message


def test_a_base_that_could_not_be_pinned_is_taken_as_it_is_and_noted(engine, place, registry):
    decided = environment(image=registry.image, suite="")
    lock = BaseLock(image=registry.image, digest=None, bootstrap=None)
    real = bases.provide(lock, decided, engine, place, ignore_progress)
    assert real.notes == (f"{registry.image}: not pinned in the lock; the registry now has {registry.digest}",)


def test_a_local_image_is_locked_by_its_id(engine, place, debian12):
    decided = environment(image=debian12.reference, suite="", provider="local")
    pinned = bases.pin(decided, engine, place, ignore_progress)
    assert pinned == BaseLock(image=debian12.reference, digest=debian12.image_id, bootstrap=None)
    real = bases.provide(pinned, decided, engine, place, ignore_progress)
    assert (real.how, real.reference) == ("local", debian12.reference)


def wait_for(condition, seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to pass in time"
        time.sleep(0.05)
