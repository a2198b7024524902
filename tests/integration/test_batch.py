"""Several environments at the same time, with real processes, real locks, and a real git repository."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from importlib import resources
from pathlib import Path
from types import SimpleNamespace
from xml.dom import minidom

import jsonschema
import pytest
from program import Program, own_program, share_bases

from envbuild.cli import frame
from envbuild.errors import UsageError
from envbuild.model.progress import ignore_progress
from envbuild.pipeline import changed_since, image_checks
from envbuild.updates import scratch
from envbuild.workspace import Workspace

NAMES = ("opencv-5.0.0.93-cpu-py311-debian12", "chainer-4.3.1-cpu-py27-debian11")
ROOT = Path(__file__).parents[2]


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=Test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", "-C", str(folder), *who, *words], check=True, capture_output=True, text=True).stdout


@pytest.fixture
def checkout(tmp_path: Path) -> Workspace:
    """A git repository with two files; one of them is in the folder of an environment."""
    root = tmp_path / "repository" / "below"
    for path in ("matrix.yaml", "images/environments/a/lock.json"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("1\n")
    git(tmp_path / "repository", "init", "--quiet")
    git(root, "add", ".")
    git(root, "commit", "--quiet", "-m", "first")
    return Workspace(root=root, output=root / "images", home=tmp_path / "home")


def test_changed_files_are_those_that_differ_from_the_revision_committed_or_not(checkout):
    assert changed_since.changed_files(checkout, "HEAD") == []
    (checkout.root / "matrix.yaml").write_text("2\n")
    git(checkout.root, "commit", "--quiet", "-a", "-m", "second")
    (checkout.images / "environments/a/lock.json").unlink()
    (checkout.images / "new file").write_text("")
    (checkout.root.parent / "outside").write_text("")
    assert changed_since.changed_files(checkout, "HEAD") == ["images/environments/a/lock.json", "images/new file"]
    assert changed_since.changed_files(checkout, "HEAD~1")[-1] == "matrix.yaml"
    assert changed_since.affected(checkout, ["a", "b"], changed_since.changed_files(checkout, "HEAD"), lambda _: set()) == ["a"]


@pytest.mark.parametrize("revision", ["nowhere", "--help", "HEAD:matrix.yaml", ""])
def test_what_is_no_revision_is_refused(checkout, revision):
    with pytest.raises(UsageError) as told:
        changed_since.changed_files(checkout, revision)
    assert told.value.code == "unknown-revision"


def test_git_that_cannot_answer_is_no_proof_that_nothing_changed(checkout):
    (checkout.root.parent / ".git" / "index").write_bytes(b"damaged")
    with pytest.raises(UsageError) as told:
        changed_since.changed_files(checkout, "HEAD")
    assert told.value.code == "no-checkout"


def test_a_read_only_checkout_is_compared_like_any_other(checkout, tmp_path):
    """Only its locks and renderings are written elsewhere. Such a lock replaces the committed one, so it counts as changed."""
    read_only = replace(checkout, output=tmp_path / "home" / "images")
    tools = SimpleNamespace(workspace=read_only, recipes={})
    (checkout.root / "images/environments/b").mkdir()
    assert changed_since.changed(tools, ["a", "b"], "HEAD") == []
    (checkout.root / "images/environments/a/lock.json").write_text("2\n")
    read_only.environment("b").mkdir(parents=True)
    read_only.written_lock("b").write_text("{}")
    assert changed_since.changed(tools, ["a", "b", "c"], "HEAD") == ["a", "b"]
    assert changed_since.head(read_only) == (git(checkout.root, "rev-parse", "HEAD").strip(), True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a checkout to another user")
def test_a_checkout_of_another_user_is_not_called_none(checkout, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SUDO_UID", raising=False)
    monkeypatch.setenv("LANGUAGE", "de")
    repository = checkout.root.parent
    os.chown(repository, 4321, 4321)
    os.chown(repository / ".git", 4321, 4321)
    with pytest.raises(UsageError) as told:
        changed_since.changed_files(checkout, "HEAD")
    assert told.value.code == "unsafe-checkout" and "belongs to another user" in told.value.message
    assert f"git config --global --add safe.directory {repository}`" in told.value.hint
    with pytest.raises(UsageError, match="belongs to another user"):
        scratch.base_of(checkout, "HEAD")


def test_a_checkout_that_git_cannot_read_is_told_with_the_reason(checkout):
    (checkout.root.parent / ".git" / "config").write_text("[core\n")
    with pytest.raises(UsageError, match=r"git cannot read .*bad config line 1"):
        changed_since.changed_files(checkout, "HEAD")


def test_a_read_only_checkout_takes_no_branch(checkout, tmp_path):
    with pytest.raises(UsageError) as told:
        scratch.base_of(replace(checkout, output=tmp_path / "elsewhere"), "HEAD")
    assert told.value.code == "not-writable" and str(checkout.root) in told.value.message


def test_outside_of_a_checkout_nothing_can_have_changed_since_a_revision(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    plain = Workspace(root=tmp_path, output=tmp_path / "images", home=tmp_path / "home")
    installed = Workspace(root=tmp_path, output=tmp_path / "elsewhere", home=tmp_path / "home")
    for workspace in (plain, installed):
        with pytest.raises(UsageError) as told:
            changed_since.changed_files(workspace, "HEAD")
        assert told.value.code == "no-checkout"


@contextlib.contextmanager
def reserved(workspace: Workspace, *devices: str) -> Iterator[None]:
    tools = SimpleNamespace(workspace=workspace, on_progress=ignore_progress)
    with image_checks._reserved(tools, devices):
        yield


def is_held(path: Path) -> bool:
    """Whether another process holds the lock of the file now."""
    with path.open("rb") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_a_smoke_test_holds_each_of_its_devices_and_no_other(tmp_path):
    workspace = Workspace(root=tmp_path, output=tmp_path, home=tmp_path)
    gpus = [workspace.device_lock(name) for name in ("GPU-1", "GPU-2", "GPU-3")]
    with reserved(workspace, "GPU-2", "GPU-1", "GPU-2"):
        assert [is_held(path) for path in gpus[:2]] == [True, True]
        with reserved(workspace, "GPU-3", "cpu"):
            assert is_held(gpus[2])
    assert not any(path.exists() for path in gpus)


@pytest.fixture
def program(tmp_path: Path, engine_endpoint: str) -> Program:
    program = own_program(tmp_path, {"DOCKER_HOST": engine_endpoint})
    for name in NAMES:
        folder = program.root / "images/environments" / name
        folder.mkdir(parents=True)
        (folder / "lock.json").write_bytes((ROOT / "images/environments" / name / "lock.json").read_bytes())
    return program


def states(document: dict) -> dict[str, str]:
    schema = json.loads(resources.files("envbuild.schemas").joinpath("batch.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(document)
    return {each["name"]: each["state"] for each in document["environments"]}


@pytest.mark.engine
def test_each_environment_gets_a_process_and_the_worst_decides(program, tmp_path):
    junit = tmp_path / "junit.xml"
    answer = program.run("verify", *NAMES, "--json", "--keep-going", "--jobs", "2", "--junit", str(junit)).expect(7)
    assert states(answer.document) == dict.fromkeys(NAMES, "failed")
    assert {each["error"]["code"] for each in answer.document["environments"]} == {"no-image"}
    for name in NAMES:
        assert f"{name}: started" in answer.err
    suite = minidom.parse(str(junit)).getElementsByTagName("testsuite")[0]
    assert (suite.getAttribute("tests"), suite.getAttribute("failures")) == ("2", "2")
    first = program.run("verify", "--all", "--json", "--jobs", "1").expect(7)
    assert list(states(first.document).values()) == ["failed", "not started"]


@pytest.mark.engine
@pytest.mark.parametrize(("verb", "is_checked"), [("build", True), ("verify", False)])
def test_a_child_is_told_that_the_batch_has_checked_the_disk(monkeypatch, program, verb, is_checked):
    seen: list[list[str]] = []

    def run(_session, jobs, _done, _wanted, argv, _disk):
        seen.extend(argv(job) for job in jobs)
        return []

    for name, value in program.env().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("envbuild.cli.batch._run", run)
    frame.run([verb, *NAMES])
    assert len(seen) == 2 and all(("--space-checked" in words) == is_checked for words in seen)


@pytest.mark.engine
def test_too_little_space_and_unknown_names_are_refused_before_anything_begins(program):
    refused = program.run("build", NAMES[0], "gadget-1", "--json").expect(4)
    assert refused.document["error"]["code"] == "unknown-name"
    lock = program.root / "images/environments" / NAMES[0] / "lock.json"
    text = lock.read_text()
    size = json.loads(text)["prefixes"][0]["artifacts"][0]["size"]
    lock.write_text(text.replace(f'"size": {size}', f'"size": {10**15}'))
    full = program.run("build", *NAMES, "--json").expect(7)
    assert full.document["error"]["code"] == "no-space"
    assert list((program.home / "builds").iterdir()) == []
    assert not (program.home / "downloads").exists()
    assert "starting" not in refused.err + full.err


@pytest.mark.prove
@pytest.mark.engine
@pytest.mark.network
@pytest.mark.slow
def test_two_real_environments_are_made_at_once_interrupted_and_resumed(program, tmp_path):
    """The run is interrupted by Ctrl-C when both builds have begun.

    In the next run both pass, and their smoke tests never overlap. After that nothing is left to do.
    """
    share_bases(program.home)
    words = ("make", *NAMES, "--jobs", "2", "--progress", "plain", "-v")
    cut = program.interrupt(
        signal.SIGINT, lambda text: all(f"{name}: [build]" in text for name in NAMES), *words, patience=1500
    )
    cut.expect(130)
    assert "interrupted" in cut.out
    assert is_quiet(program)
    junit = tmp_path / "junit.xml"
    made = program.run(*words, "--json", "--junit", str(junit), timeout=3000).expect(0)
    # The first run possibly finished one of them before the other one began to build.
    assert "done" in states(made.document).values()
    assert set(states(made.document).values()) <= {"done", "kept"}
    # The output lines of each smoke test are contiguous, because no two smoke tests run at the same time.
    tests = [line.partition(":")[0] for line in made.err.splitlines() if ": [smoke] | " in line]
    assert len(list(itertools.groupby(tests))) == len(set(tests)) == list(states(made.document).values()).count("done")
    assert minidom.parse(str(junit)).getElementsByTagName("testsuite")[0].getAttribute("failures") == "0"
    again = program.run("make", "--all", "--json").expect(0)
    assert states(again.document) == dict.fromkeys(NAMES, "kept")
    assert again.seconds < made.seconds
    assert is_quiet(program)


def is_quiet(program: Program) -> bool:
    """Whether all processes of the program have ended. Waits, because killed processes can take a moment to disappear."""
    end = time.monotonic() + 60
    while children_of(program) and time.monotonic() < end:
        time.sleep(0.1)
    return not children_of(program)


def children_of(program: Program) -> list[int]:
    """The processes of this machine that use the program's cache folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if str(program.home).encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
    return found
