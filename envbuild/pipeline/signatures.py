"""Checks that an image in a registry is signed with one of the given keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from envbuild.attest import signing
from envbuild.errors import PublishError

if TYPE_CHECKING:
    from envbuild.attest.keys import PublicKey
    from envbuild.compose.outputs.registry_client import Client

# The largest number of signatures of an image that are read. The number is high, because other people could attach many
# signatures to hide the one that matches. Signatures are short, so reading many of them is cheap.
_MOST = 2000
_LARGEST = 256 << 10  # largest size of a signature in bytes; a signature with certificates has about 10 kB


def require_signed(repository: str, digest: str, *keys: PublicKey) -> None:
    """Raise :class:`PublishError` unless the image ``digest`` (``sha256:…``) in ``repository`` is signed with one of ``keys``.

    The code of the error is ``unsigned`` if the image has no signature. It is ``wrong-signature`` if the image has
    signatures, but none that was made with such a key for this image.
    """
    from envbuild.compose.outputs import referrers

    with referrers.opened(repository, writes=False) as client:
        require_signed_with(client, digest, *keys)


def require_signed_with(client: Client, digest: str, *keys: PublicKey) -> None:
    """Make the check of :func:`require_signed` with a registry client that is already open."""
    from envbuild.compose.outputs import referrers

    repository, objections, first = client.repository, [], (signing.ABOUT, signing.SIGNED)
    for content in referrers.read_with(client, digest, signing.BUNDLE, first, most=_MOST, largest=_LARGEST):
        objection = _objection(content, digest, keys)
        if not objection:
            return
        objections.append(objection)
    unread = len(referrers.digests(client, digest)) - _MOST
    if unread > 0:
        raise PublishError(
            f"No signature of {repository}@{digest} with this key was found, but {unread} of the documents attached to it "
            "could not be read.",
            code="wrong-signature",
            hint="A signature may be among them. The publisher of these images can remove unreadable documents.",
        )
    if not objections:
        raise PublishError(
            f"{repository}@{digest} is not signed.",
            code="unsigned",
            hint="`envbuild publish` signs the images that it pushes. To pull the image without a check, leave out --key.",
        )
    odd = len(referrers.digests(client, digest)) - len(objections)
    if odd > 0:
        objections += ["it could not be read, because it is damaged, too large, or of another type"] * odd
    raise PublishError(
        f"{repository}@{digest} is not signed with this key.",
        code="wrong-signature",
        hint="Ask the publisher of these images for the public key. Do not use the image until its signature matches a "
        "key that you trust.",
        details=[f"{objections.count(each)} of {len(objections)}: {each}" for each in dict.fromkeys(objections)],
    )


def _objection(content: bytes, digest: str, keys: Sequence[PublicKey]) -> str:
    """Return the reason why a document is no signature of the image with one of ``keys``; empty if it is one.

    If a key fits, but the document is not accepted for another reason, that reason is returned.
    """
    reasons: list[tuple[bool, str]] = []
    for key in keys:
        try:
            if signing.opened(content, digest, key).kind == signing.SIGNED:
                return ""
            reasons.append((True, "its statement is not a signature"))
        except signing.UntrustedError as error:
            reasons.append((error.is_signed, str(error)))
    return max(reasons, key=lambda each: each[0])[1]
