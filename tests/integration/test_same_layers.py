"""Two builds of a real environment have the same layers.

There is one environment for each way in which files get into an image. The first build may take steps that another test left in
the builder's cache; the second one makes every layer again.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from program import Program, own_program, share_bases, share_downloads

from envbuild import build_secret
from envbuild.engine.client import Engine
from envbuild.index.client import Index

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.slow]

LONG = {
    "Python 3.11 of the distribution": "opencv-5",
    "Python 2.7, and packages built from source": "chainer-4.3.1-cpu-py27-debian11",
    "compiled upon other packages": "horovod-0.28.1-cpu-py39-debian11",
    "several prefixes": "two-pythons-cpu",
}
# These packages write files during installation: caches, keys, ids, bytecode, Java's keystore and class archive.
RECIPE = """\
schema: 1
name: layered
frameworks: [opencv-4.5.1-cpu-py39-debian11]
apt: [dbus, fontconfig, fonts-dejavu-core, openssh-server, python3-yaml, libglib2.0-bin, librsvg2-common, man-db, cron,
      default-jre-headless]
"""


@pytest.fixture
def program(tmp_path: Path, engine: Engine) -> Program:
    share_bases(tmp_path / "home")
    share_downloads(tmp_path / "home")
    return own_program(tmp_path, {"DOCKER_HOST": engine.endpoint})


def build_twice(program: Program, engine: Engine, name: str) -> None:
    program.run("lock", name, timeout=600).expect(0)
    first, second = (program.run("build", name, "--no-cache", "--json", timeout=3000).expect(0).document for _ in range(2))
    try:
        different = [
            place for place, pair in enumerate(zip(first["layers"], second["layers"], strict=True)) if len(set(pair)) > 1
        ]
        assert not different, f"layers that differ between two builds: {different}"
        assert (first["image"] == second["image"]) == first["dated"]
    finally:
        for tag in {*first["tags"], *second["tags"]}:
            engine.remove_image(tag)


def test_plain_docker_makes_the_same_layers_of_a_folder_without_envbuild(
    program: Program, engine: Engine, tmp_path: Path
) -> None:
    """With Python 3.9, because Debian compiles its bytecode with a random hash seed.

    Before 3.11 the seed decides the order of sets in bytecode. Engines import the file of the base differently, but the layers
    on top of it are the same.
    """
    name, folder, tag = "opencv-4.5.1.48-cpu-py39-debian11", tmp_path / "folder", "envbuild-test/by-hand"
    program.run("lock", name, timeout=600).expect(0)
    made = program.run("build", name, "--json", timeout=3000).expect(0).document
    program.run("render", name, "--context", str(folder), timeout=600).expect(0)
    program.run("render", name, "--context", str(folder), timeout=600).expect(0)  # writing the folder again is allowed
    (tmp_path / "home").rename(tmp_path / "away")
    secrets = build_secret.joined(Index().build_secrets())
    try:
        image = engine.image(engine.build(folder, tag=tag, secrets=secrets, no_cache=True).id)
        assert image is not None
        assert list(image.layers[1:]) == made["layers"][1:]
        assert engine.run(tag, ["python", "-c", "import cv2"], network="none").code == 0
    finally:
        for each in {*made["tags"], tag}:
            engine.remove_image(each)


def test_a_context_replaces_no_files_of_somebody_else(program: Program, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    refused = program.run("render", "opencv-4.5.1.48-cpu-py39-debian11", "--context", str(tmp_path)).expect(2)
    assert "contains other files" in refused.err
    assert (tmp_path / "notes.txt").read_text() == "mine"


@pytest.mark.prove
@pytest.mark.parametrize("kind", LONG)
def test_every_kind_of_image(program: Program, engine: Engine, kind: str) -> None:
    build_twice(program, engine, LONG[kind])


@pytest.mark.prove
def test_packages_of_a_user(program: Program, engine: Engine, tmp_path: Path) -> None:
    recipe = tmp_path / "own" / "envbuild.yaml"
    recipe.parent.mkdir()
    recipe.write_text(RECIPE)
    build_twice(program, engine, str(recipe))
