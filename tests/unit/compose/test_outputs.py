"""Layouts and archives written from the layer store."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import tarfile

import composed
import pytest

from envbuild.compose.outputs import archive, docker_archive, oci
from envbuild.compose.outputs.engine import present_layers
from envbuild.compose.store import LayerStore
from envbuild.errors import BuildError, EnvbuildError, InvalidInputError, UsageError
from envbuild.model.progress import ignore_progress


@pytest.fixture
def store(tmp_path):
    return LayerStore(tmp_path / "store")


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def read_image(folder, name):
    """Read the image of this name; follow every descriptor and compare every digest and size."""
    (found,) = (
        each
        for each in json.loads((folder / "index.json").read_text())["manifests"]
        if each.get("annotations", {}).get("org.opencontainers.image.ref.name", "") == name
    )

    def follow(told):
        content = (folder / "blobs/sha256" / told["digest"].removeprefix("sha256:")).read_bytes()
        assert (told["digest"], told["size"]) == (f"sha256:{sha256(content)}", len(content))
        return content

    manifest = json.loads(follow(found))
    return follow(manifest["config"]), [follow(layer) for layer in manifest["layers"]]


def test_a_layout_holds_the_image_under_its_name(store, tmp_path):
    image = composed.image([composed.add(store, "a"), composed.add(store, "b", gzipped=False)])
    news = []
    digest = oci.write(image, store, tmp_path / "out", "v1", news.append)
    config, layers = read_image(tmp_path / "out", "v1")
    assert config == image.config
    assert layers == [store.blob(layer.digest).read_bytes() for layer in image.layers]
    assert json.loads((tmp_path / "out/index.json").read_text())["manifests"][0]["digest"] == digest
    assert news[-1].done == news[-1].total == sum(layer.size for layer in image.layers)
    assert (tmp_path / "out/blobs/sha256" / image.layers[0].digest).stat().st_nlink == 2, "a link, not a copy"


def test_a_second_image_is_added_and_one_of_the_same_name_replaced(store, tmp_path):
    base, one, two = (composed.add(store, word) for word in ("base", "one", "two"))
    out = tmp_path / "out"
    for name, top in (("one", one), ("two", two), ("one", two)):
        oci.write(composed.image([base, top], User=name), store, out, name, ignore_progress)
    for name in ("one", "two"):
        config, layers = read_image(out, name)
        assert json.loads(config)["config"]["User"] == name
        assert sha256(layers[1]) == two.digest
    assert len(json.loads((out / "index.json").read_text())["manifests"]) == 2


def test_images_without_a_name_stand_side_by_side(store, tmp_path):
    images = [composed.image([composed.add(store, word)]) for word in "ab"]
    for image in [*images, images[0]]:
        oci.write(image, store, tmp_path / "out", "", ignore_progress)
    assert len(json.loads((tmp_path / "out/index.json").read_text())["manifests"]) == 2


def test_across_file_systems_layers_are_copied(store, tmp_path, monkeypatch):
    image = composed.image([composed.add(store, "a")])

    def link(source, target, **more):
        if "store" in str(source):
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        plain(source, target, **more)

    plain = os.link
    monkeypatch.setattr(os, "link", link)
    oci.write(image, store, tmp_path / "out", "v1", ignore_progress)
    assert read_image(tmp_path / "out", "v1")[1] == [store.blob(image.layers[0].digest).read_bytes()]
    assert (tmp_path / "out/blobs/sha256" / image.layers[0].digest).stat().st_nlink == 1


@pytest.mark.parametrize("is_linked", [True, False])
def test_a_layer_is_compared_with_its_digest(store, tmp_path, monkeypatch, is_linked):
    layer = composed.add(store, "a")
    path = store.blob(layer.digest)
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    plain = os.link
    cross = OSError(errno.EXDEV, "Invalid cross-device link")

    def link(source, target, **more):
        if "store" in str(source) and not is_linked:
            raise cross
        plain(source, target, **more)

    monkeypatch.setattr(os, "link", link)
    for write in (
        lambda: oci.write(composed.image([layer]), store, tmp_path / "out", "v1", ignore_progress),
        lambda: docker_archive.write(composed.image([layer]), store, tmp_path / "out.tar", (), ignore_progress),
    ):
        with pytest.raises(BuildError) as caught:
            write()
        assert caught.value.code == "layer-damaged"
    assert not (tmp_path / "out/index.json").exists() and not (tmp_path / "out.tar").exists()
    assert not list((tmp_path / "out/blobs/sha256").iterdir())


def test_a_layer_that_was_cut_in_the_layout_is_replaced(store, tmp_path):
    image = composed.image([composed.add(store, "a")])
    oci.write(image, store, tmp_path / "out", "v1", ignore_progress)
    path = tmp_path / "out/blobs/sha256" / image.layers[0].digest
    path.unlink()
    path.write_bytes(b"cut")
    oci.write(image, store, tmp_path / "out", "v1", ignore_progress)
    read_image(tmp_path / "out", "v1")


def test_a_link_to_nothing_in_the_layout_is_replaced(store, tmp_path):
    image = composed.image([composed.add(store, "a")])
    oci.write(image, store, tmp_path / "out", "v1", ignore_progress)
    path = tmp_path / "out/blobs/sha256" / image.layers[0].digest
    path.unlink()
    path.symlink_to(tmp_path / "nothing")
    oci.write(image, store, tmp_path / "out", "v1", ignore_progress)
    read_image(tmp_path / "out", "v1")


@pytest.mark.parametrize("there", ["stranger", "broken", "file"])
def test_what_is_no_layout_is_refused_and_left_alone(store, tmp_path, there):
    image = composed.image([composed.add(store, "a")])
    out = tmp_path / "out"
    if there == "file":
        out.write_text("mine")
    else:
        out.mkdir()
        (out / ("thesis.txt" if there == "stranger" else "index.json")).write_text("mine")
    with pytest.raises(InvalidInputError) as caught:
        oci.write(image, store, out, "v1", ignore_progress)
    assert caught.value.code == "not-a-layout"
    assert composed.tree(tmp_path / "out") in (set(), {"thesis.txt"}, {"index.json"})


@pytest.mark.parametrize("manifests", ["5", '["x"]', '[{"annotations": ["x"]}]', "[" * 100_000])
def test_an_index_of_another_form_is_refused(store, tmp_path, manifests):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/index.json").write_text(f'{{"manifests": {manifests}}}')
    with pytest.raises(InvalidInputError) as caught:
        oci.write(composed.image([composed.add(store, "a")]), store, tmp_path / "out", "v1", ignore_progress)
    assert caught.value.code == "not-a-layout"


def test_a_layout_that_was_cut_short_is_finished(store, tmp_path):
    image = composed.image([composed.add(store, "a")])
    oci.write(image, store, tmp_path / "out", "v1", ignore_progress)
    (tmp_path / "out/index.json").unlink()
    (tmp_path / "out/oci-layout").rename(tmp_path / "out/.oci-layout.new")
    oci.write(image, store, tmp_path / "out", "v1", ignore_progress)
    read_image(tmp_path / "out", "v1")


def test_a_missing_layer_is_said_before_the_index_names_it(store, tmp_path):
    image = composed.image([composed.add(store, "a")])
    store.blob(image.layers[0].digest).unlink()
    with pytest.raises(BuildError) as caught:
        oci.write(image, store, tmp_path / "out", "v1", ignore_progress)
    assert caught.value.code == "layer-missing"
    assert not (tmp_path / "out/index.json").exists()


def test_an_archive_says_the_same_to_docker_and_to_containerd(store, tmp_path):
    base = composed.add(store, "base")
    image = composed.image([base, composed.add(store, "top"), base])
    target = tmp_path / "image.tar"
    docker_archive.write(image, store, target, ["lab/env:1", "env:latest"], ignore_progress)
    with tarfile.open(target) as tar:
        names = tar.getnames()
        tar.extractall(tmp_path / "out", filter="data")
    assert len(names) == len(set(names))
    for position, name in enumerate(names):  # Apptainer 1.4 needs each folder before its files
        above = name.rpartition("/")[0]
        assert not above or above in names[:position]
    (docker,) = json.loads((tmp_path / "out/manifest.json").read_text())
    assert docker["RepoTags"] == ["lab/env:1", "env:latest"]
    assert (tmp_path / "out" / docker["Config"]).read_bytes() == image.config
    assert [sha256((tmp_path / "out" / path).read_bytes()) for path in docker["Layers"]] == [
        each.digest for each in image.layers
    ]
    assert read_image(tmp_path / "out", "latest") == read_image(tmp_path / "out", "1")
    index = json.loads((tmp_path / "out/index.json").read_text())
    named = [each["annotations"]["io.containerd.image.name"] for each in index["manifests"]]
    assert named == ["docker.io/lab/env:1", "docker.io/library/env:latest"]


def test_equal_images_make_equal_archives(store, tmp_path):
    image = composed.image([composed.add(store, "a")])
    for name in ("one.tar", "two.tar"):
        docker_archive.write(image, store, tmp_path / name, ["env:1"], ignore_progress)
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()


def test_layers_that_are_left_out_are_still_named(store):
    one, two = composed.add(store, "one"), composed.add(store, "two")
    stream = archive.pieces(composed.image([one, two]), store, (), without=frozenset({one.digest}))
    with tarfile.open(fileobj=io.BytesIO(b"".join(piece.content for piece in stream))) as tar:
        (docker,) = json.load(tar.extractfile("manifest.json"))
        names = tar.getnames()
    assert docker["Layers"] == [f"blobs/sha256/{each.digest}" for each in (one, two)] and docker["RepoTags"] is None
    assert docker["Layers"][0] not in names and docker["Layers"][1] in names


def test_a_failed_archive_leaves_the_old_one(store, tmp_path):
    image = composed.image([composed.add(store, "a")])
    target = tmp_path / "image.tar"
    target.write_text("old")
    store.blob(image.layers[0].digest).unlink()
    with pytest.raises(BuildError):
        docker_archive.write(image, store, target, (), ignore_progress)
    assert target.read_text() == "old" and composed.tree(tmp_path) - composed.tree(tmp_path / "store") >= {"image.tar"}
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_an_archive_is_never_written_over_a_device(store, tmp_path):
    image = composed.image([composed.add(store, "a")])
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="not a plain file"):
        docker_archive.write(image, store, tmp_path / "pipe", (), ignore_progress)


def test_a_place_that_cannot_be_written_is_an_error_of_ours(store, tmp_path):
    image = composed.image([composed.add(store, "a")])
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvbuildError):
        docker_archive.write(image, store, tmp_path / "file/below", (), ignore_progress)
    with pytest.raises(EnvbuildError):
        oci.write(image, store, tmp_path / "file/below", "v1", ignore_progress)


@pytest.mark.parametrize(
    ("short", "full"),
    [
        ("env:1", "docker.io/library/env:1"),
        ("lab/env:1", "docker.io/lab/env:1"),
        ("localhost/env:1", "localhost/env:1"),
        ("registry.example:5000/lab/env:1", "registry.example:5000/lab/env:1"),
        ("localhost:5000/env:1", "localhost:5000/env:1"),
    ],
)
def test_full_names(short, full):
    assert archive.full_name(short) == full


@pytest.mark.parametrize(
    ("known", "present"),
    [
        ([], ""),
        (["abc"], "abc"),
        (["abcd", "a"], "abc"),
        (["ab", "a"], "ab"),
        (["bc", "xbc", "cba"], ""),  # a layer above other layers is not the same layer
        (["axc"], "a"),
    ],
)
def test_an_engine_has_a_layer_only_with_all_that_is_below_it(store, known, present):
    layers = {word: composed.add(store, word) for word in "abcx"}
    chains = [tuple(f"sha256:{layers[word].diff_id}" if word in layers else "sha256:d" for word in each) for each in known]
    found = present_layers(composed.image([layers[word] for word in "abc"]), chains)
    assert found == {layers[word].digest for word in present}


def test_a_layer_that_is_in_an_image_twice_is_sent_where_one_of_its_places_is_new(store):
    one, two = composed.add(store, "one"), composed.add(store, "two")
    chain = tuple(f"sha256:{layer.diff_id}" for layer in (one, two))
    assert present_layers(composed.image([one, two, one]), [chain]) == {two.digest}
