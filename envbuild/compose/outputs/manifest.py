"""The OCI documents that describe a composed image: its descriptors and its manifest."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from envbuild.compose import estargz
from envbuild.compose.model import ComposedImage, Layer

CONFIG = "application/vnd.oci.image.config.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
DOCKER_KINDS = (
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
REMOVED = "application/vnd.envbuild.removed-tag.v1"  # the type of a document that replaces the image of a removed tag
LAYOUT = b'{"imageLayoutVersion":"1.0.0"}'
NAME = "org.opencontainers.image.ref.name"


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    """A JSON document that is stored as a blob. ``digest`` is its sha256 (hex)."""

    content: bytes
    media_type: str
    digest: str

    def descriptor(self) -> dict[str, Any]:
        """The descriptor by which manifests and indexes refer to this document."""
        return descriptor(self.media_type, self.digest, len(self.content))


def is_removed(content: bytes) -> bool:
    """Whether a manifest replaces the image of a tag that was removed, in a registry that cannot delete tags."""
    try:
        return bool(json.loads(content)["artifactType"] == REMOVED)
    except (ValueError, LookupError, TypeError, RecursionError):
        return False


def descriptor(media_type: str, digest: str, size: int) -> dict[str, Any]:
    """The descriptor of a blob."""
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": size}


def config(image: ComposedImage) -> Document:
    """The image's configuration. In Docker's own image store, its digest is the image id."""
    return Document(content=image.config, media_type=CONFIG, digest=hashlib.sha256(image.config).hexdigest())


def manifest(image: ComposedImage) -> Document:
    """The manifest. The same image gives the same bytes everywhere, so the manifest's digest identifies the image."""
    layers = [_layer(layer) for layer in image.layers]
    return document(
        {"schemaVersion": 2, "mediaType": MANIFEST, "config": config(image).descriptor(), "layers": layers}, MANIFEST
    )


def _layer(layer: Layer) -> dict[str, Any]:
    """The manifest's entry for a layer. It includes the digest of the layer's list of files, so that a runtime can check the
    list."""
    told = descriptor(layer.media_type, layer.digest, layer.size)
    return told | ({"annotations": {estargz.ANNOTATION: f"sha256:{layer.files}"}} if layer.files else {})


def index(manifests: list[dict[str, Any]]) -> Document:
    """An index of manifests, such as the content of ``index.json``."""
    return document({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests}, INDEX)


def document(value: dict[str, Any], media_type: str) -> Document:
    """Encode ``value`` as a JSON document. The same value gives the same bytes everywhere."""
    content = json.dumps(value, separators=(",", ":")).encode()
    return Document(content=content, media_type=media_type, digest=hashlib.sha256(content).hexdigest())
