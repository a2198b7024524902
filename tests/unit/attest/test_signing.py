"""Statements in signed bundles: their form, and which statements are refused."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from envbuild.attest import keys, signing
from envbuild.attest.signing import Statement, UntrustedError
from envbuild.errors import InvalidInputError

DIGEST = "sha256:" + "a" * 64
STATED = Statement(kind=signing.SMOKE, predicate={"status": "pass", "é": 1})


def new_key(folder: Path) -> keys.SigningKey:
    path = folder / "a.key"
    made = ec.generate_private_key(ec.SECP256R1())
    path.write_bytes(
        made.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return keys.signing_key(path, "")


@pytest.fixture
def key(tmp_path: Path) -> keys.SigningKey:
    return new_key(tmp_path)


def signed(key: keys.SigningKey, payload: Any, kind: str = "application/vnd.in-toto+json") -> bytes:
    """A bundle with any payload and a valid signature."""
    body = json.dumps(payload).encode()
    signature = key.sign(b"DSSEv1 %d %s %d %s" % (len(kind), kind.encode(), len(body), body))
    envelope = {"payload": base64.b64encode(body).decode(), "payloadType": kind}
    return json.dumps({"dsseEnvelope": envelope | {"signatures": [{"sig": base64.b64encode(signature).decode()}]}}).encode()


def test_a_bundle_is_an_in_toto_statement_in_an_envelope(key):
    content = signing.bundle(STATED, DIGEST, key)
    assert content == signing.bundle(STATED, DIGEST, key), "the same statement has the same bytes"
    told = json.loads(content)
    assert told["mediaType"] == signing.BUNDLE and told["verificationMaterial"]["publicKey"]["hint"] == key.public.hint
    payload = json.loads(base64.b64decode(told["dsseEnvelope"]["payload"]))
    assert payload["_type"] == "https://in-toto.io/Statement/v1"
    assert (payload["subject"], payload["predicateType"]) == ([{"digest": {"sha256": "a" * 64}}], signing.SMOKE)
    assert signing.opened(content, DIGEST, key.public) == STATED


def test_a_statement_about_another_image_is_refused(key):
    with pytest.raises(UntrustedError, match="another image"):
        signing.opened(signing.bundle(STATED, DIGEST, key), "sha256:" + "b" * 64, key.public)


def test_a_statement_by_somebody_else_is_refused(key, tmp_path):
    with pytest.raises(UntrustedError, match="another key"):
        signing.opened(signing.bundle(STATED, DIGEST, key), DIGEST, new_key(tmp_path).public)


@pytest.mark.parametrize("part", ["payload", "payloadType"])
def test_a_changed_statement_is_refused(key, part):
    told = json.loads(signing.bundle(STATED, DIGEST, key))
    forged = json.loads(base64.b64decode(told["dsseEnvelope"]["payload"])) | {"predicate": {"status": "better"}}
    changed = {"payload": base64.b64encode(json.dumps(forged).encode()).decode(), "payloadType": "application/json"}
    told["dsseEnvelope"][part] = changed[part]
    with pytest.raises(UntrustedError, match="changed"):
        signing.opened(json.dumps(told).encode(), DIGEST, key.public)


ODD = b'{"dsseEnvelope": {"payload": "", "payloadType": "\\ud800", "signatures": []}}'


@pytest.mark.parametrize(
    "content", [ODD, b"", b"[]", b"{}", b'{"dsseEnvelope": 1}', b'{"dsseEnvelope": {"payload": "!"}}', b"[" * 100000, b"\xff"]
)
def test_what_is_no_bundle_is_refused(key, content):
    with pytest.raises(UntrustedError, match="not a bundle"):
        signing.opened(content, DIGEST, key.public)


@pytest.mark.parametrize(
    "payload",
    [
        1,
        {},
        {"_type": "other", "subject": [{"digest": {"sha256": "a" * 64}}], "predicateType": "x", "predicate": {}},
        {"_type": signing.STATEMENT, "subject": 1, "predicateType": "x", "predicate": {}},
        {"_type": signing.STATEMENT, "subject": [], "predicateType": "x", "predicate": 1},
    ],
)
def test_what_is_signed_and_no_statement_is_refused(key, payload):
    with pytest.raises(UntrustedError, match="not an in-toto statement"):
        signing.opened(signed(key, payload), DIGEST, key.public)


def test_claims_of_strangers_are_single_short_lines():
    payload = base64.b64encode(json.dumps({"predicateType": "x\n  accepted\x1b[2J" + "y" * 1000}).encode()).decode()
    told = {"verificationMaterial": {"publicKey": {"hint": "a\nb"}}, "dsseEnvelope": {"payload": payload, "signatures": [1]}}
    signer, kind = signing.claims(json.dumps(told).encode())
    assert signer == "a b" and kind.startswith("x   accepted [2J") and len(kind) == 200


def test_text_that_is_no_unicode_is_refused_before_it_is_signed(key):
    with pytest.raises(InvalidInputError) as caught:
        signing.bundle(signing.smoke("i", "l", "pass", {"host": "\ud800"}), DIGEST, key)
    assert caught.value.code == "report"


@pytest.mark.parametrize(
    ("report", "used", "device"),
    [
        ({}, True, None),
        ({"mode": {"gpu_image": False, "device": "cpu"}}, True, "cpu"),
        ({"mode": {"gpu_image": True, "device": "cuda"}}, True, "cuda"),
        ({"mode": {"gpu_image": True, "device": "cpu"}}, False, "cpu"),
        ({"mode": {"gpu_image": True, "device": None}}, False, None),
        ({"mode": {"gpu_image": True, "device": "cuda"}, "parts": [{"report": {"mode": {"gpu_image": True}}}]}, False, "cuda"),
        ({"mode": {"gpu_image": True, "device": "cuda"}, "parts": [{"report": None}, 1]}, True, "cuda"),
    ],
)
def test_a_gpu_image_is_proved_by_its_gpus_only(report, used, device):
    assert signing.used_its_devices(report) is used
    assert signing.smoke("i", "l", "pass", report).predicate["device"] == device


def test_a_statement_of_another_type_of_payload_is_refused(key):
    told = {
        "_type": signing.STATEMENT,
        "subject": [{"digest": {"sha256": "a" * 64}}],
        "predicateType": "x",
        "predicate": {},
    }
    with pytest.raises(UntrustedError, match="not an in-toto statement"):
        signing.opened(signed(key, told, "text/plain"), DIGEST, key.public)
    assert signing.opened(signed(key, told), DIGEST, key.public).kind == "x"


def test_a_statement_that_cosign_attest_made_is_read(key):
    """It has the format of an earlier version, with the same fields."""
    told = {
        "_type": "https://in-toto.io/Statement/v0.1",
        "subject": [{"name": "registry/lab/dl", "digest": {"sha256": "a" * 64}}],
        "predicateType": signing.SBOM,
        "predicate": {"components": []},
    }
    assert signing.opened(signed(key, told), DIGEST, key.public) == signing.Statement(
        kind=signing.SBOM, predicate={"components": []}
    )
