"""Bundles: their contents; how they are made, completed and checked; and which bundles of strangers are refused."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import verify_locks

from envbuild import build_secret, cli, git_sources, network, procs
from envbuild.custom.reading import UserRecipe
from envbuild.engine import bootstrap, package_store
from envbuild.errors import BuildError, EnvbuildError, InvalidInputError, UsageError
from envbuild.index.client import Index
from envbuild.lock import lock_file
from envbuild.model.custom import CopiedFile, Custom
from envbuild.model.environment import AptPackage, AptRepository, RemoteFile
from envbuild.model.lock import AptLock, AptStep, Artifact, DebianPackage, Lock, Missing, SourceArchive
from envbuild.model.progress import Progress
from envbuild.pipeline import bundle_contents, bundling, fetching, locking, offline
from envbuild.pipeline.bundle_folder import BundleFolder
from envbuild.pipeline.stored_locks import Locked
from envbuild.pipeline.tools import Tools
from envbuild.workspace import Workspace

ROOT = Path(__file__).parents[2]
URL = "https://files.example/python-3.11.tar.gz"
REPOSITORY, REVISION = "https://git.example/framework.git", "v1"


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class Servers:
    """Servers with every file that the locks pin, by name. ``fails`` has the errors to raise, once each, for a file name."""

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}
        self.fails: dict[str, list[BaseException]] = {}
        self.asked: list[str] = []

    def file_of(self, artifact: Artifact) -> Artifact:
        return artifact

    def is_dead(self, artifact: object, url: str) -> bool:
        return False

    def size_of(self, file: Any) -> int:
        return len(self.contents[file.filename])

    def download(self, file: Any, folder: Path, tell, *, sha256: str) -> Path:
        self.asked.append(file.filename)
        if self.fails.get(file.filename):
            raise self.fails[file.filename].pop()
        folder.mkdir(parents=True, exist_ok=True)
        (folder / file.filename).write_bytes(self.contents[file.filename])
        tell(Progress(stage="download", message="", done=float(len(self.contents[file.filename]))))
        return folder / file.filename

    def artifact(self, name: str, suffix: str = "-py3-none-any.whl") -> Artifact:
        content = f"the file of {name}".encode()
        made = replace(verify_locks.artifact(name, "1.0", suffix), sha256=sha256(content), size=len(content))
        self.contents[made.filename] = content
        return made


def deb(workspace: Workspace, name: str) -> DebianPackage:
    """A Debian package whose file is already in the store."""
    content = f"the package {name}".encode()
    path = f"debian/pool/{name}_1_all.deb"
    made = DebianPackage(name=name, version="1", sha256=sha256(content), architecture="all", size=len(content), path=path)
    store = package_store.Store(workspace)
    store.folder.mkdir(parents=True, exist_ok=True)
    store.path(made).write_bytes(content)
    return made


def base_tar(path: Path, package: DebianPackage, more: bytes = b"") -> Path:
    text = f"Package: {package.name}\nStatus: install ok installed\nVersion: {package.version}\n".encode()
    entry = tarfile.TarInfo("./var/lib/dpkg/status")
    entry.size = len(text)
    with tarfile.open(path, "w") as tar:
        tar.addfile(entry, io.BytesIO(text))
        if more:
            entry = tarfile.TarInfo("./more")
            entry.size = len(more)
            tar.addfile(entry, io.BytesIO(more))
    return path


class World:
    """Two environments that share a tool and a base, with their locks and servers, on a machine with all Debian packages."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (folder / "root/images").mkdir(parents=True)
        self.workspace = Workspace(root=folder / "root", output=folder / "out", home=folder / "home")
        self.tools = Tools(self.workspace)
        self.servers = Servers()
        self.tools.__dict__["index"] = self.servers
        self.folder = folder / "bundle"
        bash, tini = deb(self.workspace, "bash"), deb(self.workspace, "tini")
        source = git_sources.archive_path(REPOSITORY, REVISION, self.workspace.downloads / "sources")
        source.parent.mkdir(parents=True)
        source.write_bytes(b"the source")
        self.locks = {name: self._lock(name, bash, tini) for name in ("one", "other")}
        planned = self.locks["one"].base.bootstrap
        assert planned is not None
        archive = base_tar(folder / "base.tar", bash)
        made = bootstrap.adopt(self.workspace, planned, archive, sha256(archive.read_bytes()))
        note = made.path.with_name("manifest.json")  # as if this machine had made the base
        note.write_text(json.dumps({key: value for key, value in json.loads(note.read_text()).items() if key != "adopted"}))
        monkeypatch.setattr(locking, "require_lock", lambda _tools, name: self.locked(name))
        monkeypatch.setattr(fetching, "WAIT_S", 0.0)

    def _lock(self, name: str, bash: DebianPackage, tini: DebianPackage) -> Lock:
        lock = verify_locks.lock()
        planned = lock.base.bootstrap
        assert planned is not None
        artifacts = (self.servers.artifact(f"{name}-toy"), self.servers.artifact(f"{name}-source", ".tar.gz"))
        prefix = replace(lock.prefixes[0], artifacts=artifacts, build_artifacts=(self.servers.artifact("builder"),))
        self.servers.contents["python-3.11.tar.gz"] = b"an interpreter"
        python = RemoteFile(url=URL, sha256=sha256(b"an interpreter"))
        environment = replace(
            lock.environment, name=f"{name}-1.0-cpu", python=replace(lock.environment.python, files=(python,))
        )
        return replace(
            lock,
            environment=environment,
            prefixes=(prefix,),
            base=replace(lock.base, bootstrap=replace(planned, packages=(bash,))),
            tools=(self.servers.artifact("uv"),),
            sources=(SourceArchive(repository=REPOSITORY, revision=REVISION, sha256=sha256(b"the source")),),
            apt=AptLock(snapshots=(), steps=(AptStep(name="os", asked=("tini",), packages=(tini,)),)),
        )

    def locked(self, name: str) -> Locked:
        lock = self.locks[name]
        return Locked(lock=lock, digest=lock_file.digest(lock), path=self.workspace.root, kept=True)

    def bundle(self, *names: str) -> bundling.BundlePlan:
        plans: list[bundling.BundlePlan] = []
        bundling.bundle([self.tools] * len(names), names, self.folder, plans.append)
        return plans[0]

    def manifest(self) -> dict[str, Any]:
        return dict(json.loads((self.folder / "bundle.json").read_text()))

    def change(self, **values: Any) -> None:
        (self.folder / "bundle.json").write_text(json.dumps(self.manifest() | values))

    def names(self) -> set[str]:
        return {path.relative_to(self.folder).as_posix() for path in self.folder.rglob("*") if path.is_file()}

    def elsewhere(self, folder: Path) -> Tools:
        """The tools of a machine that has only this bundle."""
        place = Workspace(root=self.workspace.root, output=folder / "checkout", home=folder / "home")
        return offline.tools_for(place, self.folder, [], Tools)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def test_a_bundle_holds_every_file_under_its_hash_and_says_so(world: World):
    plan = world.bundle("one")
    manifest = world.manifest()
    schema = json.loads(resources.files("envbuild.schemas").joinpath("bundle.json").read_text(encoding="utf-8"))
    jsonschema.validate(manifest, schema)
    assert world.names() == {"bundle.json"} | {f"files/{file['sha256']}" for file in manifest["files"]}
    for file in manifest["files"]:
        content = (world.folder / "files" / file["sha256"]).read_bytes()
        assert (sha256(content), len(content)) == (file["sha256"], file["size"])
    pinned = {pin.sha256 for pin in fetching.pins(world.locks["one"])}
    assert pinned < {file["sha256"] for file in manifest["files"]}
    kinds = [file["kind"] for file in manifest["files"]]
    assert sorted({*kinds}) == sorted(["python package", "Debian package", "fetched file", "source", "base", "lock"])
    assert (plan.files, plan.held) == (len(pinned) + 1, 0)
    _, (checked,) = bundle_contents.check(world.workspace, BundleFolder(world.folder))
    assert checked.ok
    assert checked.files == len(manifest["files"])


