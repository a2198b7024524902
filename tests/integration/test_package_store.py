"""The sources of a pinned .deb: the store, a mirror, a snapshot archive; and the error if none has it."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from archive_server import ArchiveServer, serve

from envbuild import files
from envbuild.engine import host_apt, package_store
from envbuild.engine.package_store import PackageServer, Store
from envbuild.errors import BuildError
from envbuild.model.lock import DebianPackage
from envbuild.model.progress import ignore_progress
from envbuild.workspace import Workspace

CONTENT = b"not a package, and bytes all the same" * 100
PATH = "debian/pool/main/g/g++-12/g++-12_1~deb12_amd64.deb"
ROOT = Path(__file__).parents[2]


def package(content: bytes = CONTENT, path: str = PATH) -> DebianPackage:
    digest = hashlib.sha256(content).hexdigest()
    return DebianPackage(name="g++-12", version="1", sha256=digest, architecture="amd64", size=len(content), path=path)


@pytest.fixture
def place(tmp_path: Path) -> Workspace:
    return Workspace(root=tmp_path, output=tmp_path, home=tmp_path / "home")


@pytest.fixture
def mirror() -> Iterator[ArchiveServer]:
    with serve() as archive:
        yield archive


@pytest.fixture
def snapshot() -> Iterator[ArchiveServer]:
    with serve() as archive:
        yield archive


@pytest.fixture
def asked(mirror: ArchiveServer, snapshot: ArchiveServer) -> tuple[PackageServer, ...]:
    return (
        PackageServer(archive="debian", root=f"{mirror.url}/deb/"),
        PackageServer(archive="debian", root=f"{snapshot.url}/debian/20260101T000000Z/", is_snapshot=True),
    )


def on(server: str, path: str = PATH) -> str:
    rest = path.partition("/")[2]
    return f"deb/{rest}" if server == "mirror" else f"debian/20260101T000000Z/{rest}"


def test_the_mirror_serves_first_and_the_store_from_then_on(place, mirror, snapshot, asked):
    mirror.files[on("mirror")] = CONTENT
    store = Store(place)
    path = store.get(package(), asked)
    assert path.read_bytes() == CONTENT
    assert store.get(package(), ()) == path
    assert mirror.asked == [on("mirror")]
    assert snapshot.asked == []


def test_what_the_mirror_no_longer_has_comes_from_the_snapshots(place, mirror, snapshot, asked):
    snapshot.files[on("snapshot")] = CONTENT
    assert Store(place).get(package(), asked).read_bytes() == CONTENT
    assert mirror.asked == [on("mirror")]


def test_other_bytes_of_the_same_name_are_refused(place, mirror, snapshot, asked):
    mirror.files[on("mirror")] = CONTENT.replace(b"same", b"SAME")
    snapshot.files[on("snapshot")] = CONTENT
    assert Store(place).get(package(), asked).read_bytes() == CONTENT
    other = Store(Workspace(root=place.root, output=place.root, home=place.root / "other"))
    snapshot.files.clear()
    with pytest.raises(BuildError, match=r"the file there is not the pinned one \(sha256 [0-9a-f]{64}\)") as stopped:
        other.get(package(), asked)
    assert stopped.value.code == "package-gone"
    assert list(other.folder.iterdir()) == []


def test_a_server_that_sends_more_than_the_lock_says_is_cut_short(place, mirror, asked):
    mirror.files[on("mirror")] = b"x" * (8 << 20)
    with pytest.raises(BuildError):
        Store(place).get(package(), asked[:1])
    assert list(Store(place).folder.iterdir()) == []


def test_where_none_serves_one_error_names_all_three_places(place, asked):
    with pytest.raises(BuildError) as stopped:
        Store(place).get(package(), asked)
    error = stopped.value
    assert (error.code, error.exit_code) == ("package-gone", 7)
    for words in ("g++-12 1", package().sha256, "not in the store", "this machine's mirror: ", "the snapshot http", "404"):
        assert words in error.message
    with pytest.raises(
        BuildError, match="the apt configuration of this machine names no mirror; no snapshot archive in the lock"
    ):
        Store(place).get(package(), ())


def test_a_damaged_file_of_the_store_is_fetched_again(place, mirror, asked):
    mirror.files[on("mirror")] = CONTENT
    store = Store(place)
    store.get(package(), asked).write_bytes(b"damaged")
    assert store.get(package(), asked).read_bytes() == CONTENT
    assert len(mirror.asked) == 2
    path = store.path(package())
    path.write_bytes(CONTENT.replace(b"same", b"SAME"))
    store.collect([package()], asked, ignore_progress)
    assert path.read_bytes() == CONTENT
    path.write_bytes(b"damaged")
    mirror.files.clear()
    with pytest.raises(BuildError, match="not in the store") as stopped:
        store.collect([package()], asked, ignore_progress)
    assert (stopped.value.code, stopped.value.exit_code) == ("package-gone", 7)


def test_all_that_cannot_be_had_is_told_at_once(place, mirror, asked):
    wanted = [package(bytes([number]) * 9, f"debian/pool/main/x/x_{number}_amd64.deb") for number in range(5)]
    mirror.files = {on("mirror", each.path): bytes([number]) * 9 for number, each in enumerate(wanted[:3])}
    with pytest.raises(BuildError) as stopped:
        Store(place).collect(wanted, asked, ignore_progress)
    assert len(stopped.value.problems) == 2
    assert sum(Store(place).holds(each) for each in wanted) == 3


def test_without_apt_the_snapshots_serve_all_the_same(place, snapshot, asked, monkeypatch):
    monkeypatch.setattr(package_store, "APT_HELPER", "/nowhere")
    snapshot.files[on("snapshot")] = CONTENT
    assert Store(place).get(package(), asked).read_bytes() == CONTENT


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a small file system")
@pytest.mark.parametrize("helper", [package_store.APT_HELPER, "/nowhere"], ids=["apt", "requests"])
def test_a_full_disk_is_not_blamed_on_the_archive(place, mirror, asked, monkeypatch, helper):
    monkeypatch.setattr(package_store, "APT_HELPER", helper)
    large = [package(bytes([number]) * 300_000, f"debian/pool/main/x/x_{number}_amd64.deb") for number in range(3)]
    mirror.files = {on("mirror", each.path): bytes([number]) * 300_000 for number, each in enumerate(large)}
    # After the first error, the other downloads continue and may make the folder again. Each helper has its own: pytest
    # removes the folder of a test that passed, and may give its path to the next test.
    place = dataclasses.replace(place, home=place.root / Path(helper).name)
    place.home.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place.home)], check=True)
    try:
        with pytest.raises(BuildError) as stopped:
            Store(place).collect(large, asked, ignore_progress)
        error = stopped.value
        assert error.code == "no-space"
        assert f"No space left on the file system mounted at {place.home} while writing" in error.message
        assert "ENVBUILD_HOME" in error.hint and "--relock" not in error.hint and not error.problems
    finally:
        subprocess.run(["umount", "--lazy", str(place.home)], check=True)  # the other downloads may still end


@pytest.mark.parametrize("helper", [package_store.APT_HELPER, "/nowhere"], ids=["apt", "requests"])
def test_a_server_that_answers_only_after_a_moment_is_asked_again(place, monkeypatch, helper):
    monkeypatch.setattr(package_store, "APT_HELPER", helper)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # The sources are the user's own mirror and a snapshot archive; without apt, only the latter is asked.
    late = PackageServer(archive="debian", root=f"http://127.0.0.1:{port}/debian/20260101T000000Z/", is_snapshot=True)
    came, over = threading.Event(), threading.Event()

    def answer_after_a_moment() -> None:
        time.sleep(0.7)
        with serve(port) as archive:
            archive.files[on("snapshot")] = CONTENT
            came.set()
            over.wait(60)

    server = threading.Thread(target=answer_after_a_moment)
    server.start()
    try:
        assert Store(place).get(package(), (late,)).read_bytes() == CONTENT
    finally:
        over.set()
        server.join()
    assert came.is_set()


def test_a_run_killed_while_it_fetches_leaves_nothing_that_counts(place, mirror, asked):
    mirror.files[on("mirror")] = CONTENT
    mirror.stalled.add(on("mirror"))
    wanted = package()
    code = (
        "import sys; from pathlib import Path; from envbuild.engine.package_store import Store, PackageServer; "
        "from envbuild.model.lock import DebianPackage; from envbuild.workspace import Workspace\n"
        f"r = Path({str(place.root)!r}); p = DebianPackage.from_line({wanted.to_line()!r})\n"
        f"o = [PackageServer(archive='debian', root={asked[0].root!r})]\n"
        "Store(Workspace(root=r, output=r, home=r / 'home')).get(p, o)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(ROOT)})
    store = Store(place)
    until = time.monotonic() + 60
    while not mirror.asked and time.monotonic() < until:
        time.sleep(0.1)
    process.kill()
    process.wait()
    assert not store.holds(wanted)
    mirror.stalled.clear()
    store.collect([wanted], asked, ignore_progress)
    assert [path.name for path in store.folder.iterdir()] == [f"{wanted.sha256}.deb"]


def test_packages_that_another_run_fetches_are_waited_for_and_not_fetched_again(place, mirror, asked):
    mirror.files[on("mirror")] = CONTENT
    store, waits = Store(place), threading.Event()
    with files.locked(store.folder / ".collecting"):  # stands for the other run
        mine = threading.Thread(target=store.collect, args=([package()], asked, lambda _news: waits.set()))
        mine.start()
        assert waits.wait(60)
        store.path(package()).write_bytes(CONTENT)
    mine.join(60)
    assert store.holds(package())
    assert mirror.asked == []


def test_apts_own_lists_are_not_touched(place, asked):
    before = sorted(Path("/var/lib/apt/lists").glob("*")) if host_apt.codename() else []
    with pytest.raises(BuildError):
        Store(place).get(package(), asked)
    assert (sorted(Path("/var/lib/apt/lists").glob("*")) if host_apt.codename() else []) == before
