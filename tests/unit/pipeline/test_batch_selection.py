"""The selection of the environments of a run over several."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import widget_world

from envbuild.errors import BuildError, UnknownNameError, UsageError
from envbuild.pipeline import changed_since, disk_need
from envbuild.pipeline.batch import Job
from envbuild.pipeline.batch_selection import Selection, select
from envbuild.pipeline.bundle_folder import BundledEnvironment, BundleFolder, BundleManifest
from envbuild.pipeline.constraints import Constraints
from envbuild.pipeline.disk_need import DiskNeed
from envbuild.pipeline.offline import Offline
from envbuild.pipeline.tools import Tools
from envbuild.workspace import Workspace

NAME = "widget-1.2.0-cpu-py36-plain1"


@pytest.fixture
def tools(tmp_path: Path) -> Tools:
    root = widget_world.make_root(tmp_path)
    for name in (NAME, "other-1-cpu-py36-plain1"):
        (root / "images" / "environments" / name).mkdir(parents=True)
    return Tools(Workspace(root=root, output=root / "images", home=tmp_path / "home"))


def names(tools: Tools, **asked: object) -> list[str]:
    return [job.name for job in select(tools, Selection(**asked), Constraints())]


def test_names_given_twice_and_two_requests_for_one_environment_count_once(tools):
    texts = ("widget-1.2-cpu", NAME, "widget-1.2-cpu")
    assert select(tools, Selection(texts=texts), Constraints()) == [Job(name=NAME, request="widget-1.2-cpu", also=(NAME,))]


def test_all_unknown_names_are_refused_together_before_anything_starts(tools):
    with pytest.raises(UnknownNameError) as told:
        names(tools, texts=(NAME, "gadget-1", "gizmo-2"))
    assert "gadget" in told.value.message
    assert any("gizmo" in detail for detail in told.value.details)


def test_a_pattern_chooses_among_all_by_the_canonical_name(tools):
    assert names(tools, every=True) == ["other-1-cpu-py36-plain1", NAME]
    assert names(tools, pattern="widget-*") == [NAME]
    assert names(tools, every=True, pattern="*-plain1") == ["other-1-cpu-py36-plain1", NAME]


@pytest.mark.parametrize("has_it", [False, True])
def test_without_a_selection_the_error_names_the_options_that_the_command_has(tools, has_it):
    with pytest.raises(UsageError) as told:
        names(tools, has_changed_since=has_it)
    assert ("--changed-since" in told.value.message) == has_it


def test_a_pattern_without_a_match_is_an_unknown_name(tools):
    with pytest.raises(UnknownNameError) as told:
        names(tools, pattern="tf-*")
    assert told.value.code == "nothing-matches"


def test_with_a_bundle_all_environments_are_those_of_the_bundle(tools, tmp_path):
    held = tuple(BundledEnvironment(name=name, lock="0" * 64) for name in ("my-lab", NAME))
    manifest = BundleManifest(schema=1, made_by="t", environments=held, files=())
    tools.offline = Offline(BundleFolder(tmp_path), manifest)
    assert names(tools, every=True) == ["my-lab", NAME]
    assert names(tools, pattern="my-*") == ["my-lab"]
    with pytest.raises(UnknownNameError):
        names(tools, pattern="other-*")
    with pytest.raises(UsageError, match="bundle"):
        names(tools, revision="HEAD")


def test_several_requests_are_resolved_to_environments_of_the_bundle(tools, tmp_path):
    def bundle(*held: str) -> None:
        environments = tuple(BundledEnvironment(name=name, lock="0" * 64) for name in held)
        tools.offline = Offline(
            BundleFolder(tmp_path), BundleManifest(schema=1, made_by="t", environments=environments, files=())
        )

    bundle(NAME)
    texts = ("widget-1.2-cpu", NAME)
    assert select(tools, Selection(texts=texts), Constraints()) == [Job(name=NAME, request="widget-1.2-cpu", also=(NAME,))]
    bundle("my-lab")
    with pytest.raises(BuildError) as told:
        names(tools, texts=texts)
    assert told.value.code == "not-in-bundle"


@pytest.mark.parametrize("asked", [{}, {"texts": (NAME,), "every": True}, {"texts": (NAME,), "pattern": "w*"}])
def test_names_do_not_go_with_a_choice_among_all_and_one_of_them_is_needed(tools, asked):
    with pytest.raises(UsageError):
        names(tools, **asked)


def test_a_change_counts_for_the_environments_whose_images_it_goes_into(tmp_path):
    root = tmp_path
    workspace = Workspace(root=root, output=root / "images", home=root / "home")
    recipes = {"a": {"toy"}, "b": {"toy", "borrowed"}, "c": {"other"}}

    def affected(*paths: str) -> list[str]:
        return changed_since.affected(workspace, list(recipes), paths, recipes.__getitem__)

    assert affected() == []
    assert affected("README.md", "matrix/toy.yaml", "images/environments.yaml") == []
    assert affected("images/environments/b/lock.json") == ["b"]
    assert affected("images/recipes/borrowed/smoke.py") == ["b"]
    assert affected("images/recipes/toy/install.j2", "images/environments/c/Dockerfile") == ["a", "b", "c"]
    assert affected("images/partials/step.sh") == ["a", "b", "c"]
    assert affected("images/overlay/envbuild_overlay.py") == ["a", "b", "c"]


def test_a_damaged_lock_does_not_hold_up_the_other_environments(tools, monkeypatch):
    (tools.workspace.images / "environments" / NAME / "lock.json").write_text("{")
    changes = ["images/recipes/other/smoke.py", "images/environments/other-1-cpu-py36-plain1/Dockerfile"]
    monkeypatch.setattr(changed_since, "changed_files", lambda *_: changes)
    assert names(tools, revision="main") == ["other-1-cpu-py36-plain1"]
    assert disk_need.need_of(tools, [NAME], is_composed=lambda _lock: False) == DiskNeed(
        downloads=0, stored=0, images=0, unknown=1
    )


def test_the_smoke_test_of_a_checkout_goes_into_every_image(tmp_path):
    guest = Workspace(root=tmp_path, output=tmp_path / "images", home=tmp_path).guest
    root = Path(os.path.commonpath([guest])).parents[1]
    workspace = Workspace(root=root, output=root / "images", home=tmp_path)
    changed = guest.relative_to(root).as_posix() + "/run.py"
    assert changed_since.affected(workspace, ["a", "b"], [changed], lambda _: set()) == ["a", "b"]
