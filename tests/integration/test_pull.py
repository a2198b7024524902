"""Pull from registries: which layers are downloaded, compared and refused.

One registry is real, another one breaks off.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import composed
import pytest
from stand_in_registry import Registry, serve

from envbuild.compose.model import ComposedImage
from envbuild.compose.outputs import bounded_adapter, manifest
from envbuild.compose.outputs import pull as pulls
from envbuild.compose.outputs.pull import Pulled, digest_of, pull
from envbuild.compose.outputs.push import Tags, push
from envbuild.compose.store import LayerStore
from envbuild.errors import PublishError
from envbuild.model.progress import Progress, ignore_progress

MEGABYTE = bytes(range(256)) * 4096

pytestmark = pytest.mark.usefixtures("docker_config")


@pytest.fixture
def there(tmp_path: Path) -> LayerStore:
    """The layer store of the machine that pushes."""
    return LayerStore(tmp_path / "there")


@pytest.fixture
def here(tmp_path: Path) -> LayerStore:
    """The layer store of the machine that pulls."""
    return LayerStore(tmp_path / "here")


@pytest.fixture
def image(there: LayerStore) -> ComposedImage:
    layers = [composed.add(there, "base"), composed.add(there, "plain", gzipped=False)]
    return composed.image([*layers, composed.add(there, "top"), layers[0]])


def share(image: ComposedImage, store: LayerStore, registry: Registry) -> str:
    """Push the image; return its digest."""
    return push(image, store, f"{registry.host}/lab/env", Tags(moving=["v1"]), ignore_progress).digest


def pulled(
    registry: Registry,
    store: LayerStore,
    tag: str = "v1",
    on_progress: Callable[[Progress], object] = ignore_progress,
) -> Pulled:
    return pull(f"{registry.host}/lab/env", tag, store, on_progress, pause=lambda _seconds: None)


def require_whole(store: LayerStore, image: ComposedImage) -> None:
    for layer in image.layers:
        assert b"".join(store.read(layer))


def test_what_was_pushed_comes_back_byte_for_byte(registry, there, here, image):
    digest = share(image, there, registry)
    news: list[Progress] = []
    told = pulled(registry, here, on_progress=news.append)
    assert told == Pulled(image=image, digest=digest, received=sum(layer.size for layer in image.layers[:3]), present=0)
    assert news[-1].done == news[-1].total == told.received
    assert manifest.manifest(told.image).digest == digest.removeprefix("sha256:"), "it can be pushed on under its digest"
    require_whole(here, told.image)
    assert digest_of(f"{registry.host}/lab/env", "v1") == digest
    assert digest_of(f"{registry.host}/lab/env", "v2") == ""
    assert pulled(registry, LayerStore(here.folder / "other"), digest).image == image, "by its digest, too"


def test_layers_that_are_here_are_not_fetched(registry, there, here, image):
    share(image, there, registry)
    composed.add(here, "base")
    registry.asked.clear()
    told = pulled(registry, here)
    assert (told.present, told.received) == (1, image.layers[1].size + image.layers[2].size)
    assert registry.count("GET", "/blobs/") == 2 + 1, "two layers and the configuration"
    again = pulled(registry, here)
    assert (again.present, again.received, again.image) == (3, 0, image)
    assert pulled(registry, there).received == 0, "whoever made the layers has them under other keys"


def test_a_layer_whose_file_was_lost_is_fetched_again(registry, there, here, image):
    share(image, there, registry)
    pulled(registry, here)
    here.blob(image.layers[2].digest).unlink()
    assert pulled(registry, here).received == image.layers[2].size
    require_whole(here, image)


@pytest.mark.parametrize("knows_ranges", [True, False])
def test_what_breaks_off_goes_on_where_it_was(registry, there, here, knows_ranges):
    image = composed.image([composed.add(there, "large", {"large": MEGABYTE}, gzipped=False)])
    share(image, there, registry)
    registry.break_downloads, registry.knows_ranges, registry.sent = 4, knows_ranges, 0
    told = pulled(registry, here)
    assert told.image == image
    require_whole(here, image)
    if knows_ranges:
        assert registry.sent < image.layers[0].size * 1.25, "without ranges it would be twice as much"


@pytest.mark.parametrize("status", [429, 500, 503])
def test_failures_that_pass_are_tried_again(registry, there, here, image, status):
    share(image, there, registry)
    registry.faults["GET"] = [status, status]
    assert pulled(registry, here).image == image


def test_a_failure_that_stays_ends_with_one_error_and_keeps_what_arrived(registry, there, here, image):
    share(image, there, registry)
    lost = f"sha256:{image.layers[2].digest}"
    content = registry.blobs["lab/env"].pop(lost)
    with pytest.raises(PublishError, match="404") as caught:
        pulled(registry, here)
    assert caught.value.code == "registry-refused" and not here.has(image.layers[2])
    registry.blobs["lab/env"][lost] = content
    assert pulled(registry, here).image == image


@pytest.mark.parametrize("harm", ["other bytes", "longer", "cut", "empty"])
@pytest.mark.parametrize("number", [0, 1])
def test_a_layer_with_another_digest_never_gets_into_the_store(registry, there, here, image, harm, number):
    share(image, there, registry)
    layer = image.layers[number]
    name = f"sha256:{layer.digest}"
    content = registry.blobs["lab/env"][name]
    damaged = {"other bytes": content[:-1] + b"x", "longer": content + b"x", "cut": content[:-1], "empty": b""}
    registry.blobs["lab/env"][name] = damaged[harm]
    with pytest.raises(PublishError) as caught:
        pulled(registry, here)
    assert caught.value.code == ("digest-differs")
    assert not here.has(layer) and layer.digest not in here.blob_files()


def test_a_layer_that_unpacks_to_something_else_is_refused(registry, there, here):
    layer = composed.add(there, "one")
    lying = json.dumps({"rootfs": {"diff_ids": [f"sha256:{'0' * 64}"]}}).encode()
    share(ComposedImage(config=lying, layers=(layer,)), there, registry)
    with pytest.raises(PublishError) as caught:
        pulled(registry, here)
    assert caught.value.code == "digest-differs" and layer.digest not in here.blob_files()


def test_a_manifest_with_another_digest_is_refused(registry, there, here, image):
    digest = share(image, there, registry)
    registry.manifests[f"lab/env:{digest}"] = registry.manifests["lab/env:v1"] + b" "
    with pytest.raises(PublishError) as caught:
        pulled(registry, here, digest)
    assert caught.value.code == "digest-differs"


@pytest.mark.parametrize("change", [
    {"config": None}, {"config": {"digest": "sha256:../../x", "size": 3}}, {"layers": 5}, {"layers": []},
    {"layers": [{"mediaType": "application/x-strange", "digest": f"sha256:{'a' * 64}", "size": 3}] * 4},
    {"manifests": [{"platform": {"os": "linux", "architecture": "arm64"}, "digest": "sha256:x"}]}, {"manifests": [{}]},
    {"manifests": 5}, {"manifests": ["x"]}, {"manifests": [{"platform": "linux"}]},
    {"manifests": [{"platform": {"os": "linux", "architecture": "amd64"}, "digest": "v1"}]},
    {"manifests": [{"platform": {"os": "linux", "architecture": "amd64"}}]},
    {"config": {"digest": f"sha256:{'a' * 64}", "size": 1e400}},
    {"layers": [{"mediaType": kind, "digest": f"sha256:{'a' * 64}", "size": 3} for kind in ("a", 1, None, "b")]},
])  # fmt: skip
def test_what_is_no_image_is_refused(registry, there, here, image, change):
    share(image, there, registry)
    told = {**json.loads(registry.manifests["lab/env:v1"]), **change}
    registry.manifests["lab/env:v1"] = json.dumps(told).encode()
    with pytest.raises(PublishError) as caught:
        pulled(registry, here)
    assert caught.value.code == "unknown-format"


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff", b"[" * 100_000])
def test_a_manifest_that_is_no_json_is_refused(registry, here, content):
    registry.manifests["lab/env:v1"] = content
    with pytest.raises(PublishError) as caught:
        pulled(registry, here)
    assert caught.value.code == "unknown-format"


def test_of_an_index_the_image_for_this_kind_of_machine_is_taken(registry, there, here, image):
    digest = share(image, there, registry)
    registry.manifests[f"lab/env:{digest}"] = registry.manifests["lab/env:v1"]
    entries = [
        {"digest": f"sha256:{'0' * 64}", "platform": {"os": "linux", "architecture": "arm64"}},
        {"digest": digest, "platform": {"os": "linux", "architecture": "amd64"}},
    ]
    registry.manifests["lab/env:v1"] = json.dumps({"schemaVersion": 2, "manifests": entries}).encode()
    assert pulled(registry, here).image == image


def test_an_index_of_indexes_is_refused(registry, there, here, image):
    digest = share(image, there, registry)
    platform = {"os": "linux", "architecture": "amd64"}
    index = json.dumps({"manifests": [{"digest": digest, "platform": platform}]}).encode()
    inner = f"sha256:{hashlib.sha256(index).hexdigest()}"
    registry.manifests[f"lab/env:{inner}"] = index
    registry.manifests["lab/env:v1"] = json.dumps({"manifests": [{"digest": inner, "platform": platform}]}).encode()
    with pytest.raises(PublishError, match="another index") as caught:
        pulled(registry, here)
    assert caught.value.code == "unknown-format"


def test_a_document_without_an_end_is_not_read_to_its_end(registry, here, monkeypatch):
    monkeypatch.setattr(bounded_adapter, "LARGEST", 1 << 14)
    registry.manifests["lab/env:v1"] = b"[" + b" " * (1 << 15)
    with pytest.raises(PublishError, match="longer than") as caught:
        pulled(registry, here)
    assert caught.value.code == "unknown-format"


@pytest.mark.parametrize("diff_id", ["sha256:\ud800", "sha256:short", 5])
def test_a_configuration_with_odd_digests_is_refused(registry, there, here, diff_id):
    layer = composed.add(there, "one")
    odd = json.dumps({"rootfs": {"diff_ids": [diff_id]}}).encode()
    share(ComposedImage(config=odd, layers=(layer,)), there, registry)
    with pytest.raises(PublishError) as caught:
        pulled(registry, here)
    assert caught.value.code == "unknown-format"


def test_a_configuration_that_is_not_utf_8_is_refused(registry, there, here):
    layer = composed.add(there, "one")
    config = json.dumps({"rootfs": {"diff_ids": [f"sha256:{layer.diff_id}"]}}).encode("utf-16")
    share(ComposedImage(config=config, layers=(layer,)), there, registry)
    with pytest.raises(PublishError) as caught:
        pulled(registry, here)
    assert caught.value.code == "unknown-format"


def test_a_layer_that_is_there_twice_has_one_unpacked_digest(registry, there, here):
    layer = composed.add(there, "one")
    lying = json.dumps({"rootfs": {"diff_ids": [f"sha256:{'0' * 64}", f"sha256:{layer.diff_id}"]}}).encode()
    share(ComposedImage(config=lying, layers=(layer, layer)), there, registry)
    with pytest.raises(PublishError, match="two different ways"):
        pulled(registry, here)


def test_a_wish_to_wait_that_is_no_number_is_ignored(registry, there, here, image):
    share(image, there, registry)
    registry.faults["GET"], registry.retry_after = [429], "\xb2"
    assert pulled(registry, here).image == image


def test_nothing_is_tried_again_once_a_pull_was_ended(registry, there, here, image):
    share(image, there, registry)
    registry.faults["GET"] = [503] * 3
    with pytest.raises(PublishError, match="503"):
        pull(f"{registry.host}/lab/env", "v1", here, ignore_progress, pause=lambda _seconds: True)
    assert len(registry.faults["GET"]) == 2


def test_dockers_names_for_layers_are_understood(registry, there, here, image):
    share(image, there, registry)
    told = registry.manifests["lab/env:v1"].decode()
    docker = told.replace("oci.image.layer.v1.tar+gzip", "docker.image.rootfs.diff.tar.gzip")
    registry.manifests["lab/env:v1"] = docker.encode()
    assert pulled(registry, here).image == image


def test_another_server_that_keeps_the_blobs_does_not_get_the_password(registry, there, here, image, docker_config):
    share(image, there, registry)
    basic = base64.b64encode(b"me:s3cret").decode()
    docker_config.write_text(json.dumps({"auths": {registry.host: {"auth": basic}}}))
    registry.basic = f"Basic {basic}"
    with serve(Registry(token="x", blobs=registry.blobs)) as elsewhere:
        registry.blobs_at = elsewhere.host
        with pytest.raises(PublishError) as caught:
            pulled(registry, here)
        assert caught.value.code == "denied" and elsewhere.asked and not elsewhere.given and not elsewhere.scopes
        elsewhere.token = ""
        assert pulled(registry, here).image == image and not elsewhere.given


def test_a_registry_that_tells_no_digest_is_asked_for_the_manifest(registry, there, here, image):
    registry.tells_digests = False
    digest = share(image, there, registry)
    assert digest_of(f"{registry.host}/lab/env", "v1") == digest == pulled(registry, here).digest
    assert push(image, there, f"{registry.host}/lab/env", Tags(fixed=["v1"]), ignore_progress).tags == ()


def test_a_tag_that_is_not_there_is_named(registry, here):
    with pytest.raises(PublishError, match="has no image v1") as caught:
        pulled(registry, here)
    assert caught.value.code == "not-in-registry"


@pytest.mark.parametrize("allowed", [True, False])
def test_only_the_right_to_read_is_asked_for(registry, there, here, image, docker_config, allowed):
    share(image, there, registry)
    registry.token = "t0ken"
    if not allowed:
        registry.basic = "Basic of somebody else"
        with pytest.raises(PublishError, match="does not let this user pull from") as caught:
            pulled(registry, here)
        assert caught.value.code == "denied"
        return
    assert pulled(registry, here).image == image
    assert registry.scopes == [["repository:lab/env:pull"]]


def test_ctrl_c_does_not_wait_for_a_silent_registry(registry, there, here, image, monkeypatch):
    share(image, there, registry)
    monkeypatch.setattr(pulls, "PATIENCE_S", 0.1)
    registry.silent = f"sha256:{image.layers[2].digest}"

    def news(_each: Progress) -> None:
        raise KeyboardInterrupt

    try:
        with pytest.raises(KeyboardInterrupt):
            pull(f"{registry.host}/lab/env", "v1", here, news)
        assert not registry.waited_too_long and not here.has(image.layers[2])
    finally:
        registry.goes_on.set()


def test_ctrl_c_ends_a_pull(registry, there, here, image):
    share(image, there, registry)

    def news(_each: Progress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pull(f"{registry.host}/lab/env", "v1", here, news)
    assert not [path for path in (here.folder / "blobs/sha256").iterdir() if not path.name.startswith(".")]


@pytest.mark.parametrize("tag", ["../../x", "a b", "a?b", "x" * 129, "sha256:1", "tag\n", "a/b"])
def test_what_is_no_tag_is_refused_before_it_is_asked_for(registry, here, tag):
    for ask in (lambda: digest_of(f"{registry.host}/lab/env", tag), lambda: pulled(registry, here, tag)):
        with pytest.raises(PublishError, match="neither a tag nor a digest") as caught:
            ask()
        assert caught.value.code == "not-in-registry"
    assert not any("manifests" in line or line.endswith("x") for line in registry.asked)
