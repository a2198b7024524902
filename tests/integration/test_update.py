"""An update is one set: everything that belongs together becomes one git branch, or nothing changes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import update_world
from lock_universe import Universe
from plan_world import commit, git
from update_world import ANY

from envbuild.cli import frame
from envbuild.errors import BuildError, EnvbuildError, InterruptedByUserError, UnknownNameError, UsageError
from envbuild.lock import lock_file
from envbuild.model.lock import BaseLock, Lock
from envbuild.model.progress import Progress, ignore_progress
from envbuild.pipeline import evidence, locking, proofs, rendering, resolving, upgrading
from envbuild.pipeline.constraints import Constraints
from envbuild.pipeline.tools import Tools
from envbuild.updates import making
from envbuild.updates.making import Update
from envbuild.updates.model import UpdateRequest
from envbuild.workspace import Workspace

NAME = "widget-1.4.0-cpu-py36-plain1"
ADVISORY = {
    "id": "TOY-1", "affected": [{"package": {"ecosystem": "PyPI", "name": "shared"},
    "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "1.9"}]}]}],
}  # fmt: skip


@pytest.fixture
def place(tmp_path: Path) -> Workspace:
    return update_world.checkout(tmp_path)


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Universe:
    """The package index of all tools."""
    universe = update_world.index()
    base = BaseLock(image="plain:1", digest="sha256:" + "1" * 64, bootstrap=None)
    real = locking.lock_inputs
    monkeypatch.setattr(locking, "lock_inputs", lambda tools, target: replace(real(tools, target), pin_base=lambda _: base))
    monkeypatch.setattr(Tools, "index", universe)
    return universe


def update(place: Workspace, request: UpdateRequest | None = None, **options: object) -> Update:
    return making.make(
        place,
        request or UpdateRequest(),
        **{"branch": "update", "on_progress": ignore_progress, **options},  # type: ignore[arg-type]
    )


def state(place: Workspace) -> tuple[str, str, bytes]:
    """What a user sees of the checkout: files that git tells of, branches, and the index file."""
    return git(place.root, "status", "--porcelain"), git(place.root, "branch", "-a"), (place.root / ".git/index").read_bytes()


def at(place: Workspace, path: str, branch: str = "update") -> str:
    return git(place.root, "show", f"{branch}:{path}")


def waiting(made: Update) -> dict[tuple[str, str], str]:
    return {(each.framework, each.version): each.reason for each in made.changes.waiting}


def lock_old(place: Workspace, index: Universe) -> Lock:
    """Commit a lock of the newest environment that pins an old release of a package."""
    (page,) = [key for key in index.pages if key[1] == "shared"]
    everything = index.pages[page]
    index.pages[page] = everything[:1]
    tools = Tools(place)
    environment = resolving.resolve_buildable(tools, [NAME], Constraints()).environment
    lock = locking.lock_environment(tools, environment).lock
    rendering.render_environment(tools, lock)
    subject = proofs.subject_of(tools, NAME)
    assert subject is not None
    kinds: tuple[evidence.Kind, ...] = ("locked", "rendered", "built", "smoke-cpu")
    proved = tuple(evidence.proof(kind, subject, date="2026-01-01", engine="") for kind in kinds)
    evidence.write(place.committed_evidence(NAME), evidence.Evidence(schema=1, name=NAME, proofs=proved))
    commit(place.root)
    index.pages[page] = everything
    return lock


def versions(text: str) -> dict[str, str]:
    lock = lock_file.parse(text, Path("lock.json"))
    return {artifact.name: artifact.version for prefix in lock.prefixes for artifact in prefix.artifacts}


def test_nothing_new_makes_no_branch(place: Workspace, index: Universe) -> None:
    before = state(place)
    made = update(place)
    assert not made.paths and not made.commit and state(place) == before


def test_a_pair_comes_together_and_a_second_run_makes_nothing(place: Workspace, index: Universe) -> None:
    update_world.publish(index, update_world.NEW)
    files_before = state(place)[0], state(place)[2]
    made = update(place)
    assert [(each.framework, each.version) for each in made.changes.releases] == [("widget", "1.5.0"), ("lens", "0.5.0")]
    assert made.paths == ("lens.yaml", "widget.yaml") and (state(place)[0], state(place)[2]) == files_before
    assert 'upon: {widget: "1.5.0"}' in at(place, "lens.yaml")
    assert git(place.root, "log", "-1", "--format=%s", "update").strip() == "Add 2 releases"
    tip = git(place.root, "rev-parse", "update")
    again = update(place)
    assert again.is_known and not again.commit and git(place.root, "rev-parse", "update") == tip
    git(place.root, "merge", "--quiet", "update")
    assert not update(place).paths


def without_lens(index: Universe) -> None:
    index.add(f"widget-1.5.0-{ANY}", ("shared<2",), day="2018-07-01")


def without_widget(index: Universe) -> None:
    index.add(f"lens-0.5.0-{ANY}", ("widget==1.5.0", "shared<2"), day="2018-07-01")


def with_a_yanked_lens(index: Universe) -> None:
    without_lens(index)
    index.add(f"lens-0.5.0-{ANY}", ("widget==1.5.0",), day="2018-07-01", yanked=True)


def with_a_lens_for_the_old_one(index: Universe) -> None:
    without_lens(index)
    index.add(f"lens-0.4.1-{ANY}", ("widget==1.4.0",), day="2018-07-01")


@pytest.mark.parametrize(
    ("publish", "held", "reason"),
    [
        (without_lens, ("widget", "1.5.0"), "upstream publishes Lens together with this release"),
        (with_a_yanked_lens, ("widget", "1.5.0"), "upstream publishes Lens together with this release"),
        (with_a_lens_for_the_old_one, ("widget", "1.5.0"), "upstream publishes Lens together with this release"),
        (without_widget, ("lens", "0.5.0"), "requires widget==1.5.0, but the matrix has no such release"),
    ],
)
def test_half_of_a_pair_waits(
    place: Workspace, index: Universe, publish: Callable[[Universe], None], held: tuple[str, str], reason: str
) -> None:
    publish(index)
    made = update(place)
    assert held not in {(each.framework, each.version) for each in made.changes.releases}
    assert reason in waiting(made)[held]


def test_both_halves_wait_if_one_part_of_the_base_is_missing(place: Workspace, index: Universe) -> None:
    index.add(f"widget-1.5.0-{ANY}", ("shared<2", "widget-plugin==1.5.0"), day="2018-07-01")
    index.add(f"lens-0.5.0-{ANY}", ("widget>=1.2",), day="2018-07-02")
    made = update(place)
    assert not made.paths
    assert "requires widget-plugin==1.5.0, but the index has no such release" in waiting(made)["widget", "1.5.0"]
    assert waiting(made)["lens", "0.5.0"] == "it belongs to Widget 1.5.0, which has to wait, too"


@pytest.mark.parametrize(
    ("filename", "yanked", "said"),
    [
        ("widget-1.5.0rc1-py3-none-any.whl", False, None),
        ("widget-1.5.0-py3-none-any.whl", True, None),
        ("widget-1.5.0.tar.gz", False, "only a source archive of widget 1.5.0"),
        ("widget-1.5.0-cp36-cp36m-win_amd64.whl", False, None),
    ],
)
def test_what_is_no_release_gets_no_row(
    place: Workspace, index: Universe, filename: str, yanked: bool, said: str | None
) -> None:
    index.add(filename, day="2018-07-01", yanked=yanked)
    made = update(place)
    assert not made.paths and not made.changes.releases
    assert (said or "") in waiting(made).get(("widget", "1.5.0"), "")
    assert bool(waiting(made)) == (said is not None)


def test_a_wheel_without_metadata_waits(place: Workspace, index: Universe) -> None:
    file = index.add(f"widget-1.5.0-{ANY}", day="2018-07-01")
    index.contents[file.url] = b"no zip"
    assert "cannot be read" in waiting(update(place))["widget", "1.5.0"]


def test_a_lock_with_a_vulnerable_package_gets_the_lowest_fixed_release(
    place: Workspace, index: Universe, tmp_path: Path
) -> None:
    lock_old(place, index)
    index.add(f"shared-1.9.5-{ANY}", day="2017-02-01")
    (tmp_path / "osv").mkdir()
    (tmp_path / "osv/TOY-1.json").write_text(json.dumps(ADVISORY))
    made = update(place, UpdateRequest(locks="security", databases=(tmp_path / "osv",)))
    (renewed,) = made.changes.locks
    assert versions(at(place, f"images/environments/{NAME}/lock.json"))["shared"] == "1.9"
    assert [each.advisory for each in renewed.closed or ()] == ["TOY-1"] and renewed.opened == ()
    assert renewed.lost == ("locked", "built", "smoke-cpu")  # the toy lock cannot pin its tools
    held = json.loads(at(place, f"images/evidence/{NAME}.json"))
    assert [each["kind"] for each in held["proofs"]] == ["rendered"]
    assert f"shared=={'1.9'}" in at(place, f"images/environments/{NAME}/requirements.txt")
    assert "shared 1.8 → 1.9" in made.text and "| 1 | 0 | locked, built, smoke-cpu |" in made.text
    assert state(place)[0] == ""


def test_the_answer_of_the_command_has_a_schema(
    place: Workspace, index: Universe, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The answers have renewed and new locks, advisories that were looked up and not, and nothing at all."""
    lock_old(place, index)
    (tmp_path / "osv").mkdir()
    (tmp_path / "osv/TOY-1.json").write_text(json.dumps(ADVISORY))
    schema = json.loads(resources.files("envbuild.schemas").joinpath("update.json").read_text())

    def told(*words: str) -> dict[str, Any]:
        assert frame.run(["update", "--root", str(place.root), "--json", "-q", *words]) == 0
        document: dict[str, Any] = json.loads(capsys.readouterr().out)
        jsonschema.validate(document, schema)
        return document

    assert told("--dry-run")["files"] == []
    (renewed,) = told("--locks", "all", "--dry-run")["locks"]
    assert renewed["closed"] is None and renewed["packages"]["changed"] and not renewed["new"]
    update_world.publish(index, update_world.NEW)
    whole = told("--locks", "security", "--database", str(tmp_path / "osv"), "--newest", "widget")
    assert whole["new"] and whole["releases"] and whole["branch"] == "envbuild-update"
    assert {each["new"]: [one["advisory"] for one in each["closed"] or []] for each in whole["locks"]} == {
        False: ["TOY-1"],
        True: [],
    }


