"""One fault at each request of a publication: refusals, lost requests and answers, and strangers who move tags.

After each fault, a moving tag names the old image, or the new image with all its statements. The next run completes.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import composed
import pytest
import requests
from debian_registry import DebianRegistry, run_debians
from signing import write_pair
from stand_in_registry import Registry, serve

from envbuild.attest import keys, signing
from envbuild.attest.signing import Statement
from envbuild.compose.model import ComposedImage
from envbuild.compose.outputs import manifest, referrers
from envbuild.compose.outputs.manifest import Document
from envbuild.compose.outputs.push import Tags, push
from envbuild.compose.outputs.referrers import Artifact
from envbuild.compose.outputs.registry_client import Client
from envbuild.compose.store import LayerStore
from envbuild.errors import BuildError, PublishError
from envbuild.model.progress import ignore_progress

TAGS = Tags(moving=["latest", "lock"], fixed=["v1"])
KINDS = (signing.SIGNED, signing.SBOM, signing.SMOKE)
LAB = "lab/env"
pytestmark = pytest.mark.usefixtures("docker_config", "plain_http")


@pytest.fixture
def plain_http(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let clients not try TLS first: these tests make thousands of clients."""
    monkeypatch.setattr(Client, "_find_base", lambda client: f"http://{client.repository.host}")


@pytest.fixture
def store(tmp_path: Path) -> LayerStore:
    return LayerStore(tmp_path / "store")


@pytest.fixture
def images(store: LayerStore) -> tuple[ComposedImage, ComposedImage, ComposedImage]:
    """The image that is published, the image before it, and the image of a stranger."""
    base, old, new, other = (composed.add(store, word) for word in ("base", "old", "new", "other"))
    return composed.image([base, new]), composed.image([base, old]), composed.image([base, other])


@pytest.fixture
def publish(tmp_path: Path, store: LayerStore) -> Callable[[ComposedImage, Registry, Tags], None]:
    signer = keys.signing_key(write_pair(tmp_path)[0], "")

    def attach(client: Client, subject: Document) -> None:
        bundles = (signing.bundle(Statement(kind=kind, predicate={}), f"sha256:{subject.digest}", signer) for kind in KINDS)
        referrers.attach(client, subject, [Artifact(content=each, kind=signing.BUNDLE, annotations={}) for each in bundles])

    def run(image: ComposedImage, registry: Registry, tags: Tags) -> None:
        to = f"{registry.host}/{LAB}"
        push(image, store, to, tags, ignore_progress, before_moving=attach, pause=lambda _seconds: None)

    return run


def content_of(image: ComposedImage) -> bytes:
    return manifest.manifest(image).content


def proved(registry: Registry, content: bytes) -> set[str]:
    """The kinds of the statements about a manifest. Checks that each statement is about this very manifest."""
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    if registry.knows_referrers:
        found = [each for name, each in registry.manifests.items() if ":sha256:" in name]
    else:
        listed = registry.manifests.get(f"{LAB}:{digest.replace(':', '-')}", b'{"manifests": []}')
        found = [registry.manifests[f"{LAB}:{each['digest']}"] for each in json.loads(listed)["manifests"]]
    kinds = set()
    for each in map(json.loads, found):
        if each.get("subject", {}).get("digest") == digest:
            bundle = json.loads(registry.blobs[LAB][each["layers"][0]["digest"]])
            statement = json.loads(base64.b64decode(bundle["dsseEnvelope"]["payload"]))
            assert [f"sha256:{told['digest']['sha256']}" for told in statement["subject"]] == [digest]
            kinds.add(statement["predicateType"])
    return kinds


def require_truth(registry: Registry, *trusted: bytes) -> None:
    """Check that each moving tag names an image of ``trusted``, or a complete image with all its statements."""
    for name, content in registry.manifests.items():
        if name.startswith(f"{LAB}:sha256"):
            continue
        told = json.loads(content)
        assert all(blob["digest"] in registry.blobs[LAB] for blob in (told["config"], *told["layers"])), f"{name} is partial"
        if name.rpartition(":")[2] in TAGS.moving and content not in trusted:
            assert proved(registry, content) == set(KINDS), f"{name} is on an image without its proofs"


class OnceAt:
    """Does something at the n-th request, and nothing at the others."""

    def __init__(self, number: int, act: Callable[[], str], times: int = 1) -> None:
        self.left, self._act, self._times, self._lock = number, act, times, threading.Lock()

    def __call__(self, _line: str) -> str:
        with self._lock:
            self.left -= 1
            return self._act() if -self._times < self.left <= 0 else ""


@pytest.fixture(params=[False, True], ids=["by tag", "by API"])
def registries(request: pytest.FixtureRequest) -> Iterator[Callable[[], Registry]]:
    """A function that empties the registry."""
    with serve(Registry(knows_referrers=request.param)) as served:

        def emptied() -> Registry:
            served.meddle = None
            served.blobs.clear()
            served.manifests.clear()
            return served

        yield emptied


FAULTS = [
    *((fault, 1) for fault in ("403", "lose")),
    *(
        pytest.param(fault, 1, marks=pytest.mark.prove)
        for fault in ("400", "401", "409", "416", "429", "500", "503", "507", "drop")
    ),
    *(pytest.param(fault, 12, marks=pytest.mark.prove) for fault in ("403", "409", "429", "500", "drop", "lose")),
]


