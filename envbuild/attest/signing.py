"""Signs in-toto statements about an image in DSSE envelopes, and puts the envelopes into Sigstore bundles. Pure.

The three formats are described in https://github.com/in-toto/attestation/blob/v1.1.0/spec/v1/statement.md,
https://github.com/secure-systems-lab/dsse/blob/v1.0.0/protocol.md and
https://github.com/sigstore/cosign/blob/v3.1.1/specs/BUNDLE_SPEC.md.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from envbuild.attest.keys import PublicKey, SigningKey
from envbuild.errors import InvalidInputError

BUNDLE = "application/vnd.dev.sigstore.bundle.v0.3+json"
STATEMENT = "https://in-toto.io/Statement/v1"
_FORMATS = (STATEMENT, "https://in-toto.io/Statement/v0.1")  # `cosign attest` writes v0.1, which has the same fields
_PAYLOAD = "application/vnd.in-toto+json"
_LONGEST = 200  # maximum characters of a claim

# The kinds of statements. The first is the statement that `cosign sign` makes: it says only that the owner of the key signed
# the image.
SIGNED = "https://sigstore.dev/cosign/sign/v1"
SBOM = "https://cyclonedx.org/bom"
PROVENANCE = "https://slsa.dev/provenance/v1"
OPENVEX = "https://openvex.dev/ns"
AUDIT = "https://envbuild.invalid/attestations/audit/v1"
LICENCES = "https://envbuild.invalid/attestations/licences/v1"
VERIFIED = "https://envbuild.invalid/attestations/verify/v1"
ABOUT = "dev.sigstore.bundle.predicateType"  # the annotation that says which kind of statement is in a bundle
SMOKE = "https://envbuild.invalid/attestations/smoke/v1"
REQUIRED = frozenset({SIGNED, SBOM, VERIFIED, SMOKE})  # every published image has them; some have others, too


@dataclass(frozen=True, kw_only=True, slots=True)
class Statement:
    """A statement about an image; ``kind`` is the type of the predicate, a URI."""

    kind: str
    predicate: Mapping[str, Any]


class UntrustedError(Exception):
    """Says why a bundle is not accepted: the bundle is damaged, not signed with the expected key, or about another image.

    ``is_signed`` is true if the bundle is signed with the expected key. The error is then the fault of the key's owner.
    """

    def __init__(self, why: str, *, is_signed: bool = False) -> None:
        super().__init__(why)
        self.is_signed = is_signed


def smoke(image: str, lock: str, status: str, report: Mapping[str, Any]) -> Statement:
    """Return the statement about a smoke test: its verdict ``status``, and the whole report.

    ``image`` is the id of the tested image in the engine. ``lock`` is the hash of the lock from which it was built.
    """
    used = device(report)
    return Statement(kind=SMOKE, predicate={"image": image, "lock": lock, "status": status, "device": used, "report": report})


def device(report: Mapping[str, Any]) -> str | None:
    """The kind of device that a smoke test used, ``cpu`` or ``cuda``; None if the report does not say so."""
    used = _mapping(report.get("mode")).get("device")
    return used if isinstance(used, str) else None


def used_its_devices(report: Mapping[str, Any]) -> bool:
    """Whether every framework that is built for GPUs was tested on GPUs."""
    parts = report.get("parts")
    reports = [report, *(_mapping(_mapping(each).get("report")) for each in (parts if isinstance(parts, list) else ()))]
    modes = [_mapping(each.get("mode")) for each in reports]
    return all(mode.get("device") == "cuda" for mode in modes if mode.get("gpu_image"))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def bundle(statement: Statement, digest: str, key: SigningKey) -> bytes:
    """Return a signed bundle with ``statement`` about the image whose manifest has the ``digest`` (``sha256:…``).

    The same statement and key give the same bytes. Raises :class:`InvalidInputError` (``report``) for text that is not valid
    Unicode.
    """
    algorithm, _, value = digest.partition(":")
    told = {
        "_type": STATEMENT,
        "subject": [{"digest": {algorithm: value}}],
        "predicateType": statement.kind,
        "predicate": statement.predicate,
    }
    try:
        payload = json.dumps(told, separators=(",", ":"), sort_keys=True, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise InvalidInputError(
            f"The statement cannot be written as UTF-8, because it contains an unpaired surrogate ({error.reason}).",
            code="report",
            hint="Test the image again: the report may be damaged.",
        ) from error
    envelope = {
        "payload": base64.b64encode(payload).decode(),
        "payloadType": _PAYLOAD,
        "signatures": [{"sig": base64.b64encode(key.sign(_to_sign(_PAYLOAD, payload))).decode()}],
    }
    material = {"publicKey": {"hint": key.public.hint}}
    return json.dumps(
        {"mediaType": BUNDLE, "verificationMaterial": material, "dsseEnvelope": envelope}, separators=(",", ":")
    ).encode()


def opened(content: bytes, digest: str, key: PublicKey) -> Statement:
    """Return the statement in a bundle.

    Raises :class:`UntrustedError` if the bundle is damaged, is not signed with ``key``, or is not about the image whose
    manifest has the ``digest``.
    """
    try:
        envelope = json.loads(content)["dsseEnvelope"]
        payload, kind = base64.b64decode(envelope["payload"], validate=True), str(envelope["payloadType"])
        signatures = [base64.b64decode(each["sig"], validate=True) for each in envelope["signatures"]]
        to_sign = _to_sign(kind, payload)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise UntrustedError("it is not a bundle with a DSSE envelope") from error
    if not signatures:
        raise UntrustedError("it is not signed")
    if not any(key.accepts(each, to_sign) for each in signatures):
        raise UntrustedError("it is signed with another key, or was changed")
    try:
        told = json.loads(payload)
        subjects = [each["digest"] for each in told["subject"]]
        statement = Statement(kind=str(told["predicateType"]), predicate=dict(told["predicate"]))
        is_statement = kind == _PAYLOAD and told["_type"] in _FORMATS
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise UntrustedError("its signed content is not an in-toto statement", is_signed=True) from error
    algorithm, _, value = digest.partition(":")
    if not is_statement:
        raise UntrustedError("its signed content is not an in-toto statement", is_signed=True)
    if {algorithm: value} not in subjects:
        raise UntrustedError("it is about another image", is_signed=True)
    return statement


def claims(content: bytes) -> tuple[str, str]:
    """Return the key hint and the statement type that a bundle names. The signature is not checked.

    The key hint is empty if the bundle has no signature. Both texts are empty if the bundle cannot be read. Both texts are cut
    to one line of at most 200 characters, because anybody may have written them.
    """
    try:
        told = json.loads(content)
        signer = str(told["verificationMaterial"]["publicKey"]["hint"]) if told["dsseEnvelope"]["signatures"] else ""
        return _line(signer), _line(str(json.loads(base64.b64decode(told["dsseEnvelope"]["payload"]))["predicateType"]))
    except (ValueError, LookupError, TypeError, RecursionError):
        return "", ""


def _line(text: str) -> str:
    return "".join(each if each.isprintable() else " " for each in text[:_LONGEST])


def _to_sign(kind: str, payload: bytes) -> bytes:
    """The bytes that a DSSE signature signs."""
    return b"DSSEv1 %d %s %d %s" % (len(kind.encode()), kind.encode(), len(payload), payload)
