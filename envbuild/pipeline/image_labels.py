"""Reads the labels of an image in a registry, and compares them with the environment and lock that the image should have.

A tag proves nothing: whoever may write to the registry can set it on another image, even on one with a valid signature.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from envbuild.errors import PublishError

if TYPE_CHECKING:
    from envbuild.compose.outputs.registry_client import Client
    from envbuild.pipeline.stored_locks import Locked

NAME, LOCK = "org.envbuild.name", "org.envbuild.lock"
_LARGEST = 4 << 20  # largest size, in bytes, of an image's configuration that is read
_PLATFORM = ("linux", "amd64")
_LONGEST = 200  # largest number of characters of a label that are shown


def of_manifest(client: Client, value: Mapping[str, Any]) -> dict[str, str]:
    """Return the labels of the image with the manifest ``value``; empty if its configuration is damaged or has no labels.

    If ``value`` is an index of images, as buildx pushes it, the labels come from its image for Linux on x86-64. Raises
    :class:`PublishError` if the registry does not return the configuration.
    """
    from envbuild.compose.outputs import documents

    if "config" not in value:
        digest = next(_images(value), "")
        document = documents.read(client, digest) if digest else None
        value = documents.parsed(document) if document else {}
    try:
        size, digest = int(value["config"]["size"]), str(value["config"]["digest"]).removeprefix("sha256:")
        if not 0 < size <= _LARGEST or not re.fullmatch("[0-9a-f]{64}", digest):
            return {}
        content = b"".join(client.blob(digest, size))
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError):
        return {}
    return of_config(content) if hashlib.sha256(content).hexdigest() == digest else {}


def differences(labels: Mapping[str, str], locked: Locked) -> list[str]:
    """Return a line for each label that names another environment or lock than ``locked``."""
    wanted = {NAME: locked.lock.environment.name, LOCK: locked.digest}
    return [
        f"the label {label} is {labels.get(label, '')[:_LONGEST]!r} instead of {text!r}"
        for label, text in wanted.items()
        if labels.get(label) != text
    ]


def require(labels: Mapping[str, str], locked: Locked, image: str) -> None:
    """Raise :class:`PublishError` (``image-of-another-environment``) unless the labels of ``image`` name this lock."""
    if differ := differences(labels, locked):
        raise PublishError(
            f"{image} is not an image of {locked.lock.environment.name} with the lock of this checkout.",
            code="image-of-another-environment",
            hint="Somebody else has set its tag, which must never move. Remove the tag from the registry, or use another one.",
            details=differ,
        )


def published(repository: str, tag: str) -> tuple[str, dict[str, str]] | None:
    """Look up ``tag``, and return the digest and the labels of its image; None if the repository has no such tag.

    Raises :class:`PublishError`.
    """
    from envbuild.compose.outputs import documents, manifest, referrers

    with referrers.opened(repository, writes=False) as client:
        image = documents.read(client, tag)
        if image is None or manifest.is_removed(image.content):
            return None
        return f"sha256:{image.digest}", of_manifest(client, documents.parsed(image))


def of_config(content: bytes) -> dict[str, str]:
    """Return the labels in the configuration of an image; empty if the configuration is damaged or has no labels."""
    try:
        told = json.loads(content)["config"]["Labels"]
        return {str(label): str(text) for label, text in told.items()}
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError):
        return {}


def _images(value: Mapping[str, Any]) -> Iterator[str]:
    """Yield the digests of the images for Linux on x86-64 in an index of images.

    An index can also contain attestations, which belong to no platform.
    """
    entries = value.get("manifests")
    for each in entries if isinstance(entries, list) else ():
        platform = each.get("platform") if isinstance(each, dict) else None
        if isinstance(platform, dict) and (platform.get("os"), platform.get("architecture")) == _PLATFORM:
            digest = str(each.get("digest"))
            if re.fullmatch("sha256:[0-9a-f]{64}", digest):
                yield digest
