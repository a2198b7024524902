"""The files that a lock pins: the order of their downloads, the progress reports, and the evidence for them."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest
import verify_locks

from envbuild.errors import BuildError, UsageError
from envbuild.lock import lock_file
from envbuild.model.environment import RemoteFile
from envbuild.model.lock import Lock, Missing
from envbuild.model.progress import Progress
from envbuild.pipeline import fetching, locking, proofs
from envbuild.pipeline.stored_locks import Locked
from envbuild.pipeline.tools import Tools
from envbuild.workspace import Workspace


class Index:
    """An index that serves every file without delay.

    ``refuses`` has errors by file name; each is raised once before the file is served.
    """

    def __init__(self, refuses: dict[str, list[BuildError]] | None = None) -> None:
        self.refuses = refuses or {}
        self.asked: list[str] = []
        self.kept: list[str] = []
        self.gates: dict[str, threading.Event] = {}

    def file_of(self, artifact):
        return artifact

    def is_dead(self, artifact, url):
        return False

    def inspect(self, file, tell, *, sha256):
        self.asked.append(file.filename)
        for prefix, gate in self.gates.items():
            assert not file.filename.startswith(prefix) or gate.wait(60)
        errors = self.refuses.get(file.filename, [])
        if errors:
            raise errors.pop(0)
        tell(Progress(stage="download", message=file.filename, done=1.0, total=1.0, unit="bytes"))
        assert sha256 == file.sha256

    def download(self, file, folder, tell, *, sha256):
        self.inspect(file, tell, sha256=sha256)
        self.kept.append(f"{folder.name}/{file.filename}")


def numbered(name: str, start: int, stem: str) -> Lock:
    """The toy lock with another name, with files numbered from ``start``, and with a tool that all locks share."""
    lock = verify_locks.lock()
    prefix = lock.prefixes[0]
    artifacts = tuple(
        replace(each, filename=f"{stem}-{each.filename}", sha256=f"{start + place:064x}", size=100 * (start + place))
        for place, each in enumerate(prefix.artifacts)
    )
    prefix = replace(prefix, artifacts=artifacts, build_artifacts=(verify_locks.artifact("tool", "1.0"),))
    return replace(lock, environment=replace(lock.environment, name=name), prefixes=(prefix,))


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Environments that share a tool.

    ``large`` has more to download than ``small``. The files of ``twin`` have the names of those of ``small``.
    """
    (tmp_path / "root/images").mkdir(parents=True)
    tools = Tools(Workspace(root=tmp_path / "root", output=tmp_path / "out", home=tmp_path / "home"))
    known = {
        name: numbered(name, start, stem) for name, start, stem in (("large", 500, "a"), ("small", 1, "b"), ("twin", 900, "b"))
    }
    monkeypatch.setattr(
        locking,
        "require_lock",
        lambda _, name: Locked(lock=known[name], digest=lock_file.digest(known[name]), path=tmp_path, kept=True),
    )
    for name, lock in known.items():
        hold(tools, name, lock)
    tools.__dict__["recipes"] = {}
    monkeypatch.setattr(fetching, "WAIT_S", 0.0)
    tools.__dict__["index"] = Index()
    return tools


def hold(tools: Tools, name: str, lock: Lock) -> None:
    """Write the lock to the place where proofs of ``name`` are compared with it."""
    lock_file.write(tools.workspace.written_lock(name), lock)


def proved(tools: Tools, name: str) -> tuple[str, ...]:
    return proofs.held_kinds(tools, name)


def broken(code: str) -> BuildError:
    return BuildError("It broke.", code=code)


def test_each_file_is_had_once_and_the_least_comes_first(world):
    told: list[str] = []
    world.index.gates = {"a-": threading.Event()}  # the files of `large` come only when `small` is complete

    def on_done(done: fetching.Fetched) -> None:
        told.append(done.name)
        if done.name == "small":
            world.index.gates["a-"].set()

    fetched = fetching.fetch(world, ["large", "small"], on_done=on_done)
    assert told == ["small", "large"]
    assert [done.name for done in fetched] == ["large", "small"]
    assert len(world.index.asked) == len(set(world.index.asked)) == sum(done.files for done in fetched) - 1
    assert proved(world, "small") == proved(world, "large") == ("downloaded",)


def test_what_was_had_is_not_had_again_not_even_after_a_note_was_cut_short(world):
    fetching.fetch(world, ["small"])
    notes = world.workspace.home / "fetched"
    notes.write_text(notes.read_text()[:-3])
    world.index.asked.clear()
    (again,) = fetching.fetch(world, ["small"])
    assert len(world.index.asked) == 1
    assert again.known == again.files - 1


