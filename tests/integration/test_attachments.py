"""Attach signed statements to images in registries, with and without the referrers API, and with failures."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import composed
import pytest
from debian_registry import serve_debians
from signing import write_pair
from stand_in_registry import Registry, serve

from envbuild.attest import keys, signing
from envbuild.attest.signing import Statement
from envbuild.compose.model import ComposedImage
from envbuild.compose.outputs import manifest, referrers
from envbuild.compose.outputs.manifest import Document
from envbuild.compose.outputs.push import Pushed, Tags, push
from envbuild.compose.outputs.referrers import Artifact
from envbuild.compose.outputs.registry_client import Client
from envbuild.compose.store import LayerStore
from envbuild.errors import PublishError
from envbuild.model.progress import ignore_progress
from envbuild.pipeline import signatures

TAGS = Tags(moving=["latest"], fixed=["v1"])
pytestmark = pytest.mark.usefixtures("docker_config")
KINDS = (signing.SIGNED, signing.SBOM, signing.SMOKE)


@pytest.fixture(params=[False, True], ids=["by tag", "by API"])
def registry(request: pytest.FixtureRequest) -> Iterator[Registry]:
    with serve(Registry(knows_referrers=request.param)) as served:
        yield served


@pytest.fixture
def store(tmp_path: Path) -> LayerStore:
    return LayerStore(tmp_path / "store")


@pytest.fixture
def image(store: LayerStore) -> ComposedImage:
    return composed.image([composed.add(store, "base"), composed.add(store, "top")])


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    return write_pair(tmp_path)


def publish(
    image: ComposedImage, store: LayerStore, to: str, key: Path, predicate: Mapping[str, object] | None = None
) -> tuple[Pushed, list[str]]:
    """Push an image, and attach statements of each kind before the tags move; return the push and the new digests."""
    signer = keys.signing_key(key, "")
    new: list[str] = []

    def attach(client: Client, subject: Document) -> None:
        digest = f"sha256:{subject.digest}"
        bundles = {kind: signing.bundle(Statement(kind=kind, predicate=predicate or {}), digest, signer) for kind in KINDS}
        notes = "dev.sigstore.bundle.predicateType"
        made = [Artifact(content=each, kind=signing.BUNDLE, annotations={notes: kind}) for kind, each in bundles.items()]
        new.extend(referrers.attach(client, subject, made))

    pushed = push(image, store, to, TAGS, ignore_progress, before_moving=attach, pause=lambda _seconds: None)
    return pushed, new


def attached(to: str, digest: str) -> list[bytes]:
    return [*referrers.read(to, digest, signing.BUNDLE)]


def test_statements_are_attached_once_and_read_again(registry, store, image, pair):
    to = f"{registry.host}/lab/env"
    pushed, new = publish(image, store, to, pair[0])
    assert len(new) == 3 and pushed.tags == ("v1", "latest")
    public = keys.public_key(pair[1])
    assert {signing.opened(each, pushed.digest, public).kind for each in attached(to, pushed.digest)} == set(KINDS)
    signatures.require_signed(to, pushed.digest, public)
    before = len(registry.asked)
    again, new = publish(image, store, to, pair[0])
    assert (again.sent, again.tags, new) == (0, (), [])
    asked = [line.split()[0] for line in registry.asked[before:] if "/v2/lab" in line]
    assert asked == ["HEAD", "HEAD", "GET"] + ["GET", "HEAD", "HEAD", "HEAD"] * (not registry.knows_referrers)
    assert len(publish(image, store, to, pair[0], {"more": 1})[1]) == 3
    assert len(attached(to, pushed.digest)) == 6, "what was attached before stays"


def test_other_artifacts_and_damaged_ones_are_passed_over(registry, store, image, pair):
    to = f"{registry.host}/lab/env"
    pushed, new = publish(image, store, to, pair[0])
    told = json.loads(registry.manifests[f"lab/env:{new[0]}"])
    blobs = registry.blobs["lab/env"]
    blobs[told["layers"][0]["digest"]] = b"x" * told["layers"][0]["size"]
    registry.manifests[f"lab/env:{new[1]}"] = json.dumps({**told, "annotations": {}}).encode()
    assert len(attached(to, pushed.digest)) == 1
    assert [*referrers.read(to, pushed.digest, "application/other")] == []


def attach_raw(registry: Registry, subject: str, content: bytes, **layer: object) -> str:
    """Attach a bundle with arbitrary content, as a stranger with write access can do; return the digest of the bundle."""
    blob = f"sha256:{hashlib.sha256(content).hexdigest()}"
    registry.blobs["lab/env"][blob] = content
    told = {
        "mediaType": manifest.MANIFEST, "artifactType": signing.BUNDLE, "subject": {"digest": subject},
        "layers": [{"mediaType": signing.BUNDLE, "digest": blob, "size": len(content), **layer}],
        "annotations": {signing.ABOUT: signing.SIGNED},
    }  # fmt: skip
    body = json.dumps(told).replace("Infinity", "1e999").encode()
    name = f"sha256:{hashlib.sha256(body).hexdigest()}"
    registry.manifests[f"lab/env:{name}"] = body
    if not registry.knows_referrers:
        tag = f"lab/env:{subject.replace(':', '-')}"
        held = json.loads(registry.manifests[tag])["manifests"] if tag in registry.manifests else []
        entry = {"digest": name, "annotations": told["annotations"]}
        registry.manifests[tag] = json.dumps({"mediaType": manifest.INDEX, "manifests": [entry, *held]}).encode()
    return blob


def test_bad_attachments_do_not_hide_a_signature(registry, store, image, pair):
    to, public = f"{registry.host}/lab/env", keys.public_key(pair[1])
    digest = publish(image, store, to, pair[0])[0].digest
    for kind in ("\\ud800", "x"):
        envelope = b'{"dsseEnvelope": {"payload": "", "payloadType": "%s", "signatures": [{"sig": ""}]}}' % kind.encode()
        attach_raw(registry, digest, envelope)
    attach_raw(registry, digest, b"huge", size=float("inf"))
    attach_raw(registry, digest, b"elsewhere", digest="sha256:../../x")
    for number, change in enumerate((b"longer than told", b"x", None)):
        blob = attach_raw(registry, digest, b"content %d" % number)
        if change is None:
            del registry.blobs["lab/env"][blob]
        else:
            registry.blobs["lab/env"][blob] = change
    signatures.require_signed(to, digest, public)
    assert len(attached(to, digest)) == 3 + 2


def test_a_signature_is_found_behind_many_other_statements(store, image, pair, monkeypatch):
    """Those that are annotated as signatures come first, and nothing is fetched behind the one that fits."""
    monkeypatch.setattr(signatures, "_MOST", 2)
    with serve(Registry(knows_referrers=True)) as registry:
        to, public = f"{registry.host}/lab/env", keys.public_key(pair[1])
        digest, new = publish(image, store, to, pair[0])
        for reference in list(registry.manifests):  # the referrers API lists them by digest
            if reference.removeprefix("lab/env:") in new[1:]:
                for number in range(10):
                    told = json.loads(registry.manifests[reference]) | {"number": number}
                    body = json.dumps(told).encode()
                    registry.manifests[f"lab/env:sha256:{hashlib.sha256(body).hexdigest()}"] = body
        before = registry.count("GET", "/blobs/")
        signatures.require_signed(to, digest.digest, public)
        assert registry.count("GET", "/blobs/") == before + 1


def test_a_signature_is_found_behind_what_strangers_call_signatures(store, image, pair, monkeypatch):
    with serve(Registry()) as registry:
        to, public = f"{registry.host}/lab/env", keys.public_key(pair[1])
        digest = publish(image, store, to, pair[0])[0].digest
        for number in range(210):  # they come first in the list
            attach_raw(registry, digest, b"no bundle %d" % number)
        signatures.require_signed(to, digest, public)
        monkeypatch.setattr(signatures, "_MOST", 10)
        error = refusal(lambda: signatures.require_signed(to, digest, public))
        assert error.code == "wrong-signature" and "203 of the documents attached" in error.message


def test_a_list_that_never_ends_is_left(store, image, pair):
    with serve(Registry(knows_referrers=True, endless=True)) as registry:
        to = f"{registry.host}/lab/env"
        digest = push(image, store, to, TAGS, ignore_progress).digest
        assert attached(to, digest) == [] and registry.count("GET", "/referrers/") == 20


@pytest.mark.parametrize("listed", [b"no json", b"[]", b'{"manifests": 1}', b"{}", b"[" * 100_000])
def test_a_list_that_is_none_is_told(store, image, pair, listed):
    with serve(Registry()) as registry:
        to = f"{registry.host}/lab/env"
        pushed = push(image, store, to, TAGS, ignore_progress)
        registry.manifests[f"lab/env:{pushed.digest.replace(':', '-')}"] = listed
        with pytest.raises(PublishError) as caught:
            attached(to, pushed.digest)
        assert caught.value.code == "unknown-format"


def require_order(registry: Registry, image: ComposedImage, to: str) -> None:
    """Check that all statements are there if the moving tag names the image."""
    held = registry.manifests.get("lab/env:latest")
    if held == manifest.manifest(image).content:
        assert len(attached(to, f"sha256:{manifest.manifest(image).digest}")) == 3


@pytest.mark.parametrize(("status", "step"), [(401, 8), (403, 1), (500, 8)])
def test_after_a_failure_at_any_request_no_tag_names_what_is_not_proved(registry, store, image, pair, status, step):
    """The registry refuses every request from the n-th on, as if publishing had been killed there. Later it answers again."""
    to = f"{registry.host}/lab/env"
    old = composed.image(image.layers[:1])
    push(old, store, to, Tags(moving=["latest"]), ignore_progress)
    for answers in range(0, 100, step):
        registry.answers_left, registry.refusal = answers, status
        try:
            publish(image, store, to, pair[0])
        except PublishError as error:
            registry.answers_left = -1
            assert error.code == {401: "denied", 403: "denied", 500: "registry-refused"}[status]
            require_order(registry, image, to)
        else:
            break
    else:
        raise AssertionError("it never ends")
    registry.answers_left = -1
    assert registry.manifests["lab/env:latest"] == manifest.manifest(image).content
    require_order(registry, image, to)


def test_what_a_failure_left_is_completed_by_the_next_run(registry, store, image, pair):
    to = f"{registry.host}/lab/env"
    registry.answers_left = 15
    with pytest.raises(PublishError):
        publish(image, store, to, pair[0])
    registry.answers_left = -1
    pushed, _ = publish(image, store, to, pair[0])
    assert (pushed.sent, len(attached(to, pushed.digest))) == (0, 3)
    require_order(registry, image, to)


def test_two_who_publish_one_image_at_the_same_time_both_arrive(registry, store, image, tmp_path):
    to = f"{registry.host}/lab/env"
    push(image, store, to, Tags(fixed=["v1"]), ignore_progress)
    pairs = [write_pair(tmp_path, name) for name in ("one", "two")]
    threads = [threading.Thread(target=publish, args=(image, store, to, pair[0])) for pair in pairs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for pair in pairs:  # if one overwrote the entry of the other in the list, the next run adds it again
        publish(image, store, to, pair[0])
    assert len(attached(to, f"sha256:{manifest.manifest(image).digest}")) == 6


def refusal(call: Callable[[], object]) -> PublishError:
    with pytest.raises(PublishError) as caught:
        call()
    return caught.value


def test_an_image_that_is_not_signed_with_the_key_is_refused(registry, store, image, pair, tmp_path):
    to, public = f"{registry.host}/lab/env", keys.public_key(pair[1])
    digest = push(image, store, to, TAGS, ignore_progress).digest
    assert refusal(lambda: signatures.require_signed(to, digest, public)).code == "unsigned"
    publish(image, store, to, write_pair(tmp_path, "other")[0])
    error = refusal(lambda: signatures.require_signed(to, digest, public))
    assert error.code == "wrong-signature" and list(error.details) == ["3 of 3: it is signed with another key, or was changed"]


def test_a_signature_of_another_image_is_refused(registry, store, image, pair):
    """A person with write access attaches the bundles of a signed image to another image."""
    to, public = f"{registry.host}/lab/env", keys.public_key(pair[1])
    signed, _ = publish(image, store, to, pair[0])
    other = composed.image(image.layers[:1])
    stolen = [Artifact(content=each, kind=signing.BUNDLE, annotations={}) for each in attached(to, signed.digest)]
    moved = push(
        other, store, to, Tags(moving=["evil"]), ignore_progress,
        before_moving=lambda client, subject: referrers.attach(client, subject, stolen) and None,
    )  # fmt: skip
    error = refusal(lambda: signatures.require_signed(to, moved.digest, public))
    assert error.code == "wrong-signature" and list(error.details) == ["3 of 3: it is about another image"]


def test_other_statements_are_no_signature(registry, store, image, pair):
    to, public = f"{registry.host}/lab/env", keys.public_key(pair[1])
    signer = keys.signing_key(pair[0], "")

    def attach(client: Client, subject: Document) -> None:
        content = signing.bundle(Statement(kind=signing.SBOM, predicate={}), f"sha256:{subject.digest}", signer)
        referrers.attach(client, subject, [Artifact(content=content, kind=signing.BUNDLE, annotations={})])

    digest = push(image, store, to, TAGS, ignore_progress, before_moving=attach).digest
    error = refusal(lambda: signatures.require_signed(to, digest, public))
    assert error.code == "wrong-signature" and "is not a signature" in error.details[0]


def test_a_real_registry_without_the_api_keeps_the_list_under_a_tag(store, image, pair, tmp_path):
    with serve_debians(tmp_path) as host:
        to = f"{host}/lab/env"
        pushed, new = publish(image, store, to, pair[0])
        assert (len(new), len(attached(to, pushed.digest))) == (3, 3)
        signatures.require_signed(to, pushed.digest, keys.public_key(pair[1]))
        assert publish(image, store, to, pair[0])[1] == []


@pytest.mark.judges("openssl")
def test_openssl_accepts_what_is_signed(tmp_path, pair):
    (tmp_path / "signature").write_bytes(keys.signing_key(pair[0], "").sign(b"text"))
    argv = ["openssl", "dgst", "-sha256", "-verify", "cosign.pub", "-signature", "signature"]
    done = subprocess.run(argv, cwd=tmp_path, input=b"text", capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.prove
@pytest.mark.judges("cosign")
def test_cosign_accepts_it_and_we_accept_cosigns_signature(store, image, tmp_path):
    """Both read keys that cosign has encrypted.

    cosign reads our signatures, statements and the tree of attachments; envbuild reads a signature of cosign.
    """

    def cosign(*words: str, code: int = 0) -> str:
        env = os.environ | {"COSIGN_PASSWORD": "word", "HOME": str(tmp_path)}
        done = subprocess.run(
            ["cosign", *words], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False
        )
        assert (done.returncode == 0) == (code == 0), done.stderr
        return done.stdout + done.stderr

    for prefix in ("cosign", "other"):
        cosign("generate-key-pair", f"--output-key-prefix={prefix}")
    signer, public = keys.signing_key(tmp_path / "cosign.key", "word"), keys.public_key(tmp_path / "cosign.pub")
    offline = "--insecure-ignore-tlog=true"

    def attach(client: Client, subject: Document) -> None:
        digest = f"sha256:{subject.digest}"
        contents = [signing.bundle(Statement(kind=kind, predicate={"a": 1}), digest, signer) for kind in KINDS]
        made = [Artifact(content=each, kind=signing.BUNDLE, annotations={}) for each in contents]
        referrers.attach(client, subject, made)

    with serve_debians(tmp_path) as host:
        to = f"{host}/lab/env"
        digest = push(image, store, to, TAGS, ignore_progress, before_moving=attach).digest
        assert digest in cosign("verify", "--key=cosign.pub", offline, f"{to}:latest")
        for kind in ("cyclonedx", signing.SMOKE):
            assert "payload" in cosign("verify-attestation", "--key=cosign.pub", offline, f"--type={kind}", f"{to}:latest")
        assert cosign("tree", f"{to}:latest").count("OCI referrer") == 3
        cosign("verify", "--key=other.pub", offline, f"{to}:latest", code=1)
        cosign("verify-attestation", "--key=cosign.pub", offline, "--type=spdx", f"{to}:latest", code=1)
        other = composed.image(image.layers[:1])
        theirs = push(other, store, f"{host}/lab/theirs", TAGS, ignore_progress).digest
        cosign(
            "sign",
            "--key=cosign.key",
            "--use-signing-config=false",
            "--tlog-upload=false",
            "--yes",
            f"{host}/lab/theirs@{theirs}",
        )
        signatures.require_signed(f"{host}/lab/theirs", theirs, public)


def test_a_signature_is_found_in_a_list_that_is_longer_than_a_manifest_may_be(store, image, pair):
    with serve(Registry(knows_referrers=True)) as registry:
        to, public = f"{registry.host}/lab/env", keys.public_key(pair[1])
        pushed, _ = publish(image, store, to, pair[0])
        content = {
            "subject": {"digest": pushed.digest},
            "mediaType": "x",
            "artifactType": "x",
            "annotations": {"a": "x" * 2_000_000},
        }
        for number in range(3):
            text = json.dumps({**content, "number": number}).encode()
            registry.manifests[f"lab/env:sha256:{hashlib.sha256(text).hexdigest()}"] = text
        signatures.require_signed(to, pushed.digest, public)
        for number in range(3, 20):
            text = json.dumps({**content, "number": number}).encode()
            registry.manifests[f"lab/env:sha256:{hashlib.sha256(text).hexdigest()}"] = text
        assert refusal(lambda: signatures.require_signed(to, pushed.digest, public)).code == "too-long"
