"""Composed images in real engines: which layers are sent, whether the images run, and whether other programs accept them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import composed
import pytest

from envbuild.compose.model import ComposedImage
from envbuild.compose.outputs import docker_archive, oci
from envbuild.compose.outputs import engine as engines
from envbuild.compose.outputs import preload as preloads
from envbuild.compose.outputs.preload import Preload
from envbuild.compose.store import LayerStore
from envbuild.engine.choice import connect
from envbuild.engine.client import Engine
from envbuild.errors import BuildError
from envbuild.model.progress import Progress, ignore_progress
from envbuild.workspace import Workspace

pytestmark = pytest.mark.engine
NAME = "envbuild-test/composed:1"


@pytest.fixture
def store(tmp_path: Path) -> LayerStore:
    return LayerStore(tmp_path / "store")


@pytest.fixture(params=["engine", "containerd_engine"])
def docker(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """The engine; images of this module are removed after each test."""
    engine: Engine = request.getfixturevalue(request.param)
    yield engine
    for listed in engine.client.images.list(all=True):
        if "envbuild-test" in str(listed.labels):  # also images that another run left
            engine.remove_image(str(listed.id))


def greeting(store: LayerStore, words: str, **config: object) -> ComposedImage:
    """An image that prints ``words``. Every test has a different base layer, so that no test finds another test's layers."""
    program = composed.tarred({"greet": composed.greeter(), "of": str(store.folder).encode()}, programs=["greet"])
    content, base = composed.blob(program)
    store.add(composed.key("base"), composed.writer(content, base))
    top = composed.add(store, words, {"greeting": words.encode()})
    return composed.image([base, top], Cmd=["/greet"], Labels={"envbuild-test": "yes"}, **config)


def said_by(engine: Engine, reference: str) -> str:
    return engine.run(reference, ["/greet"], network="none").output.strip()


def test_an_image_runs_and_its_sibling_sends_only_what_the_engine_lacks(docker: Engine, store: LayerStore) -> None:
    first, second = greeting(store, "hello"), greeting(store, "good day")
    news: list[Progress] = []
    loaded = engines.load(docker, first, store, [NAME], news.append)
    assert said_by(docker, NAME) == "hello"
    found = docker.image(NAME)
    assert found is not None and found.id == loaded
    assert found.layers == tuple(f"sha256:{layer.diff_id}" for layer in first.layers)
    assert news[-1].total == sum(layer.size for layer in first.layers)

    store.blob(first.layers[0].digest).unlink()  # the engine has this layer, so its file is not needed
    news.clear()
    second_id = engines.load(docker, second, store, [NAME, "envbuild-test/composed:2"], news.append, recall={loaded: first}.get)
    assert second_id != loaded
    assert news[-1].total == second.layers[1].size
    assert said_by(docker, NAME) == said_by(docker, "envbuild-test/composed:2") == "good day"

    store.blob(second.layers[1].digest).unlink()
    news.clear()
    assert engines.load(docker, first, store, [NAME], news.append) == loaded, "the whole image is there"
    assert news == [] and said_by(docker, NAME) == "hello"


