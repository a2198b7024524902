"""Push to registries: a real one, and one that answers 401, 429 and 500 and breaks uploads off."""

from __future__ import annotations

import base64
import contextlib
import functools
import json
import random
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import composed
import judges
import pytest
import requests
from debian_registry import serve_debians
from stand_in_registry import Registry, serve

from envbuild.compose.model import ComposedImage, Layer
from envbuild.compose.outputs import credentials, manifest, registry_client, registry_requests, registry_trust
from envbuild.compose.outputs import push as pushes
from envbuild.compose.outputs.push import Pushed, Tags, push
from envbuild.compose.store import LayerStore
from envbuild.errors import BuildError, PublishError
from envbuild.model.progress import Progress, ignore_progress

CI = Tags(moving=["latest"])

pytestmark = pytest.mark.usefixtures("docker_config")


@pytest.fixture
def store(tmp_path: Path) -> LayerStore:
    return LayerStore(tmp_path / "store")


@pytest.fixture
def image(store: LayerStore) -> ComposedImage:
    return composed.image([composed.add(store, word) for word in ("base", "middle", "top")])


def no_pause(_seconds: float) -> None:
    """Replaces waiting, so that tests are fast."""


def to(registry: Registry, name: str = "lab/env") -> str:
    return f"{registry.host}/{name}"


def pushed(image: ComposedImage, store: LayerStore, registry: Registry, tags: Tags = CI) -> Pushed:
    return push(image, store, to(registry), tags, ignore_progress, pause=no_pause)


def require_whole(registry: Registry, image: ComposedImage, name: str = "lab/env", tag: str = "latest") -> None:
    assert registry.manifests[f"{name}:{tag}"] == manifest.manifest(image).content
    held = registry.blobs[name]
    assert {f"sha256:{layer.digest}" for layer in image.layers} < set(held)
    assert image.config in held.values()


def test_a_push_sends_each_layer_once_and_a_second_one_nothing(registry, store, image):
    news: list[Progress] = []
    total = sum(layer.size for layer in image.layers)
    told = push(image, store, to(registry), Tags(moving=["latest"], fixed=["v1"]), news.append)
    digest = f"sha256:{manifest.manifest(image).digest}"
    assert told == Pushed(digest=digest, sent=total, layers=3, present=0, mounted=0, tags=("v1", "latest"))
    assert news[-1].done == news[-1].total == total
    require_whole(registry, image)
    require_whole(registry, image, tag="v1")
    registry.asked.clear()
    told = push(image, store, to(registry), Tags(moving=["latest"], fixed=["v1"]), ignore_progress)
    assert (told.sent, told.present) == (0, 3)
    assert [line.split()[0] for line in registry.asked if "/v2/lab" in line] == ["HEAD", "HEAD"]


def test_only_what_changed_is_sent_and_layers_need_not_be_in_the_store(registry, store, image):
    pushed(image, store, registry)
    for layer in image.layers:
        store.blob(layer.digest).unlink()
    other = composed.image([*image.layers[:2], composed.add(store, "another top")])
    told = pushed(other, store, registry)
    assert (told.sent, told.present) == (other.layers[2].size, 2)
    require_whole(registry, other)


def test_a_layer_that_neither_side_has_is_named(registry, store, image):
    store.blob(image.layers[1].digest).unlink()
    with pytest.raises(BuildError, match=image.layers[1].digest) as caught:
        pushed(image, store, registry)
    assert caught.value.code == "layer-missing" and not registry.manifests


def test_layers_are_mounted_from_another_repository(registry, store, image):
    push(image, store, to(registry, "lab/base"), CI, ignore_progress)
    received = registry.received
    other = composed.image([*image.layers, composed.add(store, "own")])
    told = push(other, store, to(registry), CI, ignore_progress, mount_from=["lab/base"])
    assert (told.mounted, told.sent) == (3, other.layers[3].size)
    assert registry.received < received + other.layers[3].size + 3000
    require_whole(registry, other)


@pytest.mark.parametrize("status", [400, 403, 404, 405])
def test_layers_that_cannot_be_mounted_are_sent(registry, store, image, status):
    """Such as from a repository that this user may not read."""
    push(image, store, to(registry, "lab/base"), CI, ignore_progress)
    registry.refuses_mounts = status
    told = push(image, store, to(registry), CI, ignore_progress, mount_from=["lab/base"])
    assert (told.mounted, told.sent) == (0, sum(layer.size for layer in image.layers))
    require_whole(registry, image)


