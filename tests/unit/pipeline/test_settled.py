"""If an environment had nothing to do, it is not examined again until something changes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from envbuild import disk_cache
from envbuild.pipeline import stage_cache
from envbuild.pipeline.settled import Settled
from envbuild.pipeline.tools import Tools
from envbuild.pipeline.unchanged_renderings import RenderingWatch
from envbuild.workspace import Workspace

NAME = "widget-1-cpu"
TAG = "envbuild:widget-1-cpu"


class World:
    """The files and images that an answer depends on."""

    def __init__(self, root: Path) -> None:
        self.workspace = Workspace(root=root, output=root / "images", home=root / "home")
        self.report = root / "report.json"
        self.files = [
            self.report,
            self.workspace.build_record(NAME),
            self.workspace.lock_file(NAME),
            self.workspace.stored_answer(NAME, "verify"),
            self.workspace.stored_answer(NAME, "smoke"),
        ]
        for path in self.files:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("1")
        self.images = {"sha256:1": "sha256:1", TAG: "sha256:1"}
        self.is_rendered = True
        self.endpoint = "unix:///one"
        self.document: dict[str, Any] = {
            "image": "sha256:1", "tags": [TAG], "reports": {"json": str(self.report)}, "report": {"large": True},
        }  # fmt: skip

    def settled(self, *command: str, read: tuple[Path, ...] = ()) -> Settled:
        engine = SimpleNamespace(
            image=lambda name: SimpleNamespace(id=self.images[name]) if name in self.images else None, endpoint=self.endpoint
        )
        watch = SimpleNamespace(recall=lambda _name: "rendered" if self.is_rendered else None)
        tools = SimpleNamespace(workspace=self.workspace, engine=engine)
        return Settled(cast(Tools, tools), cast(RenderingWatch, watch), ["make", *command], read)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(disk_cache, "SETTLED_NS", 0)
    made = World(tmp_path)
    made.settled().keep(NAME, NAME, made.document, 10)
    return made


def test_the_same_command_gets_the_same_answer_without_the_report(world):
    found = world.settled().recall(NAME, NAME)
    assert found == ({part: world.document[part] for part in ("image", "tags", "reports")}, 10)


@pytest.mark.parametrize("number", range(5))
def test_a_change_of_any_file_forgets_the_answer(world, number):
    world.files[number].write_text("23")
    assert world.settled().recall(NAME, NAME) is None


def test_another_command_or_request_has_another_answer(world):
    assert world.settled("--strict").recall(NAME, NAME) is None
    assert world.settled().recall(NAME, "widget") is None


@pytest.mark.parametrize("images", [{}, {"sha256:1": "sha256:1"}, {"sha256:1": "sha256:1", TAG: "sha256:2"}])
def test_an_image_or_tag_that_is_gone_or_moved_forgets_the_answer(world, images):
    world.images = images
    assert world.settled().recall(NAME, NAME) is None


def test_files_that_the_command_reads_may_not_have_changed(world, tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    world.settled(read=(data,)).keep(NAME, NAME, world.document, 9)
    assert world.settled(read=(data,)).recall(NAME, NAME) is not None
    (data / "images.gz").write_bytes(b"mended")
    assert world.settled(read=(data,)).recall(NAME, NAME) is None


def test_another_engine_has_another_answer(world):
    world.endpoint = "ssh://two"
    assert world.settled().recall(NAME, NAME) is None


def test_a_rendering_that_was_made_again_forgets_the_answer(world):
    """As after `envbuild render --all` with a changed recipe: the rendering is new, but the image is old."""
    for inputs in ("before", "after"):
        stage_cache.keep(world.workspace, NAME, "render", {}, {"inputs": inputs})
        assert world.settled().recall(NAME, NAME) is None
        world.settled().keep(NAME, NAME, world.document, 0)
        assert world.settled().recall(NAME, NAME) is not None
        stage_cache.keep(world.workspace, NAME, "render", {}, {"inputs": inputs})  # stored again without a change
        assert world.settled().recall(NAME, NAME) is not None


def test_an_old_rendering_forgets_the_answer(world):
    world.is_rendered = False
    assert world.settled().recall(NAME, NAME) is None


def test_nothing_is_remembered_that_changed_just_before(tmp_path, monkeypatch):
    monkeypatch.setattr(disk_cache, "SETTLED_NS", 10**18)  # thirty years, so that every change counts as recent
    fresh = World(tmp_path)
    fresh.settled().keep(NAME, NAME, fresh.document, 0)
    assert fresh.settled().recall(NAME, NAME) is None