def test_a_layer_that_vanished_meanwhile_is_sent_after_all(
    docker: Engine, store: LayerStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = greeting(store, "hello")
    monkeypatch.setattr(engines, "present_layers", lambda *_: frozenset(layer.digest for layer in image.layers))
    engines.load(docker, image, store, [NAME], ignore_progress)
    assert said_by(docker, NAME) == "hello"


@pytest.mark.parametrize("times", [1, 3])
def test_an_image_that_another_program_removes_at_once_is_sent_again(
    docker: Engine, store: LayerStore, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    image, sent = greeting(store, "hello"), engines.send
    removals = iter(range(times))

    def send(*arguments: Any, **named: Any) -> None:
        sent(*arguments, **named)
        if next(removals, None) is not None:
            docker.remove_unused(engines.image_id(docker, image))

    monkeypatch.setattr(engines, "send", send)
    if times == 1:
        engines.load(docker, image, store, [NAME], ignore_progress)
        assert said_by(docker, NAME) == "hello"
    else:
        with pytest.raises(BuildError, match="docker image prune") as caught:
            engines.load(docker, image, store, [NAME], ignore_progress)
        assert caught.value.code == "load-failed"


def test_a_layer_with_a_wrong_diff_id_is_refused_in_the_words_of_the_engine(docker: Engine, store: LayerStore) -> None:
    """Also if only the engine has the layer below, so that the image cannot be sent again as a whole."""
    right = greeting(store, "hello")
    base = composed.image(right.layers[:1])
    loaded = engines.load(docker, base, store, ["envbuild-test/composed:base"], ignore_progress)
    store.blob(base.layers[0].digest).unlink()
    wrong = composed.image([*base.layers, replace(right.layers[1], diff_id="f" * 64)], Cmd=["/greet"])
    with pytest.raises(BuildError, match=r"(?i)wrong diff ?id|invalid diff ?id") as caught:
        engines.load(docker, wrong, store, [NAME], ignore_progress, recall={loaded: base}.get)
    assert caught.value.code == "load-failed" and "envbuild cache verify" in caught.value.hint
    assert docker.image(NAME) is None and docker.image(engines.image_id(docker, wrong)) is None


def test_no_part_of_an_image_with_a_wrong_diff_id_stays(docker: Engine, store: LayerStore) -> None:
    image, before = greeting(store, "hello"), set(nameless(docker))
    with Preload(docker, store, ignore_progress) as preload:
        preload.add(replace(image.layers[0], diff_id="f" * 64))
    assert set(nameless(docker)) == before


def nameless(engine: Engine) -> list[str]:
    return [str(each.id) for each in engine.client.images.list(all=True, filters={"label": "envbuild.partial"})]


def test_layers_are_loaded_while_others_are_still_made(docker: Engine, store: LayerStore) -> None:
    image = greeting(store, "hello")
    before = set(nameless(docker))
    news: list[Progress] = []
    with Preload(docker, store, news.append) as preload:
        for layer in image.layers:
            news.clear()
            preload.add(layer)
            assert news[-1].total == layer.size, "only this layer is sent"
            store.blob(layer.digest).unlink()
        assert len(set(nameless(docker)) - before) == 1, "the one of the first layer is gone"
        news.clear()
        loaded = engines.load(docker, image, store, [NAME], news.append, recall=preload.recall)
        assert [each for each in news if each.done] == [], "no layer is left to be sent"
    assert set(nameless(docker)) == before
    assert said_by(docker, NAME) == "hello"
    with Preload(docker, store, news.append, {loaded: image}.get) as preload:
        for layer in image.layers:
            preload.add(layer)
        assert set(nameless(docker)) == before and news == [], "the engine has it all"


def test_what_could_not_be_loaded_before_is_loaded_with_the_image(
    docker: Engine, store: LayerStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = greeting(store, "hello")
    with Preload(docker, store, ignore_progress) as preload:
        with monkeypatch.context() as patched:
            patched.setattr(engines, "present_layers", lambda *_: frozenset([image.layers[0].digest]))
            preload.add(image.layers[0])  # the patch says that the engine has this layer, which is wrong
            preload.add(image.layers[1])  # fails, because the layer below is missing
        engines.load(docker, image, store, [NAME], ignore_progress, recall=preload.recall)
    assert said_by(docker, NAME) == "hello"


def test_nameless_images_of_killed_processes_are_removed_the_next_day(docker: Engine, store: LayerStore) -> None:
    image = greeting(store, "hello")
    first = Preload(docker, store, ignore_progress)
    first.add(image.layers[0])  # the process is killed now, so it does not clean up
    (left,) = [each for each in nameless(docker) if docker.image(each).layers == (f"sha256:{image.layers[0].diff_id}",)]  # type: ignore[union-attr]
    with Preload(docker, store, ignore_progress):
        assert left in nameless(docker)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(preloads, "_KEPT_FOR", timedelta(seconds=-10))
        with Preload(docker, store, ignore_progress):
            assert left not in nameless(docker)


def test_a_layer_with_other_contents_than_its_digest_is_refused_and_no_name_moves(docker: Engine, store: LayerStore) -> None:
    good, bad = greeting(store, "good"), greeting(store, "other")
    engines.load(docker, good, store, [NAME], ignore_progress)
    place = store.blob(bad.layers[1].digest)
    content = bytearray(place.read_bytes())
    content[-5] ^= 1  # change the checksum of the last gzip member
    place.unlink()
    place.write_bytes(content)
    with pytest.raises(BuildError) as caught:
        engines.load(docker, bad, store, [NAME], ignore_progress)
    assert caught.value.code == "load-failed"
    assert docker.image_store == "docker" or "envbuild cache verify" in caught.value.hint
    assert docker.image(engines.image_id(docker, bad)) is None, "nothing half-loaded is left"
    assert said_by(docker, NAME) == "good"


def test_ctrl_c_while_layers_are_sent_leaves_the_names_where_they_were(docker: Engine, store: LayerStore) -> None:
    good = greeting(store, "good")
    engines.load(docker, good, store, [NAME], ignore_progress)

    def press(_news: Progress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        engines.load(docker, greeting(store, "never"), store, [NAME], press)
    assert said_by(docker, NAME) == "good", "and the engine still answers"


def test_the_archive_is_what_docker_load_takes(docker: Engine, store: LayerStore, tmp_path: Path) -> None:
    image = greeting(store, "from a file")
    docker_archive.write(image, store, tmp_path / "image.tar", [NAME], ignore_progress)
    with (tmp_path / "image.tar").open("rb") as stream:
        docker.client.images.load(stream)
    assert said_by(docker, NAME) == "from a file"


def test_podman_runs_what_was_composed(podman: str, workspace: Workspace, store: LayerStore, tmp_path: Path) -> None:
    engine = connect(workspace, {"DOCKER_HOST": podman})
    for words in ("hello", "good day"):  # Podman already has one layer of the second image
        engines.load(engine, greeting(store, words), store, [NAME], ignore_progress)
        assert said_by(engine, NAME) == words
    docker_archive.write(greeting(store, "from a file"), store, tmp_path / "image.tar", [NAME], ignore_progress)
    with (tmp_path / "image.tar").open("rb") as stream:
        engine.client.images.load(stream)
    assert said_by(engine, NAME) == "from a file"


@pytest.mark.judges("skopeo")
def test_skopeo_reads_the_layout_and_the_archive(store: LayerStore, tmp_path: Path) -> None:
    image = greeting(store, "hello")
    digest = oci.write(image, store, tmp_path / "out", "v1", ignore_progress)
    docker_archive.write(image, store, tmp_path / "image.tar", [NAME], ignore_progress)

    def skopeo(*argv: str) -> str:
        return subprocess.run(["skopeo", *argv], check=True, capture_output=True, text=True, timeout=120).stdout

    told = json.loads(skopeo("inspect", f"oci:{tmp_path}/out:v1"))
    assert told["Digest"] == digest and told["Layers"] == [f"sha256:{layer.digest}" for layer in image.layers]
    skopeo("--insecure-policy", "copy", f"oci:{tmp_path}/out:v1", f"oci:{tmp_path}/copy:v1")
    config = skopeo("inspect", "--config", "--raw", f"docker-archive:{tmp_path}/image.tar:{NAME}")
    assert json.loads(config)["rootfs"]["diff_ids"] == [f"sha256:{layer.diff_id}" for layer in image.layers]
    skopeo("--insecure-policy", "copy", f"docker-archive:{tmp_path}/image.tar", f"oci:{tmp_path}/from-archive:v1")