def test_a_folder_takes_all_files_whatever_was_noted(world, tmp_path):
    fetching.fetch(world, ["small"])
    (done,) = fetching.fetch(world, ["small"], into=tmp_path / "carried")
    assert len(world.index.kept) == done.files
    assert all(each.startswith("carried/") for each in world.index.kept)


def test_two_files_of_one_name_do_not_go_into_one_folder(world, tmp_path):
    with pytest.raises(UsageError, match="two different files"):
        fetching.fetch(world, ["small", "twin"], into=tmp_path)


def test_a_download_that_broke_off_is_tried_again_and_one_that_cannot_be_had_stops_nothing_else(world):
    first, second, *_ = (pin.filename for pin in fetching.pins(locking.require_lock(world, "small").lock))
    world.index.refuses = {first: [broken("index-unreachable")], second: [broken("artifact-gone")]}
    proofs.prove_lock(world, "small", locking.require_lock(world, "small").digest, "downloaded")
    assert proved(world, "small") == ("downloaded",)
    small, large = fetching.fetch(world, ["small", "large"])
    assert (small.failed, large.failed) == (("It broke.",), ())
    assert proved(world, "small") == ()
    assert proved(world, "large") == ("downloaded",)


def test_a_network_that_is_down_contradicts_no_evidence(world):
    fetching.fetch(world, ["small"])
    (world.workspace.home / "fetched").unlink()
    first, *_ = (pin.filename for pin in fetching.pins(locking.require_lock(world, "small").lock))
    world.index.refuses = {first: [broken("index-unreachable")] * 3}
    (small,) = fetching.fetch(world, ["small"])
    assert small.failed
    assert proved(world, "small") == ("downloaded",)


def test_a_lock_without_its_framework_is_no_evidence(world, monkeypatch):
    locked = locking.require_lock(world, "small")
    bare = replace(locked.lock, prefixes=(replace(locked.lock.prefixes[0], frameworks=()),))
    monkeypatch.setattr(locking, "require_lock", lambda _, __: locked._replace(lock=bare))
    fetching.fetch(world, ["small"])
    assert proved(world, "small") == ()


def test_files_at_urls_of_their_own_count_too():
    lock = verify_locks.lock()
    file = RemoteFile(url="https://files.example.org/a/python%2B1.tar.gz", sha256="f" * 64)
    program = RemoteFile(url="https://files.example.org/unpacker", sha256="e" * 64)
    python = replace(lock.environment.python, files=(file,), installer=program)
    lock = replace(lock, environment=replace(lock.environment, python=python))
    pin, other = [each for each in fetching.pins(lock) if each.artifact is None]
    assert (pin.filename, pin.sha256, pin.url) == ("python+1.tar.gz", file.sha256, file.url)
    assert (other.filename, other.sha256) == ("unpacker", program.sha256)


def test_what_kept_the_proof_is_named_by_file_and_host_and_goes_when_all_is_had(world, monkeypatch):
    lock = locking.require_lock(world, "small").lock
    remote = RemoteFile(url="https://conda.example/pkgs/python-3.6.6.tar.bz2", sha256="c" * 64)
    base = replace(lock.environment.base, files=(remote,))
    gap = Missing(
        what="the files of other 2.0 and of its dependencies", why="its package index https://own.example could not be reached"
    )
    lock = replace(lock, environment=replace(lock.environment, base=base), missing=(gap,))
    held = Locked(lock=lock, digest=lock_file.digest(lock), path=Path(), kept=True)
    hold(world, "small", lock)
    monkeypatch.setattr(locking, "require_lock", lambda *_: held)
    first = lock.prefixes[0].artifacts[0].filename
    broken_ = {name: [broken("index-unreachable")] * 3 for name in (first, "python-3.6.6.tar.bz2")}
    world.__dict__["index"] = Index({name: list(errors) for name, errors in broken_.items()})
    fetching.fetch(world, ["small"])
    (open_,) = proofs.held(world, "small").unproved
    assert (open_.kind, open_.lock) == ("downloaded", held.digest)
    assert [(each.file, each.host, each.why) for each in open_.files] == [
        (first, "", "its host could not be reached"),  # the error must not name the index of this machine
        ("python-3.6.6.tar.bz2", "conda.example", "its host could not be reached"),
        (gap.what, "", gap.why),
    ]
    whole = replace(lock, missing=())
    held = Locked(lock=whole, digest=lock_file.digest(whole), path=Path(), kept=True)
    hold(world, "small", whole)
    world.__dict__["index"] = Index()
    fetching.fetch(world, ["small"])
    assert proofs.held(world, "small").unproved == ()
    assert proved(world, "small") == ("downloaded",)
