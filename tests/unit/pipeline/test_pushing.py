"""The data that `push` writes into the record of a build, and requests that `pull` refuses before it asks a registry."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from envbuild import build, codec, files
from envbuild.cli import frame
from envbuild.compose.outputs import push as registry
from envbuild.pipeline import pushing
from envbuild.pipeline.tools import Tools
from envbuild.workspace import Workspace

NAME = "toy-1.0-cpu"
BASE = build.BaseRecord(reference="b", image="sha256:b", how="pulled", digest="", notes=())
RECORD = build.BuildRecord(
    name=NAME, lock="a" * 64, inputs="b" * 64, image="sha256:one", tags=(f"envbuild:{NAME}",), base=BASE, engine="e",
    built_at="t", seconds=1.0, steps=1, cached=0, size=1, kept=False,
)  # fmt: skip
PLACE = f"r.example/lab@sha256:{'c' * 64}"


@pytest.mark.parametrize("image", ["sha256:one", "sha256:two"])
def test_a_push_leaves_the_record_of_an_image_that_was_built_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, image: str
):
    workspace = Workspace(root=tmp_path, output=tmp_path, home=tmp_path / "home")
    files.write_atomic(workspace.build_record(NAME), codec.dumps(RECORD))
    meanwhile = replace(RECORD, image=image, built_at="later")

    def push(*_arguments: Any, **_named: Any) -> registry.Pushed:
        files.write_atomic(workspace.build_record(NAME), codec.dumps(meanwhile))
        return registry.Pushed(digest=PLACE.partition("@")[2], sent=0, layers=0, present=0, mounted=0)

    monkeypatch.setattr(registry, "push", push)
    monkeypatch.setattr(pushing, "built_image", lambda *_arguments: None)
    pushing.push(Tools(workspace), RECORD, "r.example/lab", None)
    pushed = (PLACE,) if image == RECORD.image else ()
    assert build.read_record(workspace, NAME) == replace(meanwhile, pushed=pushed)


@pytest.mark.parametrize("words", [("--tag", "v1"), ("--to", "docker-archive:x.tar"), ("--to", "oci:folder:name")])
def test_one_tag_or_file_is_not_for_several_images(tmp_path: Path, monkeypatch, capsys, words: tuple[str, ...]):
    monkeypatch.chdir(tmp_path)
    assert frame.run(["pull", NAME, "other-1.0-cpu", "--from", "r.invalid/lab", *words, "--json"]) == 2
    assert "one by one" in json.loads(capsys.readouterr().out)["error"]["hint"]
    assert not [*tmp_path.iterdir()]
