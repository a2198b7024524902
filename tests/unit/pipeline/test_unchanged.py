"""Environments without work are found with only a list of images. If more is needed, the environment gets its own process."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import click
import pytest

from envbuild.cli import batch
from envbuild.cli.batch import BatchOptions
from envbuild.errors import BuildError
from envbuild.pipeline import building, composing, link_check, link_check_sources, unchanged
from envbuild.pipeline.batch import Job
from envbuild.pipeline.batch_selection import Selection
from envbuild.pipeline.tools import Tools
from envbuild.workspace import Workspace

NAME = "widget-1-cpu"


@pytest.fixture
def tools(tmp_path: Path) -> Tools:
    made = Tools(Workspace(root=tmp_path, output=tmp_path / "images", home=tmp_path / "home"))
    images = {"sha256:1": "sha256:1", "envbuild:widget": "sha256:1"}
    made.__dict__["engine"] = SimpleNamespace(endpoint="unix:///x", origin="a test", image_ids=lambda: images)
    return made


def test_the_list_knows_images_by_id_and_tag(tools):
    seen = unchanged.view(tools)
    found = seen.engine.image("envbuild:widget")
    assert (found.id, found.tags) == ("sha256:1", ("envbuild:widget",))
    assert seen.engine.image("sha256:1") == found
    assert seen.engine.image("envbuild:other") is None


@pytest.mark.parametrize(
    "work",
    [
        lambda seen: seen.engine.run("x", []),
        lambda seen: seen.engine.info,
        lambda seen: seen.index.build_secrets(),
        # A check of the layers of an image without layers would pass.
        lambda seen: seen.engine.image("sha256:1").layers,
        lambda seen: link_check.check(seen, link_check_sources.of_engine(seen, "sha256:1")),
    ],
)
def test_whatever_asks_for_more_is_work(tools, work):
    assert unchanged.without_work(unchanged.view(tools), NAME, work) is None
    assert unchanged.without_work(unchanged.view(tools), NAME, lambda _: "an answer") == "an answer"


@pytest.mark.parametrize(("image_store", "is_asked"), [("docker", False), ("containerd", True)])
def test_the_builder_of_an_image_is_chosen_without_work(tools, monkeypatch, image_store, is_asked):
    asked = []
    monkeypatch.setattr(composing, "is_possible", lambda _tools, lock: asked.append(lock) or True)
    tools.engine.image_store = image_store
    composes = unchanged.without_work(unchanged.view(tools), NAME, lambda seen: building.composes(seen, "auto")("a lock"))
    assert (composes, asked) == (is_asked, ["a lock"] * is_asked)


@pytest.mark.parametrize("lock", ["locks/widget-1-cpu.make", "builds/widget-1-cpu.running"])
def test_another_run_of_the_same_environment_is_not_waited_for(tools, lock):
    path = tools.workspace.home / lock
    path.parent.mkdir(parents=True)
    path.write_text("1")
    assert unchanged.without_work(unchanged.view(tools), NAME, lambda _: pytest.fail("it would wait")) is None
    assert unchanged.without_work(unchanged.view(tools), "other-1-cpu", lambda _: "an answer") == "an answer"


@pytest.mark.parametrize("lock", ["locks/lab.make", "builds/lab.running"])
def test_another_run_of_an_own_environment_is_not_waited_for(tools, tmp_path, lock):
    """Lock files have the name in the recipe file, but a batch knows the environment by its path."""
    own = tools.for_recipe(tmp_path / "lab" / "envbuild.yaml")
    assert unchanged.without_work(unchanged.view(own), "./lab/envbuild.yaml", lambda _: "an answer") == "an answer"
    path = own.workspace.state / lock
    path.parent.mkdir(parents=True)
    path.write_text("1")
    assert unchanged.without_work(unchanged.view(own), "./lab/envbuild.yaml", lambda _: pytest.fail("it would wait")) is None


def test_trouble_with_one_environment_is_left_to_its_own_process(tools, monkeypatch):
    def attempt(_tools: Tools, job: Job, _watch: Any) -> tuple[dict[str, Any], int]:
        if job.name == "odd":
            raise PermissionError(13, "Permission denied")
        raise BuildError("No.", code="no-reason")

    jobs = [Job(name=name, request=name) for name in ("odd", "refused")]
    asked = BatchOptions(selection=Selection(), jobs=1, keep_going=True, junit=None)
    with click.Context(click.Command("make")):
        found = batch.attempted(tools, jobs, cast(batch.Attempt, attempt), ["make"], asked)
    assert [(each.job.name, each.state) for each in found] == [("refused", "failed")]
