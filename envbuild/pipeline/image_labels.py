"""Reads the labels of an image in a registry. They say from which environment and lock the image was made."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from envbuild.compose.outputs.registry_client import Client

NAME, LOCK = "org.envbuild.name", "org.envbuild.lock"
_LARGEST = 4 << 20  # largest size, in bytes, of an image's configuration that is read
_PLATFORM = ("linux", "amd64")


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