def test_environments_share_files_and_what_is_there_is_not_fetched_again(world: World):
    world.bundle("one")
    world.servers.asked.clear()
    world.bundle("one", "other")
    assert sorted(world.servers.asked) == ["other-source-1.0.tar.gz", "other-toy-1.0-py3-none-any.whl"]
    assert [each["name"] for each in world.manifest()["environments"]] == ["one-1.0-cpu", "other-1.0-cpu"]
    assert sum(file["name"].startswith("uv") for file in world.manifest()["files"]) == 1


@pytest.mark.parametrize("trouble", [KeyboardInterrupt(), BuildError("gone", code="artifact-gone")])
def test_an_interrupted_run_leaves_no_manifest_and_goes_on_where_it_was(world: World, trouble: BaseException):
    last = "one-source-1.0.tar.gz"
    world.servers.fails[last] = [trouble]
    with pytest.raises((KeyboardInterrupt, BuildError)):
        world.bundle("one")
    assert not (world.folder / "bundle.json").exists()
    assert not [path for path in world.folder.iterdir() if path.name != "files"], "work folders and locks are removed"
    held = {path.name for path in world.folder.glob("files/*")}  # possibly empty, if the run was interrupted at once
    assert all(sha256((world.folder / "files" / name).read_bytes()) == name for name in held)
    world.servers.asked.clear()
    plan = world.bundle("one")
    assert plan.held == len(held)
    assert last in world.servers.asked
    assert bundle_contents.check(world.workspace, BundleFolder(world.folder))[1][0].ok


