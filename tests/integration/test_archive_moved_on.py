"""Build an old lock on a Debian whose mirror has newer packages: the same layers from the store, a mirror, and the snapshots.

The test makes and builds the lock today. Web servers on loopback stand in for the mirror and the snapshot archive of later
days. The signed index of that mirror names newer versions of all packages, and the pinned files are gone from it. The short
variant of the tests lets the builder take steps from its cache if their files are equal; the long variant makes the base and
every layer again.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import moving_archive as moving
import pytest
from archive_server import ArchiveServer, serve
from program import Program, fresh_root, share_bases
from real_matrix import FACTS

from envbuild import workspace as workspaces
from envbuild.engine import bootstrap
from envbuild.engine.client import Engine
from envbuild.lock import lock_file
from envbuild.model.lock import DebianPackage, Lock

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.slow, pytest.mark.usefixtures("root_machine")]

NAME = "opencv-4.5.1.48-cpu-py39-debian11"
SUITE = "bullseye"
ROOT = Path(__file__).parents[2]
ADDRESS = next(row.snapshot for row in FACTS.systems if row.codename == SUITE)


@dataclass(kw_only=True)
class Month:
    """A lock and its image of a month ago, and the servers of today."""

    folder: Path
    engine: Engine
    program: Program
    lock: Lock
    built: dict[str, Any]
    mirror: ArchiveServer
    snapshot: ArchiveServer
    key: moving.Key
    extra: DebianPackage
    from_scratch: bool

    @property
    def store(self) -> Path:
        return self.program.home / "downloads" / "debs"

    def later(self, home: Path) -> Program:
        """The program on another machine of today, with this cache folder."""
        return replace(self.program, home=home)

    def build(self, home: Path) -> Any:
        """Build the image again on that machine from the same lock."""
        (home / "builds" / f"{NAME}.json").unlink(missing_ok=True)
        if not self.from_scratch and not (home / "bases").exists():
            home.mkdir()
            (home / "bases").symlink_to(self.program.home / "bases")
        if self.from_scratch:
            subprocess.run(["rm", "-rf", str(home / "bases")], check=True)
            for tag in self.built["tags"]:
                self.engine.remove_image(tag)
            base = self.lock.base.bootstrap
            assert base is not None
            self.engine.remove_image(bootstrap.reference(base))
        words = ["--no-cache"] if self.from_scratch else []
        return self.later(home).run("build", NAME, "--json", *words, timeout=3000)


@pytest.fixture(scope="module", params=["with-cache", pytest.param("from-scratch", marks=pytest.mark.prove)])
def month(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, engine: Engine) -> Iterator[Month]:
    folder = tmp_path_factory.mktemp("month")
    with serve() as mirror, serve() as snapshot:
        root = fresh_root(folder / "root")
        systems = root / "matrix" / "systems.yaml"
        text = systems.read_text()
        assert ADDRESS in text
        systems.write_text(text.replace(ADDRESS, f"{snapshot.url}/archive"))
        then = Program(root=root, home=folder / "home", environment={"DOCKER_HOST": engine.endpoint})
        from_scratch = request.param == "from-scratch"
        if not from_scratch:
            share_bases(then.home)
            link_packages(then.home)
        then.run("lock", NAME, timeout=600).expect(0)
        lock = lock_file.read(root / "images" / "environments" / NAME / "lock.json")
        then.run("fetch", NAME, timeout=3000).expect(0)  # also the packages of a base that was already made
        built = then.run("build", NAME, "--json", *(["--no-cache"] if from_scratch else []), timeout=3000).expect(0).document
        key = moving.Key(folder / "key")
        today = replace(then, prefix=moving.machine(folder / "apt", mirror.url, SUITE, key))
        month = Month(
            folder=folder, engine=engine, program=today, lock=lock, built=built, mirror=mirror, snapshot=snapshot, key=key,
            extra=extra_package(folder), from_scratch=from_scratch,
        )  # fmt: skip
        try:
            yield month
        finally:
            key.end()
            for tag in built["tags"]:
                engine.remove_image(tag)


def link_packages(home: Path) -> None:
    """Copy the Debian packages of the user's cache into the store, so that tests do not change the user's cache."""
    store = home / "downloads" / "debs"
    store.mkdir(parents=True)
    for file in (workspaces.find(str(ROOT)).downloads / "debs").glob("*.deb"):
        shutil.copy2(file, store)


def extra_package(folder: Path) -> DebianPackage:
    """A package that was not in the lock a month ago."""
    control = folder / "toy-extra" / "DEBIAN" / "control"
    control.parent.mkdir(parents=True)
    control.write_text(
        "Package: toy-extra\nVersion: 1\nArchitecture: amd64\nMaintainer: toy\nDepends: libglib2.0-0\nDescription: toy\n"
    )
    file = folder / "toy-extra_1_amd64.deb"
    subprocess.run(["dpkg-deb", "--build", str(control.parents[1]), str(file)], check=True, capture_output=True)
    digest = moving.hashlib.sha256(file.read_bytes()).hexdigest()
    return DebianPackage(
        name="toy-extra", version="1", sha256=digest, architecture="amd64", size=file.stat().st_size,
        path=f"debian/pool/main/t/toy-extra/{file.name}",
    )  # fmt: skip


@pytest.fixture
def pinned(month: Month) -> dict[str, bytes]:
    """The files that the lock pins, by their paths."""
    return moving.contents(month.lock.debs(), month.store)


@pytest.fixture(autouse=True)
def moved(month: Month) -> None:
    """Let the mirror have only the index of newer packages, without the pinned files; let the snapshot archive be empty."""
    now = moving.moved_on(moving.stanzas(month.lock.debs(), month.store))
    month.mirror.files = {}
    for archive, entries in now.items():
        month.mirror.files |= moving.index(archive, SUITE, archive, entries, month.key)
    month.snapshot.files = {}
    month.mirror.asked.clear()
    month.snapshot.asked.clear()


def debs_of(server: ArchiveServer) -> list[str]:
    return [path for path in server.asked if path.endswith(".deb")]


def kept(month: Month, pinned: dict[str, bytes]) -> dict[str, bytes]:
    """The pinned files, by their paths below the snapshot addresses of the lock."""
    assert month.lock.apt is not None
    found = {}
    for url in month.lock.apt.snapshots:
        below = url.removeprefix(f"{month.snapshot.url}/")
        archive = below.split("/")[-2]
        own = {path: content for path, content in pinned.items() if path.startswith(f"{archive}/")}
        found |= {f"{below}/{path.partition('/')[2]}": content for path, content in own.items()}
    return found


@pytest.mark.prove
def test_the_store_alone_gives_the_same_layers(month: Month) -> None:
    again = month.build(month.program.home).expect(0).document
    assert again["layers"] == month.built["layers"]
    assert (debs_of(month.mirror), debs_of(month.snapshot)) == ([], [])


@pytest.mark.prove
def test_an_empty_store_takes_what_the_mirror_still_has(month: Month, pinned: dict[str, bytes]) -> None:
    month.mirror.files |= pinned
    again = month.build(month.folder / "second").expect(0).document
    assert again["layers"] == month.built["layers"]
    assert set(debs_of(month.mirror)) <= set(pinned) and debs_of(month.mirror)
    assert debs_of(month.snapshot) == []


def test_an_empty_store_takes_from_the_snapshots_what_the_mirror_lacks(month: Month, pinned: dict[str, bytes]) -> None:
    month.snapshot.files |= kept(month, pinned)
    again = month.build(month.folder / "third").expect(0).document
    assert again["layers"] == month.built["layers"]
    wanted = month.lock.debs() if month.from_scratch else month.lock.step_debs()
    assert len(debs_of(month.snapshot)) == len({each.sha256 for each in wanted})


def test_where_none_has_them_all_three_places_are_named_and_no_tag_moves(month: Month) -> None:
    (tag, *_) = month.built["tags"]
    before = month.engine.image(tag)
    assert before is not None
    refused = month.later(month.folder / "fourth").run("build", NAME, "--json").expect(7).document["error"]
    assert refused["code"] == "package-gone"
    assert month.lock.apt is not None
    for words in ("not in the store", "this machine's mirror: ", f"the snapshot {month.lock.apt.snapshots[0]}: "):
        assert words in json.dumps(refused), words
    assert month.engine.image(tag) == before


def recipe(month: Month, name: str, more: str = "") -> Path:
    folder = month.folder / name
    folder.mkdir()
    (folder / "envbuild.yaml").write_text(f"schema: 1\nname: {name}\nframeworks: [{NAME}]\npip: [tqdm]\n{more}")
    return folder


def test_a_users_recipe_shares_the_packages_of_its_frameworks(month: Month) -> None:
    folder = recipe(month, "share")
    month.program.run("lock", cwd=folder).expect(0)
    own = lock_file.read(folder / "envbuild.lock.json")
    assert own.base == month.lock.base
    assert own.apt == month.lock.apt


def test_an_added_package_of_a_user_leaves_the_others_as_they_are(month: Month) -> None:
    """The package comes from the snapshots, because the mirror no longer has the installed versions that it depends on."""
    of_then = moving.stanzas(month.lock.debs(), month.store)
    store = month.store
    (store / f"{month.extra.sha256}.deb").write_bytes((month.folder / month.extra.filename).read_bytes())
    of_then["debian"] += moving.stanzas([month.extra], store)["debian"]
    assert month.lock.apt is not None
    for url in month.lock.apt.snapshots:
        below = url.removeprefix(f"{month.snapshot.url}/")
        archive = below.split("/")[-2]
        month.snapshot.files |= moving.index(below, SUITE, archive, of_then[archive], month.key)
    folder = recipe(month, "more")
    month.program.run("lock", cwd=folder).expect(0)
    month.program.run("add", "./envbuild.yaml", "--apt", "toy-extra", cwd=folder).expect(0)
    own = lock_file.read(folder / "envbuild.lock.json")
    assert own.base == month.lock.base
    assert own.apt is not None
    new = [step for step in own.apt.steps if step not in month.lock.apt.steps]
    assert [(step.asked, step.packages) for step in new] == [(("toy-extra",), (month.extra,))]
    assert set(own.apt.snapshots) >= set(month.lock.apt.snapshots)


@pytest.mark.prove
def test_where_its_frameworks_packages_are_gone_todays_are_pinned_and_that_is_said(month: Month) -> None:
    folder = recipe(month, "today")
    told = month.later(month.folder / "fifth").run("lock", cwd=folder).expect(0)
    assert "cannot be kept; today's packages are pinned instead" in told.err
    own = lock_file.read(folder / "envbuild.lock.json")
    assert own.base.bootstrap is not None and own.apt is not None
    assert all(each.version.endswith(moving.MOVED) for each in own.debs())
