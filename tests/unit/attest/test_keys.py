"""Keys in the formats of cosign and openssl, and keys that are refused with a reason."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
from pathlib import Path

import pytest
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from nacl.secret import SecretBox

from envbuild.attest import keys
from envbuild.errors import InvalidInputError, UsageError

PLAIN = serialization.NoEncryption()
DER, PEM = serialization.Encoding.DER, serialization.Encoding.PEM
PKCS8, SEC1 = serialization.PrivateFormat.PKCS8, serialization.PrivateFormat.TraditionalOpenSSL


@pytest.fixture
def key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def as_cosign_writes(key: ec.EllipticCurvePrivateKey, password: str, **changed: object) -> bytes:
    """The key in the format of `cosign generate-key-pair`, with a low cost of the password hash."""
    salt, cost = b"s" * 32, {"N": 1024, "r": 8, "p": 1}
    secret = hashlib.scrypt(password.encode(), salt=salt, n=1024, r=8, p=1, dklen=32)
    box = SecretBox(secret).encrypt(key.private_bytes(DER, PKCS8, PLAIN), b"n" * 24)
    told = {
        "kdf": {"name": "scrypt", "params": cost, "salt": base64.b64encode(salt).decode()},
        "cipher": {"name": "nacl/secretbox", "nonce": base64.b64encode(b"n" * 24).decode()},
        "ciphertext": base64.b64encode(box.ciphertext).decode(),
        **changed,
    }
    body = base64.encodebytes(json.dumps(told).encode()).decode()
    return f"-----BEGIN ENCRYPTED SIGSTORE PRIVATE KEY-----\n{body}-----END ENCRYPTED SIGSTORE PRIVATE KEY-----\n".encode()


def written(folder: Path, content: bytes, name: str = "a.key") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def public_of(folder: Path, key: ec.EllipticCurvePrivateKey) -> keys.PublicKey:
    told = key.public_key().public_bytes(PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return keys.public_key(written(folder, told, "a.pub"))


@pytest.mark.parametrize("form", ["cosign", "pkcs8", "sec1", "encrypted"])
def test_each_form_of_a_key_signs_what_its_public_key_accepts(tmp_path, key, form):
    secret = serialization.BestAvailableEncryption(b"word")
    content = {
        "cosign": as_cosign_writes(key, "word"),
        "pkcs8": key.private_bytes(PEM, PKCS8, PLAIN),
        "sec1": key.private_bytes(PEM, SEC1, PLAIN),
        "encrypted": key.private_bytes(PEM, PKCS8, secret),
    }[form]
    found, public = keys.signing_key(written(tmp_path, content), "word"), public_of(tmp_path, key)
    signature = found.sign(b"text")
    assert public.accepts(signature, b"text") and found.public.hint == public.hint
    assert found.sign(b"text") == signature, "the same content has the same signature"
    assert not public.accepts(signature, b"texts") and not public.accepts(b"", b"text")
    other = public_of(tmp_path, ec.generate_private_key(ec.SECP256R1()))
    assert not other.accepts(signature, b"text") and other.hint != public.hint
    assert "word" not in repr(found) and "_key" not in repr(found)


def test_a_public_key_in_place_of_the_private_one_is_told_and_the_other_way_round(tmp_path, key):
    told = key.public_key().public_bytes(PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    with pytest.raises(InvalidInputError) as wrong:
        keys.signing_key(written(tmp_path, told, "cosign.pub"), "word")
    assert wrong.value.code == "signing-key" and "contains a public key" in wrong.value.message
    assert "cosign.key" in wrong.value.hint and "PASSWORD" not in wrong.value.hint and "generate" not in wrong.value.hint
    for content in (as_cosign_writes(key, "word"), key.private_bytes(PEM, PKCS8, PLAIN), key.private_bytes(PEM, SEC1, PLAIN)):
        with pytest.raises(InvalidInputError) as wrong:
            keys.public_key(written(tmp_path, content))
        assert wrong.value.code == "public-key" and "contains a private key" in wrong.value.message
        assert "cosign.pub" in wrong.value.hint


@pytest.mark.parametrize("password", ["", "another"])
@pytest.mark.parametrize("form", ["cosign", "openssl"])
def test_a_wrong_password_is_told(tmp_path, key, form, password):
    secret = serialization.BestAvailableEncryption(b"word")
    content = as_cosign_writes(key, "word") if form == "cosign" else key.private_bytes(PEM, PKCS8, secret)
    with pytest.raises(InvalidInputError, match="assword") as caught:
        keys.signing_key(written(tmp_path, content), password)
    assert caught.value.code == "signing-key" and "COSIGN_PASSWORD" in caught.value.hint


@pytest.mark.parametrize(
    "changed",
    [
        {"kdf": {"name": "scrypt", "params": {"N": 1 << 40, "r": 8, "p": 1}, "salt": ""}},
        {"kdf": {"name": "other", "params": {}, "salt": ""}},
        {"kdf": None},
        {"kdf": {"name": "scrypt", "params": {"N": float("inf"), "r": 8, "p": 1}, "salt": ""}},
        {"kdf": {"name": "scrypt", "params": {"N": 1 << 70, "r": 8, "p": 1}, "salt": ""}},
        {"ciphertext": "!"},
    ],
    ids=["all the memory", "another way", "nothing", "without end", "more than a number", "no base64"],
)
def test_a_damaged_key_is_refused(tmp_path, key, changed):
    with pytest.raises(InvalidInputError) as caught:
        keys.signing_key(written(tmp_path, as_cosign_writes(key, "", **changed)), "")
    assert caught.value.code == "signing-key"


@pytest.mark.parametrize(
    "content", [b"", b"no key", b"\xff\xfe", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"]
)
def test_what_is_no_key_is_refused(tmp_path, content):
    for load, code in ((lambda path: keys.signing_key(path, ""), "signing-key"), (keys.public_key, "public-key")):
        with pytest.raises(InvalidInputError) as caught:
            load(written(tmp_path, content))
        assert caught.value.code == code
        with pytest.raises(InvalidInputError) as caught:
            load(tmp_path / "nowhere")
        assert caught.value.code == code


def test_a_key_that_is_nested_without_end_is_refused(tmp_path):
    body = base64.encodebytes(b"[" * 100_000).decode()
    text = f"-----BEGIN ENCRYPTED SIGSTORE PRIVATE KEY-----\n{body}-----END ENCRYPTED SIGSTORE PRIVATE KEY-----\n"
    with pytest.raises(InvalidInputError) as caught:
        keys.signing_key(written(tmp_path, text.encode()), "")
    assert caught.value.code == "signing-key"


@pytest.mark.parametrize("kind", ["public", "private"])
def test_a_key_of_an_unknown_kind_is_refused(tmp_path, key, monkeypatch, kind):
    """For example, a key for a curve that the library does not know."""

    def load(*_words: object, **_named: object) -> None:
        raise UnsupportedAlgorithm("this curve is not known")

    monkeypatch.setattr(serialization, f"load_pem_{kind}_key", load)
    path = written(tmp_path, b"-----BEGIN KEY-----\n")
    with pytest.raises(InvalidInputError) as caught:
        keys.signing_key(path, "") if kind == "private" else keys.public_key(path)
    assert caught.value.code == ("signing-key" if kind == "private" else "public-key")


def test_other_kinds_of_keys_are_refused(tmp_path):
    for other in (ec.generate_private_key(ec.SECP384R1()), rsa.generate_private_key(65537, 2048)):
        with pytest.raises(InvalidInputError, match="P-256"):
            keys.signing_key(written(tmp_path, other.private_bytes(PEM, PKCS8, PLAIN)), "")
        public = other.public_key().public_bytes(PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        with pytest.raises(InvalidInputError, match="P-256"):
            keys.public_key(written(tmp_path, public))


def test_without_the_libraries_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(UsageError) as caught:
        keys.public_key(tmp_path / "a.pub")
    assert caught.value.code == "no-cryptography" and "envbuild[sign]" in caught.value.hint


def test_a_missing_key_file_is_told_with_a_hint(tmp_path: Path) -> None:
    for read in (keys.public_key, lambda path: keys.signing_key(path, "")):
        with pytest.raises(InvalidInputError, match="No such file") as told:
            read(tmp_path / "none.pub")
        assert told.value.hint == "Name an existing key file that you may read."
