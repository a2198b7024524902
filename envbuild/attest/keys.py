"""Signing keys and public keys: ECDSA on P-256, as `cosign generate-key-pair` and `openssl` write them.

cosign's encrypted keys have the format of https://github.com/sigstore/cosign/blob/v3.1.1/pkg/cosign/keys.go.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envbuild import files
from envbuild.errors import InvalidInputError, UsageError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey

_COSIGN = ("ENCRYPTED SIGSTORE PRIVATE KEY", "ENCRYPTED COSIGN PRIVATE KEY")
_PUBLIC = b"-----BEGIN PUBLIC KEY-----"
_MEMORY = 1 << 28  # limit in bytes for deriving a key from a password; cosign's parameters use a quarter of it


@dataclass(frozen=True, kw_only=True, slots=True)
class PublicKey:
    """A public key. ``hint`` identifies the key in a bundle."""

    hint: str
    _key: EllipticCurvePublicKey = field(repr=False)

    def accepts(self, signature: bytes, signed: bytes) -> bool:
        """Whether ``signature`` is a signature of the bytes ``signed`` with the private key that belongs to this key."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec

        try:
            self._key.verify(signature, signed, ec.ECDSA(hashes.SHA256()))
        except InvalidSignature:
            return False
        return True


@dataclass(frozen=True, kw_only=True, slots=True)
class SigningKey:
    """A private key. Its content is never shown, for example in error messages."""

    public: PublicKey
    _key: EllipticCurvePrivateKey = field(repr=False)

    def sign(self, content: bytes) -> bytes:
        """Return the signature of ``content``. The same content always gets the same signature (RFC 6979)."""
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec

        return self._key.sign(content, ec.ECDSA(hashes.SHA256(), deterministic_signing=True))


def signing_key(path: Path, password: str) -> SigningKey:
    """Return the private key in ``path``. The file is either a key that cosign encrypted, or a PEM file with PKCS #8 or SEC 1,
    which may be encrypted.

    Raises :class:`InvalidInputError` (``signing-key``), and :class:`UsageError` (``no-cryptography``) if the library for
    signing is not installed.
    """
    _require_library()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    content = _read(path, "signing-key")
    if _PUBLIC in content and b"PRIVATE KEY-----" not in content:
        raise InvalidInputError(
            f"{path} contains a public key, but signing needs the private key.",
            code="signing-key",
            hint="Name the file of the private key, such as cosign.key. The public key only checks signatures.",
        )
    try:
        if any(f"-----BEGIN {kind}-----".encode() in content for kind in _COSIGN):
            key = serialization.load_der_private_key(_decrypted(content, password), password=None)
        else:
            secret = password.encode() if b"ENCRYPTED" in content else None
            key = serialization.load_pem_private_key(content, password=secret)
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError, UnsupportedAlgorithm) as error:
        raise InvalidInputError(
            f"The signing key in {path} cannot be read: {_why(error)}.",
            code="signing-key",
            hint="Set COSIGN_PASSWORD to the password of an encrypted key. For a new key, run: cosign generate-key-pair",
        ) from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise _other_kind(path, "signing-key")
    return SigningKey(public=_public(key.public_key()), _key=key)


def public_key(path: Path) -> PublicKey:
    """Return the public key in the PEM file ``path``.

    Raises :class:`InvalidInputError` (``public-key``), and :class:`UsageError` (``no-cryptography``) if the library for
    signing is not installed.
    """
    _require_library()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    content = _read(path, "public-key")
    if b"PRIVATE KEY-----" in content and _PUBLIC not in content:
        raise InvalidInputError(
            f"{path} contains a private key, but signatures are checked with the public key.",
            code="public-key",
            hint="Name the file of the public key, such as cosign.pub. Give the private key to nobody.",
        )
    try:
        key = serialization.load_pem_public_key(content)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise InvalidInputError(
            f"{path} contains no public key in the format PEM.",
            code="public-key",
            hint="Name a public key, such as cosign.pub.",
        ) from error
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise _other_kind(path, "public-key")
    return _public(key)


def public_text(path: Path) -> str:
    """Return the public key in ``path`` as PEM, without anything else that the file contains.

    Raises the errors of :func:`public_key`.
    """
    from cryptography.hazmat.primitives import serialization

    key = public_key(path)._key
    pem = key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return pem.decode()


def _public(key: EllipticCurvePublicKey) -> PublicKey:
    from cryptography.hazmat.primitives import serialization

    der = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return PublicKey(hint=base64.b64encode(hashlib.sha256(der).digest()).decode(), _key=key)


def _decrypted(content: bytes, password: str) -> bytes:
    """Return the key (PKCS #8, DER) that cosign encrypted. Raises ValueError for a wrong password."""
    from nacl.exceptions import CryptoError
    from nacl.secret import SecretBox

    body = b"".join(line for line in content.splitlines() if not line.startswith(b"-----"))
    told: dict[str, Any] = json.loads(base64.b64decode(body))
    kdf, cipher = told["kdf"], told["cipher"]
    if (kdf["name"], cipher["name"]) != ("scrypt", "nacl/secretbox"):
        raise ValueError(f"it is encrypted with {kdf['name']} and {cipher['name']}, not as cosign does")
    cost = {name: int(kdf["params"][letter]) for name, letter in (("n", "N"), ("r", "r"), ("p", "p"))}
    secret = hashlib.scrypt(password.encode(), salt=base64.b64decode(kdf["salt"]), **cost, maxmem=_MEMORY, dklen=32)
    try:
        return SecretBox(secret).decrypt(base64.b64decode(told["ciphertext"]), base64.b64decode(cipher["nonce"]))
    except CryptoError as error:
        raise ValueError("the password is wrong" if password else "it needs a password") from error


def _read(path: Path, code: str) -> bytes:
    try:
        return files.read_bytes(path)
    except OSError as error:
        raise InvalidInputError(
            f"The key {path} cannot be read: {error.strerror or error}.",
            code=code,
            hint="Name an existing key file that you may read.",
        ) from error


def _why(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__


def _other_kind(path: Path, code: str) -> InvalidInputError:
    return InvalidInputError(
        f"The key in {path} is not an ECDSA P-256 key.",
        code=code,
        hint="Make such a key with `cosign generate-key-pair` or `openssl ecparam -name prime256v1 -genkey -noout`.",
    )


def _require_library() -> None:
    if any(importlib.util.find_spec(name) is None for name in ("cryptography", "nacl")):
        raise UsageError(
            "The libraries that sign and check signatures are not installed.",
            code="no-cryptography",
            hint="Install them: pip install 'envbuild[sign]', or in a checkout: .venv/bin/pip install -e '.[sign]'.",
        )
