"""What counts as a proof that an image can be built."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import verify_locks

from envbuild import build
from envbuild.lock import lock_file
from envbuild.pipeline import building, incomplete_locks, missing_proofs, proofs, rendering
from envbuild.pipeline.locking import Locked
from envbuild.pipeline.tools import Tools
from envbuild.smoketest import SmokeOptions
from envbuild.workspace import Workspace, find

NAME = "toy-1.0-cpu"
BASE = build.BaseRecord(reference="b", image="sha256:b", how="pulled", digest="", notes=())


def record_by(builder: str) -> build.BuildRecord:
    return build.BuildRecord(
        name=NAME, lock="a" * 64, inputs="b" * 64, image="sha256:one", tags=(f"envbuild:{NAME}",), base=BASE, engine="e",
        built_at="t", seconds=1.0, steps=1, cached=0, size=1, kept=True, builder=builder,
    )  # fmt: skip


class Engine:
    def __init__(self, image_store: str = "docker") -> None:
        self.image_store = image_store

    def image(self, reference: str) -> str:
        return reference


@pytest.fixture
def tools(tmp_path: Path) -> Tools:
    made = Tools(Workspace(root=tmp_path, output=tmp_path, home=tmp_path / "home"))
    made.__dict__.update(engine=Engine(), index=None, recipes={})
    return made


@pytest.fixture
def locked(tmp_path: Path) -> Locked:
    lock = verify_locks.lock()
    return Locked(lock=lock, digest=lock_file.digest(lock), path=tmp_path, kept=True)


@pytest.mark.parametrize(("builder", "proved"), [("docker", ["built"]), ("compose", ["built"]), (build.PULLED, [])])
def test_an_image_that_was_pulled_does_not_count_as_built(
    tools: Tools, locked: Locked, monkeypatch: pytest.MonkeyPatch, builder: str, proved: list[str]
):
    kinds: list[str] = []
    monkeypatch.setattr(incomplete_locks, "require_complete", lambda *_arguments: None)
    monkeypatch.setattr(build, "build", lambda *_arguments, **_named: record_by(builder))
    monkeypatch.setattr(proofs, "prove_image", lambda _tools, _record, _image, kind, **_named: kinds.append(kind))
    building.build_environment(tools, locked, {})
    assert kinds == proved


@pytest.mark.parametrize(("builder", "lacking", "anew"), [
    (build.PULLED, "built", True), (build.PULLED, "verified", False), ("docker", "built", False)
])  # fmt: skip
def test_an_image_that_was_pulled_is_built_where_that_is_to_be_proved(
    tools: Tools, locked: Locked, monkeypatch: pytest.MonkeyPatch, builder: str, lacking: Any, anew: bool
):
    asked: list[bool] = []

    def build_environment(*_arguments: Any, no_cache: bool) -> tuple[build.BuildRecord, object]:
        asked.append(no_cache)
        return record_by(builder), object()

    monkeypatch.setattr(missing_proofs.locking, "require_lock", lambda *_arguments: locked)
    monkeypatch.setattr(rendering, "render_text", lambda *_arguments: {})
    monkeypatch.setattr(build, "read_record", lambda *_arguments: record_by(builder))
    monkeypatch.setattr(building, "build_environment", build_environment)
    missing_proofs.prove_again(tools, [NAME], [lacking], smoke=SmokeOptions(), keep_images=True, on_done=lambda _attempt: None)
    assert asked == [anew]


@pytest.mark.parametrize(("image_store", "name", "composed"), [
    ("docker", "opencv-5.0.0.93-cpu-py311-debian12", False),
    ("containerd", "opencv-5.0.0.93-cpu-py311-debian12", True),
    ("containerd", "caffe-1.0.0-cpu-py39-debian11", False),
])  # fmt: skip
def test_images_are_composed_by_default_where_that_is_faster_and_possible(
    tmp_path: Path, image_store: str, name: str, composed: bool
) -> None:
    tools = Tools(replace(find(), home=tmp_path))
    tools.__dict__.update(engine=Engine(image_store))
    lock = lock_file.read(tools.workspace.lock_file(name))
    assert building.composes(tools, "auto")(lock) is composed
    assert building.composes(tools, "compose")(lock) and not building.composes(tools, "docker")(lock)
