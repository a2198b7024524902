"""`pull` into a real engine: the names that the image gets, and images of other environments, which are refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from signing import write_pair
from stand_in_registry import Registry, serve
from stood_in_stages import Stages, stand_in

from envbuild import build
from envbuild.cli import frame
from envbuild.engine.client import Engine
from envbuild.pipeline import make, own_images

NAME = "opencv-5.0.0.93-cpu-py311-debian12"
OTHER = "opencv-4.10.0.84-cpu-py311-debian12"


def never(*_arguments: object, **_named: object) -> NoReturn:
    """Stand in for `make` where nothing may be built."""
    raise AssertionError("an image is built")


class Place:
    """A registry with the published images of two environments."""

    def __init__(self, registry: Registry, stages: Stages, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.registry, self.stages, self.capsys = registry, stages, capsys
        self.to = f"{registry.host}/lab/dl"
        private, _ = write_pair(folder, "key")
        for name in stages.contents:
            assert self.run("publish", name, "--to", self.to, "--key", str(private))[0] == 0

    def run(self, *words: str) -> tuple[int, dict[str, Any]]:
        code = frame.run([*words, "--json"])
        return code, json.loads(self.capsys.readouterr().out)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Place]:
    stages = stand_in(tmp_path, monkeypatch, {NAME: "first", OTHER: "first"})
    fixed = {name: stages.made(None, [name]).record.tags[2].rpartition(":")[2] for name in stages.contents}
    of = property(lambda self: fixed[self.locked.lock.environment.name])
    monkeypatch.setattr(own_images.OwnImage, "fixed", of)
    with serve(Registry(knows_referrers=True)) as registry:
        yield Place(registry, stages, tmp_path, capsys)


@pytest.fixture
def clean(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """The engine, from which the test's names of NAME are removed."""
    monkeypatch.setenv("DOCKER_HOST", engine.endpoint)

    def tags() -> dict[str, str]:
        found = engine.client.images.list("envbuild")
        return {tag: each.id for each in found for tag in each.tags if ":opencv-5" in tag}

    before = tags()
    for tag in before:
        engine.remove_unused(tag)
    yield engine
    for tag in tags():
        engine.remove_unused(tag)


@pytest.mark.engine
def test_the_image_gets_the_name_that_was_asked_for_and_keeps_it(place, clean):
    code, told = place.run("pull", "opencv-5-cpu", "--from", place.to)
    (pulled,) = told["images"]
    assert (code, pulled["same_inputs"]) == (0, True)
    for tag in ("envbuild:opencv-5-cpu", f"envbuild:{NAME}"):
        image = clean.image(tag)
        assert tag in pulled["tags"] and image is not None and image.id == pulled["image"]
    code, told = place.run("pull", NAME, "opencv-5.0-cpu", "--from", place.to)
    record = build.read_record(place.stages.workspace, NAME)
    assert code == 0 and record is not None
    for tag in ("envbuild:opencv-5-cpu", "envbuild:opencv-5.0-cpu"):
        image = clean.image(tag)
        assert tag in record.tags and image is not None and image.id == record.image


@pytest.mark.parametrize("target", [True, False], ids=["files", "engine"])
def test_an_image_of_another_environment_is_refused_before_any_layer(place, tmp_path, target):
    words = ("--to", f"oci:{tmp_path}/out") if target else ()
    place.run("cache", "prune", "--keep", "0")
    place.registry.asked.clear()
    code, told = place.run("pull", NAME, "--from", place.to, "--tag", OTHER, *words)
    error = told["error"]
    assert (code, error["code"]) == (11, "image-of-another-environment")
    assert f"has an image of {OTHER} under {OTHER}, not of {NAME}" in error["message"]
    assert f"envbuild pull {OTHER} --from {place.to} --tag {OTHER}" in error["hint"]
    assert sum("/blobs/" in line for line in place.registry.asked) == 1 and not (tmp_path / "out").exists()
    code, told = place.run("pull", OTHER, "--from", place.to, "--tag", OTHER, "--to", f"oci:{tmp_path}/out")
    assert code == 0 and told["images"][0]["tag"] == OTHER


@pytest.mark.parametrize("registry", ["none", "without the image"])
def test_an_image_that_the_configured_registry_lacks_is_built(place, monkeypatch, registry):
    if registry == "without the image":
        monkeypatch.setenv("ENVBUILD_REGISTRY", f"{place.registry.host}/lab/none")
    code, told = place.run("pull", NAME, OTHER)
    assert code == 0 and [(each["name"], each["origin"]) for each in told["images"]] == [(NAME, "built"), (OTHER, "built")]
    assert f"envbuild:{NAME}" in told["images"][0]["tags"] and not told["images"][0]["digest"]


def test_nothing_is_built_in_place_of_an_image_that_was_asked_for(place, monkeypatch, tmp_path):
    """With --from, --tag or --to, the user means an image of the registry."""
    none = f"{place.registry.host}/lab/none"
    monkeypatch.setattr(make, "make", never)
    code, told = place.run("pull", NAME, "--from", none)
    assert (code, told["error"]["code"]) == (11, "not-in-registry")
    monkeypatch.setenv("ENVBUILD_REGISTRY", none)
    for words in (["--tag", "v1"], ["--to", f"oci:{tmp_path}/out"]):
        code, told = place.run("pull", NAME, *words)
        assert (code, told["error"]["code"]) == (11, "not-in-registry")
    monkeypatch.delenv("ENVBUILD_REGISTRY")
    for words in (["--tag", "v1"], ["--to", f"oci:{tmp_path}/out"], ["--key", "/no/key"]):
        code, told = place.run("pull", NAME, *words)
        assert code == 2 and "ENVBUILD_REGISTRY" in told["error"]["hint"]


def test_the_configured_registry_and_key_are_used(place, monkeypatch, tmp_path):
    to = ("--to", f"oci:{tmp_path}/out")
    monkeypatch.setattr(make, "make", never)
    monkeypatch.setenv("ENVBUILD_REGISTRY", place.to)
    monkeypatch.setenv("ENVBUILD_KEY", str(tmp_path / "key.pub"))
    code, told = place.run("pull", NAME, *to)
    assert code == 0 and told["repository"] == place.to
    assert (told["images"][0]["origin"], told["images"][0]["signed"]) == ("registry", True)
    monkeypatch.setenv("ENVBUILD_KEY", str(write_pair(tmp_path, "other")[1]))
    code, told = place.run("pull", NAME)
    assert (code, told["error"]["code"]) == (11, "wrong-signature"), "a build does not replace an image with a wrong signature"
    code, told = place.run("pull", NAME, "--key", str(tmp_path / "key.pub"), *to)
    assert code == 0, "the option comes before the variable"


def test_an_absent_image_is_not_called_the_one_that_was_pushed_last(place, monkeypatch):
    monkeypatch.setattr(own_images.OwnImage, "fixed", property(lambda self: own_images.fixed_tag(self.tags)))
    code, told = place.run("pull", NAME, "--from", place.to)
    hint = told["error"]["hint"]
    assert (code, told["error"]["code"]) == (11, "not-in-registry")
    assert "pushed last" not in hint and f"`--tag {NAME}`" in hint and "moving tag" in hint
