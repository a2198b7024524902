"""The file for ``docker buildx bake`` names the images as publishing does, and builds the contexts that ``render`` writes."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

import jsonschema
import pytest
from plan_world import ALPHA, BETA, checkout

from envbuild.cli import frame
from envbuild.errors import InvalidInputError, UsageError
from envbuild.pipeline import bake_file, plan
from envbuild.pipeline.bake_file import BakeSettings
from envbuild.pipeline.batch import Job
from envbuild.pipeline.tools import Tools
from envbuild.workspace import Workspace

HERE = BakeSettings(repository="registry.example/lab")
JOBS = [Job(name=name, request=name) for name in (ALPHA, BETA)]


@pytest.fixture
def place(tmp_path: Path) -> Workspace:
    return checkout(tmp_path)


def test_each_environment_is_a_target_and_each_framework_a_group(place: Workspace) -> None:
    document = json.loads(bake_file.bake(Tools(place), JOBS, HERE).text)
    assert set(document["target"]) == {"al-1_12_3-cpu-py311-toyos12", "be-1_12_3-cpu-py311-toyos12"}
    assert document["group"]["default"]["targets"] == sorted(document["target"])
    assert {name: len(group["targets"]) for name, group in document["group"].items()} == {"default": 2, "alpha": 1, "beta": 1}
    target = document["target"]["al-1_12_3-cpu-py311-toyos12"]
    assert target["context"] == f"contexts/{ALPHA}" and target["platforms"] == ["linux/amd64"]
    assert target["args"]["SOURCE_DATE_EPOCH"].isdigit() and "secret" not in target


def test_tags_are_those_of_the_plan_and_only_the_fixed_one_unless_asked(place: Workspace) -> None:
    tools = Tools(place)
    wanted = {each.name: [tag.rpartition(":")[2] for tag in each.tags] for each in plan.candidates(tools, JOBS)[0]}
    for moves in (False, True):
        settings = BakeSettings(repository="registry.example/lab", moves_tags=moves, secret="settings")
        baked = bake_file.bake(tools, JOBS, settings)
        for target, name in baked.targets.items():
            found = json.loads(baked.text)["target"][target]
            tags = wanted[name] if moves else [wanted[name][2]]
            assert found["tags"] == [f"registry.example/lab:{tag}" for tag in tags]
            assert found["secret"] == ["id=envbuild,src=settings"]


def test_what_cannot_be_built_is_left_out_and_nothing_at_all_is_refused(place: Workspace) -> None:
    lost = Job(name="gone-1", request="gone-1")
    baked = bake_file.bake(Tools(place), [*JOBS, lost], HERE)
    assert [each.name for each in baked.skipped] == ["gone-1"] and len(baked.targets) == 2
    with pytest.raises(InvalidInputError, match="None of the environments"):
        bake_file.bake(Tools(place), [lost], HERE)


def test_the_answer_of_the_command_has_a_schema(place: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place.environments / "gone-1").mkdir()
    schema = json.loads(resources.files("envbuild.schemas").joinpath("bake.json").read_text())
    words = ["bake", "--all", "--to", HERE.repository, "--root", str(place.root), "--json"]
    for more, path in (([], ""), (["-o", str(tmp_path / "bake.json")], str(tmp_path / "bake.json"))):
        assert frame.run([*words, *more]) == 0
        told = json.loads(capsys.readouterr().out)
        jsonschema.validate(told, schema)
        assert told["path"] == path and set(told["targets"].values()) == {ALPHA, BETA}
        assert [each["name"] for each in told["skipped"]] == ["gone-1"]
        assert set(json.loads(told["text"])["target"]) == set(told["targets"])
    assert (tmp_path / "bake.json").read_text() == told["text"]


@pytest.mark.parametrize("path", ["a,b", "${HOME}/x", 'a"b'])
def test_paths_that_bake_would_read_as_something_else_are_refused(path: str) -> None:
    with pytest.raises(UsageError, match="cannot be written into a bake file"):
        bake_file.require_plain(path, "contexts")
