"""Asks a registry which manifest has a tag, and whether the registry has a blob."""

from __future__ import annotations

import hashlib
import re

from envbuild.compose.outputs import manifest
from envbuild.compose.outputs.registry_client import Client

KINDS = ", ".join((manifest.MANIFEST, manifest.INDEX, *manifest.DOCKER_KINDS))


def of_tag(client: Client, tag: str) -> str:
    """The digest (``sha256:…``) of the manifest with ``tag``; empty if there is none. If ``tag`` is itself a digest, and the
    registry has this manifest, the digest is returned unchanged.

    If the registry does not report the digest of a tag, the digest is computed from the manifest. Raises :class:`PublishError`.
    """
    url, headers = client.url(f"manifests/{tag}"), {"Accept": KINDS}
    answer = client.ask("HEAD", url, (200, 404), headers=headers)
    if answer.status_code == 404 or tag.startswith("sha256:"):
        return tag if answer.status_code == 200 else ""
    told = answer.headers.get("Docker-Content-Digest", "")
    if re.fullmatch("sha256:[0-9a-f]{64}", told):
        return told
    answer = client.ask("GET", url, (200, 404), headers=headers)
    return f"sha256:{hashlib.sha256(answer.content).hexdigest()}" if answer.status_code == 200 else ""


def has_blob(client: Client, digest: str) -> bool:
    """Whether the registry has the blob with this sha256 (hex). Raises :class:`PublishError`."""
    return client.ask("HEAD", client.url(f"blobs/sha256:{digest}"), (200, 404)).status_code == 200