def spoil(world: World, how: str) -> str:
    """Damage the wheel of ``one`` in the bundle and return its name."""
    wheel = world.locks["one"].prefixes[0].artifacts[0]
    path = world.folder / "files" / wheel.sha256
    content = path.read_bytes()
    path.unlink()
    if how == "damaged":
        path.write_bytes(content[:-1] + b"X")
    elif how == "not a plain file":
        (world.folder.parent / "original").write_bytes(content)
        path.symlink_to(world.folder.parent / "original")
    return wheel.filename


@pytest.mark.parametrize("how", ["missing", "damaged", "not a plain file"])
def test_a_file_that_is_not_whole_is_named_before_anything_is_built_and_is_fetched_again(world: World, tmp_path, how: str):
    world.bundle("one", "other")
    filename = spoil(world, how)
    _, (one, other) = bundle_contents.check(world.workspace, BundleFolder(world.folder))
    assert [(lack.name, lack.fault) for lack in one.lacks] == [(filename, how)]
    assert other.ok
    machine = world.elsewhere(tmp_path / "machine")
    assert machine.offline is not None
    with pytest.raises(BuildError, match=filename) as caught:
        machine.offline.supply(machine, world.locks["one"], wheels=True)
    assert caught.value.code == "not-in-bundle"
    assert not machine.workspace.downloads.exists(), "nothing was copied"
    machine.offline.supply(machine, world.locks["other"], wheels=True)
    world.bundle("one")
    assert bundle_contents.check(world.workspace, BundleFolder(world.folder))[1][0].ok


def test_a_machine_without_anything_gets_all_from_the_bundle_and_changes_nothing_in_it(world, tmp_path, monkeypatch):
    world.bundle("one")
    before = {path: (path.stat().st_mtime_ns, path.stat().st_mode) for path in [world.folder, *world.folder.rglob("*")]}
    monkeypatch.setattr(procs, "find", lambda program: None)  # without mmdebstrap the base comes from the bundle, too
    machine, lock = world.elsewhere(tmp_path / "machine"), world.locks["one"]
    assert lock_file.read(machine.workspace.lock_file("one-1.0-cpu")) == lock
    assert not (tmp_path / "machine/checkout").exists(), "the locks of a checkout are left alone"
    context = machine.offline.supply(machine, lock, wheels=True)
    names = {path.removeprefix(f"{build_secret.OFFLINE}/"): source.read_bytes() for path, source in context.items()}
    assert names == {
        "files/one-toy-1.0-py3-none-any.whl": b"the file of one-toy",
        "files/one-source-1.0.tar.gz": b"the file of one-source",
        "files/builder-1.0-py3-none-any.whl": b"the file of builder",
        f"fetched/{build_secret.fetched_name(URL)}": b"an interpreter",
    }
    assert all(package_store.Store(machine.workspace).holds(package) for package in lock.debs())
    made = git_sources.archive(
        REPOSITORY, REVISION, machine.workspace.downloads / "sources", machine.on_progress, sha256=lock.sources[0].sha256
    )
    assert made.read_bytes() == b"the source"
    assert bootstrap.cached(machine.workspace, lock.base.bootstrap) is None, "only builds from a bundle take a stranger's base"
    with network.forbidden():
        rootfs = bootstrap.cached(machine.workspace, lock.base.bootstrap)
        assert rootfs is not None
        assert bootstrap.is_whole(rootfs)
        with monkeypatch.context() as with_mmdebstrap:
            with_mmdebstrap.setattr(procs, "find", lambda program: f"/usr/bin/{program}")
            assert bootstrap.cached(machine.workspace, lock.base.bootstrap) is None
    wheel = machine.index.fetch_artifact(lock.tools[0], machine.workspace.downloads)
    assert wheel.read_bytes() == b"the file of uv"
    assert isinstance(machine.index, Index)
    composed = machine.offline.supply(machine, lock, wheels=False)
    assert {*context} - {*composed} == {f"{build_secret.OFFLINE}/files/one-toy-1.0-py3-none-any.whl"}
    assert before == {path: (path.stat().st_mtime_ns, path.stat().st_mode) for path in [world.folder, *world.folder.rglob("*")]}