def test_layers_are_sent_before_their_image_is_known(registry, store, image):
    """If a layer could not be sent early, the push of the image sends it or reports the error."""
    with pushes.EarlyPush(store, to(registry)) as early:
        early.require_access("latest")
        early.add(image.layers[0])
        early.add(image.layers[1])
        early.finish()
        assert set(registry.blobs["lab/env"]) == {f"sha256:{layer.digest}" for layer in image.layers[:2]}
        store.blob(image.layers[2].digest).rename(store.folder / "hidden")
        early.add(image.layers[2])
        early.finish()
        assert not registry.manifests
        (store.folder / "hidden").rename(store.folder / "blobs/sha256" / image.layers[2].digest)
        told = pushed(image, store, registry)
    assert (told.present, told.sent) == (2, image.layers[2].size)
    require_whole(registry, image)


def written_slowly(store: LayerStore, registry: Registry, is_whole: bool = True, recorded: Layer | None = None) -> Layer | None:
    """A layer that is sent while it is written: half of it is written only after the registry was asked for an upload, or for
    the layer."""
    content, layer = composed.blob(composed.tarred({"f": random.Random(14).randbytes(3 << 20)}))

    def write(stream: BinaryIO) -> Layer:
        stream.write(content[: len(content) // 2])
        while not registry.count("POST", "/uploads/") and not (recorded and registry.count("HEAD", recorded.digest)):
            time.sleep(0.01)
        if not is_whole:
            raise BuildError("The wheel is damaged.", code="bad-wheel")
        stream.write(content[len(content) // 2 :])
        return layer

    with pushes.EarlyPush(store, to(registry)) as early, contextlib.suppress(BuildError):
        early.add(store.add(composed.key("slow"), write, watch=functools.partial(early.follow, recorded)))
        early.finish()
        return layer
    return None


def test_a_layer_is_sent_while_it_is_written(registry, store):
    layer = written_slowly(store, registry)
    assert layer is not None and set(registry.blobs["lab/env"]) == {f"sha256:{layer.digest}"}
    assert (registry.count("PATCH", "/uploads/"), registry.count("POST", "/uploads/")) == (1, 1)
    assert layer.size <= registry.received < layer.size + 100


def test_a_layer_that_the_registry_has_is_not_sent_to_its_end(registry, store):
    content, layer = composed.blob(composed.tarred({"f": random.Random(14).randbytes(3 << 20)}))
    registry.blobs.setdefault("lab/env", {})[f"sha256:{layer.digest}"] = content
    assert written_slowly(store, registry) == layer
    assert registry.received < layer.size and not registry.count("PUT", "/uploads/")
    assert registry.count("DELETE", "/uploads/") == 1


def test_nothing_is_sent_of_a_recorded_layer_that_the_registry_has(registry, store):
    content, layer = composed.blob(composed.tarred({"f": random.Random(14).randbytes(3 << 20)}))
    registry.blobs.setdefault("lab/env", {})[f"sha256:{layer.digest}"] = content
    assert written_slowly(store, registry, recorded=layer) == layer
    assert not registry.received and not registry.count("POST", "/uploads/")


def test_a_recorded_layer_that_the_registry_lacks_is_sent_while_it_is_written(registry, store):
    _, layer = composed.blob(composed.tarred({"f": random.Random(14).randbytes(3 << 20)}))
    assert written_slowly(store, registry, recorded=layer) == layer
    assert set(registry.blobs["lab/env"]) == {f"sha256:{layer.digest}"}
    assert (registry.count("PATCH", "/uploads/"), registry.count("POST", "/uploads/")) == (1, 1)


@pytest.mark.parametrize("method", ["PATCH", "PUT"])
@pytest.mark.parametrize("status", [401, 404, 500])
def test_a_layer_that_cannot_be_sent_in_pieces_is_sent_as_a_whole(registry, store, method, status):
    registry.faults[method] = [status]
    layer = written_slowly(store, registry)
    assert layer is not None and set(registry.blobs["lab/env"]) == {f"sha256:{layer.digest}"}
    assert registry.count("POST", "/uploads/") == 2


def test_an_unfinished_layer_is_not_in_the_registry(registry, store):
    assert written_slowly(store, registry, is_whole=False) is None
    assert not registry.blobs.get("lab/env") and not store.entries()
    end = time.monotonic() + 60
    while not registry.count("DELETE", "/uploads/"):  # the sender notices it a moment later
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_registry_that_refuses_is_known_before_anything_is_made(registry, store):
    registry.faults["HEAD"] = [403]
    with pushes.EarlyPush(store, to(registry)) as early, pytest.raises(PublishError):
        early.require_access("latest")


def test_a_fixed_tag_never_moves(registry, store, image):
    pushed(image, store, registry, Tags(fixed=["v1"]))
    other = composed.image(image.layers[:1])
    with pytest.raises(PublishError) as caught:
        pushed(other, store, registry, Tags(fixed=["v1"], moving=["latest"]))
    assert caught.value.code == "tag-taken"
    require_whole(registry, image, tag="v1")
    assert "lab/env:latest" not in registry.manifests, "no tag moved"


def test_a_fixed_tag_that_another_push_sets_meanwhile_keeps_the_moving_tags(registry, store, image):
    other, tags = composed.image(image.layers[:1]), Tags(fixed=["v1"], moving=["latest"])

    def meanwhile(*_words: object) -> None:
        registry.manifests["lab/env:v1"] = manifest.manifest(other).content

    with pytest.raises(PublishError) as caught:
        push(image, store, to(registry), tags, ignore_progress, before_moving=meanwhile)
    assert caught.value.code == "tag-taken" and "lab/env:latest" not in registry.manifests


def test_a_fixed_tag_that_another_push_sets_while_layers_are_sent_stays(registry, store, image):
    """Sending layers can take hours, and the tag was free before."""
    other, tags = composed.image(image.layers[:1]), Tags(fixed=["v1"], moving=["latest"])

    def meanwhile(_news: Progress) -> None:
        registry.manifests["lab/env:v1"] = manifest.manifest(other).content

    with pytest.raises(PublishError) as caught:
        push(image, store, to(registry), tags, meanwhile)
    assert caught.value.code == "tag-taken" and "lab/env:latest" not in registry.manifests
    assert registry.manifests["lab/env:v1"] == manifest.manifest(other).content


@pytest.mark.parametrize("status", [429, 500, 502, 503])
@pytest.mark.parametrize("method", ["HEAD", "POST", "PUT"])
def test_failures_that_pass_are_tried_again(registry, store, image, method, status):
    registry.faults[method] = [status, status]
    waits: list[float] = []
    news: list[Progress] = []
    push(image, store, to(registry), CI, news.append, pause=waits.append)
    require_whole(registry, image)
    assert len(waits) == 2 and all(0 < each < 60 for each in waits)
    said = [each.message for each in news if each.warning]
    assert len(said) == 2 and str(status) in said[0] and "trying again" in said[0]
    assert max(each.done or 0 for each in news) <= sum(layer.size for layer in image.layers)


def test_the_registry_says_how_long_to_wait(registry, store, image):
    registry.faults["POST"], registry.retry_after = [429], "17"
    waits: list[float] = []
    push(image, store, to(registry), CI, ignore_progress, pause=waits.append)
    assert waits == [17]


def test_uploads_that_break_off_are_sent_again_alone(registry, store, image):
    registry.break_uploads = 2
    pushed(image, store, registry)
    require_whole(registry, image)
    assert registry.count("PUT", "/uploads/") == 3 + 1 + 2, "three layers, the configuration, and the two that broke"


def test_a_push_that_failed_goes_on_with_what_is_missing(registry, store, image):
    registry.faults["PUT"] = [400]  # one layer is refused, which is no temporary error
    with pytest.raises(PublishError, match="TROUBLE: as told") as caught:
        pushed(image, store, registry)
    assert caught.value.code == "registry-refused" and not registry.manifests
    arrived = set(registry.blobs["lab/env"])
    told = pushed(image, store, registry)
    assert (told.present == len(arrived) and told.sent < sum(layer.size for layer in image.layers)) or not arrived
    require_whole(registry, image)


def test_a_layer_that_the_registry_misread_is_sent_once_more(registry, store, image):
    registry.misread_uploads = 1
    pushed(image, store, registry)
    require_whole(registry, image)
    assert registry.count("PUT", "/uploads/") == 3 + 1 + 1, "three layers, the configuration, and the one that was misread"
    registry.manifests.clear()
    registry.blobs.clear()
    registry.misread_uploads = 100
    with pytest.raises(PublishError, match="DIGEST_INVALID"):
        pushed(image, store, registry)
    assert not registry.manifests


@pytest.mark.parametrize(("faults", "misread"), [([500], 0), ([], 1)])
def test_what_follows_the_layers_is_repeated_too(registry, store, image, faults, misread):
    """docker-registry 2.8 answers so while it writes a link for another client."""
    pushed(image, store, registry)
    registry.manifests.clear()
    registry.asked.clear()
    registry.faults["PUT"], registry.misread_manifests = faults, misread
    push(image, store, to(registry), CI, ignore_progress)  # pauses as it does for users
    require_whole(registry, image)
    assert registry.count("PUT", "/manifests/") == 2 and not registry.count("PUT", "/uploads/")


def test_a_failure_that_stays_ends_with_one_error(registry, store, image):
    registry.faults["POST"] = [503] * 1000
    waits: list[float] = []
    with pytest.raises(PublishError, match="503") as caught:
        push(image, store, to(registry), CI, ignore_progress, pause=waits.append)
    assert caught.value.code == "registry-refused"
    assert waits[:1] < waits[-1:] and not registry.manifests


def test_a_damaged_layer_is_never_put_into_a_manifest(registry, store, image):
    place = store.blob(image.layers[0].digest)
    content = place.read_bytes()
    place.unlink()
    place.write_bytes(b"x" + content[1:])
    with pytest.raises((BuildError, PublishError)) as caught:
        pushed(image, store, registry)
    assert caught.value.code in ("layer-damaged", "registry-refused") and not registry.manifests


def login(config: Path, registry: Registry, user: str = "me", password: str = "pw:ü") -> str:
    basic = base64.b64encode(f"{user}:{password}".encode()).decode()
    config.write_text(json.dumps({"auths": {registry.host: {"auth": basic}}}))
    return f"Basic {basic}"


@pytest.mark.parametrize("kind", ["basic", "token for all", "token for a user"])
def test_the_registry_asks_who_we_are(registry, store, image, docker_config, kind):
    if kind != "token for all":
        registry.basic = login(docker_config, registry)
    if kind != "basic":
        registry.token = "t0ken"
    push(image, store, to(registry), CI, ignore_progress, mount_from=["lab/base"])
    require_whole(registry, image)
    if registry.token:
        assert registry.scopes == [["repository:lab/env:pull,push", "repository:lab/base:pull"]], "one token for all"


def test_a_token_that_ends_is_renewed(registry, store, image):
    registry.token = "first"
    pushed(composed.image(image.layers[:1]), store, registry)
    plain = Registry.count

    def change(news: Progress) -> None:
        registry.token = "second"

    push(image, store, to(registry), CI, change, pause=no_pause)
    require_whole(registry, image)
    assert plain(registry, "GET", "/token") == 3


def test_a_login_server_that_does_not_answer_is_named(registry, store, image):
    with socket.socket() as taken:  # the port is bound, but nothing listens
        taken.bind(("127.0.0.1", 0))
        registry.token, registry.login = "t0ken", f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(PublishError) as caught:
            pushed(image, store, registry)
    assert caught.value.code == "registry-unreachable" and not registry.manifests
    assert f"http://{registry.login}/token) gave no token: Connection refused" in caught.value.message


@pytest.mark.parametrize("known", [False, True])
def test_who_may_not_push_is_told_to_log_in(registry, store, image, docker_config, known):
    if known:
        login(docker_config, registry, password="wrong")
    registry.basic = "Basic of somebody else"
    with pytest.raises(PublishError, match="does not let this user push") as caught:
        pushed(image, store, registry)
    assert caught.value.code == "denied" and f"docker login {registry.host}" in caught.value.hint


def test_a_credential_helper_is_asked(registry, store, image, docker_config, monkeypatch, tmp_path):
    helper = tmp_path / "docker-credential-toy"
    answer = json.dumps({"ServerURL": registry.host, "Username": "me", "Secret": "pw"})
    helper.write_text(f"#!{sys.executable}\nprint({answer!r})\n")
    helper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    docker_config.write_text(json.dumps({"credHelpers": {registry.host: "toy"}}))
    registry.basic = "Basic " + base64.b64encode(b"me:pw").decode()
    pushed(image, store, registry)
    require_whole(registry, image)


@pytest.mark.filterwarnings("ignore:docker-credential-no-such-helper")
@pytest.mark.parametrize("text", ["{", '{"auths": {"h": 5}}', '{"credHelpers": {"h": "no-such-helper"}}'])
def test_credentials_that_cannot_be_read_are_an_error_or_nobody(docker_config, text):
    docker_config.write_text(text)
    try:
        assert not credentials.find("h").basic
    except PublishError as error:
        assert error.code == "credentials" and "docker login h" in error.hint


@pytest.mark.parametrize("text", ["me:hunter2@h.example/lab", "me:hunter2/3@h.example/lab", "me:hunter2@h.example"])
def test_credentials_in_a_name_are_refused_and_not_repeated(text):
    with pytest.raises(PublishError) as caught:
        registry_client.parse(text)
    assert caught.value.code == "repository-name" and "hunter2" not in str(caught.value.to_json())


@pytest.mark.parametrize("host", ["localhost", "localhost:5000", "127.0.0.1:5000", "[::1]:5000", "ghcr.io", "a-b.x_y.org:443"])
def test_hosts_are_known(host):
    assert registry_client.parse(f"{host}/lab/dl").host == host


def test_credentials_are_never_shown():
    assert "hunter2" not in repr(credentials.Credentials(username="me", password="hunter2", identity_token="hunter2"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "lab/env",
        "host.example",
        "host.example/Lab",
        "host.example/lab:tag",
        "h.example/a//b",
        "a b.c/d",
        "$(id).c/d",
        "h:x/d",
    ],
)
def test_what_names_no_repository_is_refused(store, image, text):
    with pytest.raises(PublishError) as caught:
        push(image, store, text, CI, ignore_progress)
    assert caught.value.code == "repository-name"


def test_a_registry_that_does_not_answer_is_unreachable(store, image):
    with socket.socket() as taken:  # the port is bound, but nothing listens
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}/lab/env"
        with pytest.raises(PublishError) as caught:
            push(image, store, address, CI, ignore_progress, pause=no_pause)
    assert caught.value.code == "registry-unreachable"


def test_a_registry_that_is_silent_from_the_beginning_is_left_soon(store, image, monkeypatch):
    """Anything may listen at a wrong address. A registry that has answered before gets more time."""
    monkeypatch.setattr(registry_client, "_CONNECT_S", 0.2)
    monkeypatch.setattr(registry_requests, "_FIRST_SILENCE_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        host = f"127.0.0.1:{silent.getsockname()[1]}"
        began = time.monotonic()
        with pytest.raises(PublishError) as caught:
            push(image, store, f"{host}/lab/env", CI, ignore_progress, pause=no_pause)
        assert time.monotonic() - began < 60
    assert (caught.value.code, caught.value.exit_code) == ("registry-unreachable", 11)
    assert "timed out" in caught.value.message and f"Check that {host} is the name" in caught.value.hint


def test_silence_after_other_failures_ends_a_push(registry, store, image, monkeypatch):
    """The number of attempts depends on the failure, so it may already be exceeded."""
    monkeypatch.setattr(registry_requests, "_FIRST_SILENCE_S", 0.3)
    faults = iter(["drop"] * 3)
    registry.meddle = lambda _line: next(faults, "") or str(registry.goes_on.wait(100) or "")
    try:
        with pytest.raises(PublishError) as caught:
            push(image, store, to(registry), CI, ignore_progress, pause=no_pause)
        assert caught.value.code == "registry-unreachable" and "timed out" in caught.value.message
    finally:
        registry.goes_on.set()


def test_ctrl_c_does_not_wait_for_a_silent_registry(registry, store, image, monkeypatch):
    pushed(composed.image([image.layers[0]]), store, registry, Tags(moving=["earlier"]))
    monkeypatch.setattr(pushes, "PATIENCE_S", 0.1)
    registry.silent = "uploads"

    def news(_each: Progress) -> None:
        raise KeyboardInterrupt

    try:
        with pytest.raises(KeyboardInterrupt):
            push(image, store, to(registry), CI, news)
        assert not registry.waited_too_long
        assert "lab/env:latest" not in registry.manifests
    finally:
        registry.goes_on.set()


def test_ctrl_c_ends_a_push_that_waits(registry, store, image):
    registry.faults["HEAD"] = [503] * 1000
    waiting = threading.Event()

    def news(each: Progress) -> None:
        if each.warning:
            waiting.set()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        push(image, store, to(registry), CI, news)
    assert waiting.is_set()
    assert len(registry.faults["HEAD"]) == 999, "nothing was asked again"


@pytest.mark.judges("openssl")
@pytest.mark.parametrize("trusted", ["by docker's folder", "by a bundle", ""])
def test_a_registry_with_a_certificate_of_its_own(store, image, tmp_path, monkeypatch, trusted):
    both, alone = tmp_path / "both.pem", tmp_path / "ca.crt"
    name = ["-subj", "/CN=here", "-addext", "subjectAltName=IP:127.0.0.1"]
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", str(both)]
    subprocess.run(["openssl", "req", "-x509", "-days", "2", *key, *name, "-out", str(alone)], check=True, capture_output=True)
    both.write_text(both.read_text() + alone.read_text())
    others = tmp_path / "others.pem"
    shutil.copy(Path(requests.certs.where()), others)
    monkeypatch.setattr(registry_trust, "CERTIFICATES", tmp_path / "certs.d")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(alone if trusted == "by a bundle" else others))
    with serve(Registry(), str(both)) as registry:
        if trusted == "by docker's folder":
            (tmp_path / "certs.d" / registry.host).mkdir(parents=True)
            shutil.copy(alone, tmp_path / "certs.d" / registry.host / "ca.crt")
        if trusted:
            pushed(image, store, registry)
            require_whole(registry, image)
            return
        with pytest.raises(PublishError, match="certificate verify failed") as caught:
            pushed(image, store, registry)
        assert caught.value.code == "registry-unreachable" and "certs.d" in caught.value.hint


@pytest.fixture
def real_registry(tmp_path: Path) -> Iterator[str]:
    with serve_debians(tmp_path) as host:
        yield host


def test_a_real_registry_takes_it_and_gives_it_back(real_registry, store, image, tmp_path):
    told = push(image, store, f"{real_registry}/lab/env", Tags(moving=["latest"], fixed=["v1"]), ignore_progress)
    assert (told.present, told.sent) == (0, sum(layer.size for layer in image.layers))
    accept = {"Accept": manifest.MANIFEST}
    answer = requests.get(f"http://{real_registry}/v2/lab/env/manifests/v1", headers=accept, timeout=60)
    assert answer.content == manifest.manifest(image).content and answer.headers["Docker-Content-Digest"] == told.digest
    for layer in image.layers:
        blob = requests.get(f"http://{real_registry}/v2/lab/env/blobs/sha256:{layer.digest}", timeout=60)
        assert blob.content == store.blob(layer.digest).read_bytes()
    again = push(image, store, f"{real_registry}/lab/env", Tags(moving=["latest"], fixed=["v1"]), ignore_progress)
    assert again == Pushed(digest=told.digest, sent=0, layers=3, present=3, mounted=0)
    other = push(image, store, f"{real_registry}/lab/other", CI, ignore_progress, mount_from=["lab/env"])
    assert (other.sent, other.mounted) == (0, 3)
    judges.require("skopeo")
    argv = ["skopeo", "inspect", "--tls-verify=false", f"docker://{real_registry}/lab/other:latest"]
    found = json.loads(subprocess.run(argv, check=True, capture_output=True, text=True, timeout=120).stdout)
    assert found["Digest"] == told.digest


def wait_for_an_upload(folder: Path) -> None:
    end = time.monotonic() + 60
    while not list(folder.rglob("_uploads/*/data")):
        assert time.monotonic() < end, "the registry does not get the layer"
        time.sleep(0.05)


def test_a_real_registry_takes_a_layer_while_it_is_written(real_registry, store, tmp_path):
    content, layer = composed.blob(composed.tarred({"f": random.Random(14).randbytes(3 << 20)}))
    address = f"http://{real_registry}/v2/lab/env/blobs/sha256:{layer.digest}"

    def write(stream: BinaryIO) -> Layer:
        stream.write(content[: 2 << 20])
        wait_for_an_upload(tmp_path)
        stream.write(content[2 << 20 :])
        return layer

    with pushes.EarlyPush(store, f"{real_registry}/lab/env") as early:
        store.add(composed.key("f"), write, watch=functools.partial(early.follow, None))
        end = time.monotonic() + 60
        while (blob := requests.get(address, timeout=60)).status_code != 200:
            assert time.monotonic() < end, "the registry does not get the layer"
            time.sleep(0.05)
    assert blob.content == content


def test_a_real_registry_forgets_an_unfinished_layer(real_registry, store, tmp_path):
    def write(stream: BinaryIO) -> Layer:
        stream.write(bytes(3 << 20))
        wait_for_an_upload(tmp_path)
        raise BuildError("The wheel is damaged.", code="bad-wheel")

    with pytest.raises(BuildError), pushes.EarlyPush(store, f"{real_registry}/lab/env") as early:
        store.add(composed.key("f"), write, watch=functools.partial(early.follow, None))
    assert not list(tmp_path.rglob("_uploads/*/data"))