def test_a_vulnerable_package_without_a_fitting_fix_is_named(place: Workspace, index: Universe, tmp_path: Path) -> None:
    lock_old(place, index)
    fixed = json.loads(json.dumps(ADVISORY).replace('"1.9"', '"2.5"'))
    (tmp_path / "osv").mkdir()
    (tmp_path / "osv/TOY-1.json").write_text(json.dumps(fixed))
    made = update(place, UpdateRequest(locks="security", databases=(tmp_path / "osv",)))
    assert not made.paths and [each.remaining for each in made.changes.kept] == [("TOY-1",)]


def test_all_advisories_that_stay_open_are_named(place: Workspace, index: Universe, tmp_path: Path) -> None:
    """Found with real locks: the text said nothing about the framework itself, and nothing about advisories without a fix."""
    lock_old(place, index)
    (tmp_path / "osv").mkdir()
    endless = json.dumps(ADVISORY).replace(', {"fixed": "1.9"}', "").replace("TOY-1", "TOY-2")
    about_itself = json.dumps(ADVISORY).replace('"shared"', '"widget"').replace('"1.9"', '"99"').replace("TOY-1", "TOY-3")
    for name, text in (("1", json.dumps(ADVISORY)), ("2", endless), ("3", about_itself)):
        (tmp_path / f"osv/{name}.json").write_text(text)
    made = update(place, UpdateRequest(locks="security", databases=(tmp_path / "osv",)))
    assert [[each.advisory for each in renewed.closed or ()] for renewed in made.changes.locks] == [["TOY-1"]]
    assert {each.reason[:18]: each.remaining for each in made.changes.kept} == {
        "no release closes ": ("TOY-2",),
        "these advisories a": ("TOY-3",),
    }
    assert "TOY-2" in made.text and "TOY-3" in made.text