def test_a_base_serves_no_other_bundle_than_its_own(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    world.bundle("one")
    monkeypatch.setattr(procs, "find", lambda program: None)
    lock = world.locks["one"]
    (package,) = lock.base.bootstrap.packages if lock.base.bootstrap else ()
    stranger = base_tar(tmp_path / "stranger.tar", package, more=b"malware")
    machine = world.elsewhere(tmp_path / "machine")
    assert lock.base.bootstrap is not None
    bootstrap.adopt(machine.workspace, lock.base.bootstrap, stranger, sha256(stranger.read_bytes()))
    with network.forbidden():
        assert machine.offline is not None
        machine.offline.supply(machine, lock, wheels=True)
        rootfs = bootstrap.cached(machine.workspace, lock.base.bootstrap)
        assert rootfs is not None
        assert rootfs.archive_sha256 == world.manifest()["environments"][0]["base"]
        rootfs.path.write_bytes(b"damaged")
        machine.offline.supply(machine, lock, wheels=True)
        assert bootstrap.is_whole(rootfs)


@pytest.mark.parametrize("content", [b"", b"no tar", b"\0" * 10240])
def test_a_base_that_is_no_root_file_system_is_refused(world: World, tmp_path: Path, content: bytes):
    planned = world.locks["one"].base.bootstrap
    assert planned is not None
    (tmp_path / "other.tar").write_bytes(content)
    with pytest.raises(BuildError) as caught:
        bootstrap.adopt(world.workspace, planned, tmp_path / "other.tar", sha256(content))
    assert caught.value.code == "base-differs"
    others = replace(planned, packages=(replace(planned.packages[0], version="2"),))
    archive = base_tar(tmp_path / "base.tar", planned.packages[0])
    with pytest.raises(BuildError, match="different packages"):
        bootstrap.adopt(world.workspace, others, archive, sha256(archive.read_bytes()))


def test_without_mmdebstrap_on_either_machine_the_base_is_told_to_be_missing(world, tmp_path, monkeypatch):
    monkeypatch.setattr(procs, "find", lambda program: None)
    for made in (world.workspace.home / "bases").rglob("manifest.json"):
        made.unlink()
    world.bundle("one")
    machine = world.elsewhere(tmp_path / "machine")
    with pytest.raises(BuildError, match="mmdebstrap") as caught:
        machine.offline.supply(machine, world.locks["one"], wheels=True)
    assert caught.value.code == "not-in-bundle"


@pytest.mark.parametrize("has_mmdebstrap", [True, False])
@pytest.mark.parametrize("state", ["damaged", "missing", "never bundled"])
def test_doctor_says_of_a_bad_base_what_a_build_here_would_do(world, tmp_path, monkeypatch, capsys, state, has_mmdebstrap):
    """With mmdebstrap, a build makes the base from the Debian packages; without it, nothing can be built.

    doctor and the build agree.
    """
    monkeypatch.setattr(procs, "find", lambda _program: None)
    if state == "never bundled":
        for made in (world.workspace.home / "bases").rglob("manifest.json"):
            made.unlink()
    world.bundle("one")
    base = world.manifest()["environments"][0].get("base", "")
    if state == "damaged":
        (world.folder / "files" / base).write_bytes(b"X")
    elif state == "missing":
        (world.folder / "files" / base).unlink()
    machine = world.elsewhere(tmp_path / "machine")
    monkeypatch.setenv("ENVBUILD_HOME", str(tmp_path / "machine/home"))
    monkeypatch.setattr(procs, "find", lambda program: f"/usr/bin/{program}" if has_mmdebstrap else None)

    words = ["doctor", "--offline", str(world.folder), "--root", str(ROOT)]
    with pytest.raises(SystemExit) as ended:
        cli.main([*words, "--json"])
    (told,) = json.loads(capsys.readouterr().out)["environments"]
    assert (ended.value.code, told["ok"]) == ((0, True) if has_mmdebstrap else (5, False))
    with pytest.raises(SystemExit):
        cli.main(words)
    text = capsys.readouterr().out
    assert ("BROKEN" in text, "mmdebstrap" in text) == (not has_mmdebstrap, not (has_mmdebstrap and not base))
    names = {file["sha256"]: file["name"] for file in world.manifest()["files"]}
    bad = [{"name": names[base], "sha256": base, "fault": state}] if base else []
    assert told["unused_lacks" if has_mmdebstrap else "lacks"] == bad
    assert told["lacks" if has_mmdebstrap else "unused_lacks"] == []
    assert bool(told["error"]) == (not base and not has_mmdebstrap)
    with contextlib.nullcontext() if has_mmdebstrap else pytest.raises(BuildError):
        machine.offline.supply(machine, world.locks["one"], wheels=True)


def test_an_environment_that_is_not_there_is_told_with_those_that_are(world: World, tmp_path: Path):
    world.bundle("one")
    machine = world.elsewhere(tmp_path / "machine")
    assert machine.offline is not None
    with pytest.raises(BuildError) as caught:
        machine.offline.require("other-1.0-cpu")
    assert (caught.value.code, caught.value.exit_code) == ("not-in-bundle", 7)
    assert "one-1.0-cpu" in caught.value.hint


OTHER = "f" * 64
HOSTILE: list[tuple[str, dict[str, Any]]] = [
    ("not a sha256", {"files": [{"name": "a", "kind": "lock", "sha256": "../../etc/passwd", "size": 1}]}),
    ("not a sha256", {"files": [{"name": "a", "kind": "lock", "sha256": "A" * 64, "size": 1}]}),
    ("name of a file", {"files": [{"name": "../a", "kind": "lock", "sha256": OTHER, "size": 1}]}),
    ("name of a file", {"files": [{"name": "/a", "kind": "lock", "sha256": OTHER, "size": 1}]}),
    ("a negative size", {"files": [{"name": "a", "kind": "lock", "sha256": OTHER, "size": -1}]}),
    ("listed twice", {"files": [{"name": name, "kind": "lock", "sha256": OTHER, "size": 1} for name in "ab"]}),
    ("name of an environment", {"environments": [{"name": "../one", "lock": OTHER}]}),
    ("not listed", {"environments": [{"name": "one", "lock": OTHER}]}),
    ("not listed", {"matrix": [OTHER]}),
    ("schema 2", {"schema": 2}),
    ("structure", {"more": 1}),
    ("structure", {"files": "all"}),
]


@pytest.mark.parametrize(("why", "values"), HOSTILE)
def test_a_manifest_that_says_what_cannot_be_is_refused(world: World, why: str, values: dict[str, Any]):
    world.bundle("one")
    world.change(**values)
    with pytest.raises(InvalidInputError) as caught:
        BundleFolder(world.folder).manifest()
    assert caught.value.code == "broken-bundle"
    assert why in caught.value.message + " ".join(map(str, caught.value.problems))


@pytest.mark.parametrize("path", ["/etc/passwd", "../up", "a/../../up", "a//b", "./a", "", "a\0b", "a/" * 40 + "b", "x" * 300])
def test_a_path_of_a_users_file_stays_below_its_folder(world: World, path: str):
    world.bundle("one")
    (environment,) = world.manifest()["environments"]
    world.change(environments=[environment | {"recipe": [{"path": path, "sha256": environment["lock"]}]}])
    with pytest.raises(InvalidInputError) as caught:
        BundleFolder(world.folder).manifest()
    assert "relative path inside the folder" in str(caught.value.problems[0])


@pytest.mark.parametrize("paths", [("envbuild.yaml", ".envbuild/builds/one.json"), ("more.txt", "envbuild.yaml")])
def test_users_files_do_not_take_the_place_of_records_of_builds(world: World, paths: tuple[str, ...]):
    world.bundle("one")
    (environment,) = world.manifest()["environments"]
    world.change(environments=[environment | {"recipe": [{"path": path, "sha256": environment["lock"]} for path in paths]}])
    with pytest.raises(InvalidInputError, match="cannot be") as caught:
        BundleFolder(world.folder).manifest()
    assert "envbuild" in str(caught.value.problems)


def test_users_files_cannot_be_a_file_and_a_folder_at_once(world: World):
    world.bundle("one")
    (environment,) = world.manifest()["environments"]
    twice = [{"path": path, "sha256": environment["lock"]} for path in ("a", "a/b")]
    world.change(environments=[environment | {"recipe": twice}])
    with pytest.raises(InvalidInputError, match="cannot be"):
        BundleFolder(world.folder).manifest()


@pytest.mark.parametrize("name", ["bundle.json", "files"])
def test_links_in_place_of_parts_of_a_bundle_are_refused(world: World, name: str):
    world.bundle("one")
    (world.folder / name).rename(world.folder.parent / "moved")
    (world.folder / name).symlink_to(world.folder.parent / "moved")
    with pytest.raises(InvalidInputError, match="link"):
        BundleFolder(world.folder).manifest()


def test_the_lock_of_a_bundle_is_read_as_any_lock(world: World):
    world.bundle("one")
    (environment,) = world.manifest()["environments"]
    text = (world.folder / "files" / environment["lock"]).read_text()
    hostile = text.replace("one-toy-1.0-py3-none-any.whl", "../../one-toy-1.0-py3-none-any.whl").encode()
    (world.folder / "files" / sha256(hostile)).write_bytes(hostile)
    files = world.manifest()["files"]
    added = {"name": "lock.json", "kind": "lock", "sha256": sha256(hostile), "size": len(hostile)}
    world.change(environments=[environment | {"lock": sha256(hostile)}], files=[*files, added])
    folder = BundleFolder(world.folder)
    with pytest.raises(InvalidInputError) as caught:
        folder.lock(folder.manifest().environments[0])
    assert caught.value.code == "broken-lock"
    assert bundle_contents.check(world.workspace, folder)[1][0].error
    world.change(environments=[environment | {"name": "someone-else"}])
    with pytest.raises(InvalidInputError, match="is the lock of one"):
        folder.lock(folder.manifest().environments[0])


def with_lock(world: World, lock: Lock) -> BundleFolder:
    """The bundle with ``lock`` instead of the lock of ``one``."""
    world.bundle("one")
    (environment,) = world.manifest()["environments"]
    content = lock_file.dumps(lock).encode()
    (world.folder / "files" / sha256(content)).write_bytes(content)
    added = {"name": "lock.json", "kind": "lock", "sha256": sha256(content), "size": len(content)}
    world.change(environments=[environment | {"lock": sha256(content)}], files=[*world.manifest()["files"], added])
    return BundleFolder(world.folder)


def hostile_locks(lock: Lock) -> dict[str, Lock]:
    planned, apt = lock.base.bootstrap, lock.apt
    assert planned is not None
    assert apt is not None
    (tool,), (source,), (step,) = lock.tools, lock.sources, apt.steps
    (package,) = step.packages
    packages = {"hash": replace(package, sha256="../a"), "path": replace(package, path="debian/..")}
    return {
        "tool": replace(lock, tools=(replace(tool, filename="../../uv.whl"),)),
        "source": replace(lock, sources=(replace(source, sha256="../../../etc/passwd"),)),
        "repository": replace(lock, sources=(replace(source, repository="https://git.example/a\0b"),)),
        "address": replace(
            lock,
            environment=replace(
                lock.environment,
                python=replace(lock.environment.python, files=(RemoteFile(url="https://[", sha256="0" * 64),)),
            ),
        ),
        "snapshot": replace(lock, apt=replace(apt, snapshots=("debian",))),
        "nothing": replace(lock, sources=(replace(source, sha256="a\0b"),)),
        "suite": replace(lock, base=replace(lock.base, bootstrap=replace(planned, suite="../../victim"))),
        "step": replace(lock, apt=replace(apt, steps=(replace(step, name="../../../up"),))),
        **{
            f"package's {what}": replace(lock, apt=replace(apt, steps=(replace(step, packages=(each,)),)))
            for what, each in packages.items()
        },
    }


@pytest.mark.parametrize(
    "what",
    [
        *("tool", "source", "nothing", "suite", "step", "package's hash", "package's path"),
        *("repository", "address", "snapshot"),
    ],
)
def test_no_text_of_a_strangers_lock_leads_out_of_a_folder(world: World, tmp_path: Path, what: str):
    folder = with_lock(world, hostile_locks(world.locks["one"])[what])
    _, (checked,) = bundle_contents.check(world.workspace, folder)
    assert checked.error
    with pytest.raises(InvalidInputError) as caught:
        world.elsewhere(tmp_path / "machine")
    assert caught.value.code == "broken-lock"


def test_only_files_of_the_bundle_are_read_whatever_is_called_a_hash(world: World):
    world.bundle("one")
    assert BundleFolder(world.folder).fault("../bundle.json") == "missing"
    assert BundleFolder(world.folder).fault("a\0b") == "missing"


def test_a_small_file_that_is_too_large_or_changes_is_refused(world: World, monkeypatch: pytest.MonkeyPatch):
    world.bundle("one")
    (environment,) = world.manifest()["environments"]
    folder = BundleFolder(world.folder)
    monkeypatch.setattr("envbuild.files.PLENTY", 10)
    with pytest.raises(InvalidInputError, match="cannot be read") as caught:
        folder.content(environment["lock"], "a file")
    assert caught.value.code == "broken-bundle"
    first = folder.manifest().environments[0]
    monkeypatch.setattr("envbuild.files.read_bytes", lambda *_arguments: b"{}")
    with pytest.raises(InvalidInputError, match="changed"):
        folder.lock(first)


def test_a_bundle_without_its_folder_of_files_is_told_as_broken(world: World):
    world.bundle("one")
    (world.folder / "files").rename(world.folder.parent / "moved")
    folder = BundleFolder(world.folder)
    assert not bundle_contents.check(world.workspace, folder)[1][0].ok
    assert list(folder.names()) == []


def test_what_another_run_added_while_this_one_waited_stays(world: World, monkeypatch: pytest.MonkeyPatch):
    world.bundle("other")
    locked = bundling.files.locked

    @contextlib.contextmanager
    def waiting(path: Path, *arguments: Any, **named: Any) -> Iterator[None]:
        monkeypatch.setattr(bundling.files, "locked", locked)
        world.locks["third"] = replace(
            world.locks["one"], environment=replace(world.locks["one"].environment, name="third-1.0-cpu")
        )
        world.bundle("third")
        with locked(path, *arguments, **named):
            yield

    monkeypatch.setattr(bundling.files, "locked", waiting)
    world.bundle("one")
    names = [each["name"] for each in world.manifest()["environments"]]
    assert names == ["one-1.0-cpu", "other-1.0-cpu", "third-1.0-cpu"]


def test_a_run_that_was_killed_while_it_wrote_the_manifest_is_gone_on_with(world: World):
    world.folder.mkdir()
    (world.folder / ".bundle.json.new").write_text("{")
    world.bundle("one")
    assert not (world.folder / ".bundle.json.new").exists()
    assert BundleFolder(world.folder).manifest().environment("one-1.0-cpu")


def test_a_file_with_an_odd_name_gets_a_plain_one_in_the_manifest(world: World):
    lock = world.locks["one"]
    python = RemoteFile(url="https://files.example/python%203%2F(11).tar.gz", sha256=sha256(b"an interpreter"))
    environment = replace(lock.environment, python=replace(lock.environment.python, files=(python,)))
    world.locks["one"] = replace(lock, environment=environment)
    world.servers.contents["(11).tar.gz"] = b"an interpreter"
    world.bundle("one")
    (file,) = [each for each in BundleFolder(world.folder).manifest().files if each.kind == "fetched file"]
    assert file.name == "_11_.tar.gz"


def test_too_little_space_is_told_before_anything_is_fetched(world: World, monkeypatch: pytest.MonkeyPatch):
    class Usage:
        free = 10

    monkeypatch.setattr(bundling.shutil, "disk_usage", lambda _path: Usage)
    with pytest.raises(BuildError, match="GB free") as caught:
        world.bundle("one")
    assert caught.value.code == "no-space"
    assert world.servers.asked == []


def test_a_folder_with_other_files_is_left_alone(world: World):
    world.folder.mkdir()
    (world.folder / "thesis.tex").write_text("years of work")
    with pytest.raises(UsageError) as caught:
        world.bundle("one")
    assert caught.value.code == "folder-in-use"
    assert world.names() == {"thesis.tex"}


def test_a_server_that_has_another_file_adds_nothing(world: World):
    wheel = world.locks["one"].prefixes[0].artifacts[0]
    world.servers.contents[wheel.filename] = b"another file"
    with pytest.raises(BuildError) as caught:
        world.bundle("one")
    assert caught.value.code == "not-fetched"
    assert not (world.folder / "files" / wheel.sha256).exists()


def obstacle(lock: Lock, **changes: Any) -> str:
    return " ".join(bundle_contents.obstacles(replace(lock, **changes)))


def test_what_a_build_would_fetch_in_any_case_cannot_be_bundled(world: World):
    lock = world.locks["one"]
    base = lock.environment.base
    repository = AptRepository(
        name="r", url="https://apt.example", suite="/", components="", key_url="https://apt.example/key", key_fingerprint="0"
    )
    package = AptPackage(name="p", version="1", repository="", url="https://apt.example/p.deb", sha256="")
    built = replace(lock.environment.frameworks[0], options={"repository": "https://git.example/b.git", "revision": "v2"})
    cases = {
        "pulled": obstacle(lock, base=replace(lock.base, bootstrap=None, digest="sha256:1")),
        "not pinned": obstacle(lock, apt=None),
        "gone": obstacle(lock, missing=(Missing(what="x", why="gone"),)),
        "apt.example": obstacle(lock, environment=replace(lock.environment, base=replace(base, repositories=(repository,)))),
        "devel": obstacle(lock, environment=replace(lock.environment, base=replace(base, build_image="cuda:devel"))),
        "no known hash": obstacle(lock, environment=replace(lock.environment, frameworks=(built,))),
    }
    for why, told in cases.items():
        assert why in told
    assert obstacle(lock) == ""
    assert package.sha256 == ""
    world.locks["one"] = replace(lock, apt=None)
    with pytest.raises(InvalidInputError) as caught:
        world.bundle("one")
    assert caught.value.code == "not-bundleable"
    assert not world.folder.exists()


def test_errors_of_one_environment_do_not_hide_the_others(world: World):
    world.bundle("one", "other")
    one = next(each for each in world.manifest()["environments"] if each["name"] == "one-1.0-cpu")
    (world.folder / "files" / one["lock"]).unlink()
    _, found = bundle_contents.check(world.workspace, BundleFolder(world.folder))
    assert [each.ok for each in found] == [False, True]
    with pytest.raises(EnvbuildError):
        world.elsewhere(world.folder.parent / "machine")


@pytest.fixture
def lab(world: World, tmp_path: Path) -> Tools:
    """The tools for a user's own environment with a copied folder and a requirements file."""
    folder = tmp_path / "lab"
    (folder / "data/in").mkdir(parents=True)
    (folder / "envbuild.yaml").write_text("frameworks: [toy]\nrequirements: more.txt\n")
    (folder / "more.txt").write_text("six\n")
    (folder / "data/run").write_text("#!/bin/sh\n")
    (folder / "data/run").chmod(0o755)
    (folder / "data/in/x").write_text("x")
    custom = Custom(
        request=("toy",),
        pip=("six",),
        newer=(),
        apt=(),
        apt_build=(),
        files=(CopiedFile(source="data/", target="/workspace/data/"),),
        user="",
        ports=(),
        services=(),
    )
    lock = world.locks["one"]
    world.locks["lab"] = replace(lock, environment=replace(lock.environment, name="lab", custom=custom))
    path = folder / "envbuild.yaml"
    recipe = UserRecipe(path=path, name="lab", request=("toy",), insists={}, custom=custom, requirements="more.txt")
    return world.tools.for_recipe(path, recipe)


def test_a_users_own_environment_comes_with_all_its_files(world: World, lab: Tools, tmp_path: Path):
    bundling.bundle([lab, world.tools], ["lab", "one"], world.folder, lambda _plan: None)
    assert bundle_contents.check(world.workspace, BundleFolder(world.folder))[1][0].ok
    place = Workspace(root=world.workspace.root, output=tmp_path / "elsewhere/checkout", home=tmp_path / "elsewhere/home")
    machine = offline.tools_for(place, world.folder, ["lab"], Tools)
    found = machine.workspace.user_recipe
    assert found is not None
    names = {path.relative_to(found.parent).as_posix(): path for path in found.parent.rglob("*") if path.is_file()}
    assert {*names} == {"envbuild.yaml", "envbuild.lock.json", "more.txt", "data/run", "data/in/x"}
    assert names["data/run"].stat().st_mode & 0o111
    assert not names["data/in/x"].stat().st_mode & 0o111
    assert lock_file.read(machine.workspace.lock_file("lab")) == world.locks["lab"]
    assert offline.tools_for(place, world.folder, ["one-1.0-cpu"], Tools).workspace.user_recipe is None
    of_several = offline.tools_for(place, world.folder, [], Tools)
    assert of_several.at(["lab"]).workspace == machine.workspace
    assert of_several.at(["lab"]).cli_name("lab") == "lab"
    assert of_several.at(["one-1.0-cpu"]) is of_several
    with pytest.raises(UsageError, match="by its name"):
        offline.tools_for(place, world.folder, ["./lab"], Tools)


def test_files_of_an_earlier_bundle_do_not_stay_among_a_users_files(world: World, lab: Tools, tmp_path: Path):
    place = Workspace(root=world.workspace.root, output=tmp_path / "elsewhere/checkout", home=tmp_path / "elsewhere/home")
    bundling.bundle([lab], ["lab"], world.folder, lambda _plan: None)
    found = offline.tools_for(place, world.folder, ["lab"], Tools).workspace.user_recipe
    assert found is not None
    record = found.parent / ".envbuild/builds/lab.json"
    record.parent.mkdir(parents=True)
    record.write_text("{}")
    assert lab.workspace.user_recipe is not None
    data = lab.workspace.user_recipe.parent / "data"
    (data / "in/x").unlink()
    (data / "in").rmdir()
    (data / "in").write_text("now a file")
    bundling.bundle([lab], ["lab"], world.folder, lambda _plan: None)
    offline.tools_for(place, world.folder, ["lab"], Tools)
    assert sorted(path.name for path in (found.parent / "data").rglob("*")) == ["in", "run"]
    assert (found.parent / "data/in").read_text() == "now a file"
    assert record.exists()


def test_rows_of_the_users_own_lie_over_the_matrix_on_the_other_machine(world: World, tmp_path: Path):
    rows = tmp_path / "rows.yaml"
    rows.write_text("schema: 1\n")
    world.tools.workspace = replace(world.workspace, overlays=(rows,))
    world.bundle("one")
    (path,) = world.elsewhere(tmp_path / "machine").workspace.overlays
    assert path.read_text() == "schema: 1\n"