@pytest.mark.parametrize(("fault", "times"), FAULTS)
def test_a_fault_at_any_request_makes_no_tag_lie(registries, images, publish, fault, times):
    new, old, _ = images
    for number in itertools.count(1):
        registry = registries()
        publish(old, registry, Tags(moving=TAGS.moving))
        registry.meddle = fault_at = OnceAt(number, lambda: fault, times)
        try:
            publish(new, registry, TAGS)
        except (PublishError, BuildError) as error:
            assert error.code in ("denied", "registry-refused", "registry-unreachable"), error
        require_truth(registry)
        registry.meddle = None
        publish(new, registry, TAGS)
        require_truth(registry)
        assert {registry.manifests[f"{LAB}:{tag}"] for tag in (*TAGS.moving, *TAGS.fixed)} == {content_of(new)}, number
        if fault_at.left > 0:  # the publication needed fewer requests
            assert number > 15
            break


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a small file system")
def test_a_registry_whose_disk_is_full_moves_no_tag_until_it_has_space(tmp_path, store, images, publish):
    """Debian's registry on a file system of 1.5 MB. The layer of the new image has 3 MB that cannot be compressed."""
    _, old, _ = images
    large = composed.image([composed.add(store, "base"), composed.add(store, "large", {"file": os.urandom(3_000_000)})])
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1500k,mode=700", "tmpfs", str(folder)], check=True)
    try:
        with run_debians(folder) as registry:
            publish(old, registry, Tags(moving=TAGS.moving))
            with pytest.raises((PublishError, BuildError)) as refused:
                publish(large, registry, TAGS)
            assert registry.host in refused.value.message and "a full disk" in refused.value.hint
            assert named(registry) == dict.fromkeys(TAGS.moving, digest_of(old))
            subprocess.run(["mount", "-o", "remount,size=30m", str(folder)], check=True)
            publish(large, registry, TAGS)
            assert named(registry) == dict.fromkeys((*TAGS.moving, *TAGS.fixed), digest_of(large))
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def named(registry: DebianRegistry) -> dict[str, str]:
    """The digest that each tag of a running registry names, without the tags of referrers."""
    place = f"http://{registry.host}/v2/{LAB}"
    tags = [tag for tag in requests.get(f"{place}/tags/list", timeout=30).json()["tags"] if not tag.startswith("sha256-")]
    accepted = {"Accept": "application/vnd.oci.image.manifest.v1+json"}
    answers = {tag: requests.head(f"{place}/manifests/{tag}", headers=accepted, timeout=30) for tag in tags}
    return {tag: answer.headers["Docker-Content-Digest"] for tag, answer in answers.items()}


def digest_of(image: ComposedImage) -> str:
    return f"sha256:{hashlib.sha256(content_of(image)).hexdigest()}"


@pytest.mark.parametrize("tag", ["latest", "v1"])
def test_a_stranger_moves_a_tag_at_any_request(registries, images, publish, tag):
    """Only in the instant between the last look at a tag and its setting can a stranger's tag be overwritten."""
    new, old, other = images
    overwritten = refused = 0
    for number in itertools.count(1):
        registry = registries()
        publish(old, registry, Tags(moving=TAGS.moving))
        publish(other, registry, Tags(moving=["elsewhere"]))

        def move(registry: Registry = registry) -> str:
            registry.manifests[f"{LAB}:{tag}"] = content_of(other)
            return ""

        registry.meddle = moved_at = OnceAt(number, move)
        code = ""
        try:
            publish(new, registry, TAGS)
        except PublishError as error:
            code = error.code
        require_truth(registry)
        if moved_at.left > 0:
            break
        refused += code in ("tag-moved", "tag-taken")
        is_overwritten = registry.manifests[f"{LAB}:{tag}"] != content_of(other)
        overwritten += is_overwritten
    # A moving tag may be taken over if the stranger moved it before the first look.
    assert refused >= 8 and overwritten <= {"latest": 3, "v1": 1}[tag], (refused, overwritten)


def test_the_tag_that_never_moves_disappears_at_any_request(registries, images, publish):
    new, old, _ = images
    for number in itertools.count(1):
        registry = registries()
        publish(old, registry, Tags(moving=TAGS.moving))
        registry.meddle = at = OnceAt(number, lambda registry=registry: registry.manifests.pop(f"{LAB}:v1", b"") and "")
        try:
            publish(new, registry, TAGS)
        except PublishError as error:
            assert error.code == "tag-taken" and "removed" in error.message and error.hint == "Run the command again."
        require_truth(registry)
        registry.meddle = None
        publish(new, registry, TAGS)
        assert registry.manifests[f"{LAB}:v1"] == registry.manifests[f"{LAB}:latest"] == content_of(new)
        if at.left > 0:
            break


@pytest.mark.parametrize("number", range(1, 13))
def test_two_different_images_with_the_same_tags_at_once(registries, images, publish, number):
    """Two builders made different images from the same inputs. One of them wins, and all tags are on proved images."""
    new, old, other = images
    registry = registries()
    publish(old, registry, Tags(moving=TAGS.moving))
    codes: list[str] = []

    def rival() -> None:
        try:
            publish(other, registry, TAGS)
        except PublishError as error:
            codes.append(error.code)

    threads: list[threading.Thread] = []

    def begin() -> str:
        threads.append(threading.Thread(target=rival))
        threads[-1].start()
        return ""

    registry.meddle = OnceAt(number, begin)
    try:
        publish(new, registry, TAGS)
    except PublishError as error:
        codes.append(error.code)
    for thread in threads:
        thread.join(60)
    require_truth(registry)
    assert set(codes) <= {"tag-taken", "tag-moved"} and len(codes) <= 2