def test_all_locks_are_renewed_and_unlooked_up_is_not_called_clean(place: Workspace, index: Universe) -> None:
    lock_old(place, index)
    made = update(place, UpdateRequest(locks="all"))
    assert versions(at(place, f"images/environments/{NAME}/lock.json"))["shared"] == "1.9"
    assert "Not checked: no advisories were looked up." in made.text and "| not checked | not checked |" in made.text


def test_the_newest_environment_is_locked_and_listed(place: Workspace, index: Universe) -> None:
    update_world.publish(index, update_world.NEW)
    made = update(place, UpdateRequest(newest=("widget",)))
    name = "widget-1.5.0-cpu-py36-plain1"
    assert [each.name for each in made.changes.locks] == [name]
    assert versions(at(place, f"images/environments/{name}/lock.json"))["widget"] == "1.5.0"
    assert f'  {name}: "the environment that widget resolves to"' in at(place, "images/environments.yaml")
    git(place.root, "merge", "--quiet", "update")
    assert not update(place, UpdateRequest(newest=("widget",))).paths


def dies(number: int, error: Exception) -> Callable[[Universe, pytest.MonkeyPatch], None]:
    """Let the index fail at its question ``number``."""

    def install(index: Universe, monkeypatch: pytest.MonkeyPatch) -> None:
        real, count = index.project_files, iter(range(10_000))

        def project_files(project: str, at: str = "default"):
            if next(count) >= number:
                raise error
            return real(project, at)

        monkeypatch.setattr(index, "project_files", project_files)

    return install


@pytest.mark.parametrize("number", range(5))
@pytest.mark.parametrize("error", [BuildError("gone", code="index-unreachable"), InterruptedByUserError("Ctrl-C")])
def test_an_index_that_dies_midway_leaves_everything(
    place: Workspace, index: Universe, monkeypatch: pytest.MonkeyPatch, number: int, error: EnvbuildError
) -> None:
    lock_old(place, index)
    update_world.publish(index, update_world.NEW)
    before = state(place)
    dies(number, error)(index, monkeypatch)
    with pytest.raises(type(error)):
        update(place, UpdateRequest(locks="all"))
    assert state(place) == before


def test_a_stop_at_any_step_leaves_everything(place: Workspace, index: Universe, tmp_path: Path) -> None:
    lock_old(place, index)
    update_world.publish(index, update_world.NEW)
    before, steps = state(place), list[str]()
    update(place, UpdateRequest(locks="all"), writes=False, on_progress=lambda news: steps.append(news.stage))
    assert state(place) == before and {"index", "rows", "locks"} <= set(steps)
    stops = {steps.index(stage) for stage in steps} | {len(steps)}  # the first step of each stage; the last writes the branch
    for stop in sorted(stops):
        count = iter(range(10_000))

        def news(_: Progress, stop: int = stop, count=count) -> None:
            if next(count) == stop:
                raise InterruptedByUserError("Ctrl-C")

        with pytest.raises(InterruptedByUserError):
            update(place, UpdateRequest(locks="all"), on_progress=news)
        assert state(place) == before


def test_one_failing_lock_ends_the_update_unless_it_keeps_going(
    place: Workspace, index: Universe, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock_old(place, index)
    update_world.publish(index, update_world.NEW)
    before = state(place)

    def fail(*_: object, **__: object) -> None:
        raise BuildError("The base cannot be reached.", code="base-unreachable")

    monkeypatch.setattr(upgrading, "upgrade_environment", fail)
    with pytest.raises(BuildError) as caught:
        update(place, UpdateRequest(locks="all"))
    assert caught.value.message == f"{NAME}: The base cannot be reached."
    assert state(place) == before
    made = update(place, UpdateRequest(locks="all", keeps_going=True))
    assert [each.name for each in made.changes.kept] == [NAME] and made.paths == ("lens.yaml", "widget.yaml")
    assert f"`{NAME}`: The base cannot be reached." in made.text


def test_a_dirty_tree_is_left_alone(place: Workspace, index: Universe) -> None:
    update_world.publish(index, update_world.NEW)
    (place.root / "widget.yaml").write_text("my own words\n")
    (place.root / "note.txt").write_text("mine\n")
    before = state(place)
    made = update(place)
    assert made.base.dirty and made.commit
    assert (place.root / "widget.yaml").read_text() == "my own words\n" and state(place)[0] == before[0]
    assert "note.txt" not in git(place.root, "ls-tree", "-r", "--name-only", "update")


def test_branches_that_are_in_the_way(place: Workspace, index: Universe) -> None:
    update_world.publish(index, update_world.NEW)
    git(place.root, "branch", "update")
    with pytest.raises(UsageError, match="does not contain this update"):
        update(place)
    assert update(place, replaces=True).commit == git(place.root, "rev-parse", "update").strip()
    git(place.root, "checkout", "--quiet", "update")
    with pytest.raises(UsageError, match="checked out"):
        update(place)
    for name in ("-x", "a..b", "", "x.lock"):
        with pytest.raises(UsageError, match="cannot be the name"):
            update(place, branch=name)
    with pytest.raises(UsageError, match="git does not know the revision"):
        update(place, branch="other", revision="nothing")


def test_a_pattern_without_a_match_is_refused_before_the_index_is_asked(place: Workspace, index: Universe) -> None:
    lock_old(place, index)
    index.asked.clear()
    with pytest.raises(UnknownNameError, match="No environment matches"):
        update(place, UpdateRequest(locks="all", pattern="gadget*"))
    assert not index.asked


def test_no_checkout_and_no_author(place: Workspace, index: Universe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    update_world.publish(index, update_world.NEW)
    for name in ("user.name", "user.email"):
        git(place.root, "config", "--unset", name)
    for name, value in {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path), "GIT_CONFIG_NOSYSTEM": "1"}.items():
        monkeypatch.setenv(name, value)
    git(place.root, "config", "user.useConfigOnly", "true")
    with pytest.raises(UsageError, match="no name and e-mail address"):
        update(place)
    with pytest.raises(UsageError, match="you may not write to the checkout"):
        update(replace(place, output=tmp_path / "elsewhere"))
    shutil.rmtree(place.root / ".git")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(place.root.parent))
    for workspace in (place, replace(place, output=tmp_path / "elsewhere")):
        with pytest.raises(UsageError, match="works only in a git checkout"):
            update(workspace)
