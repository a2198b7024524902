"""Takes tags away from images.

First the tag moves to a placeholder: a document without an image, which differs for each tag. Then the registry is asked to
delete the placeholder, and with it the tag. The tag itself is never deleted while it names an image, because some registries
delete the image together with its tag, and others can delete no tags.
"""

from __future__ import annotations

from collections.abc import Sequence

from envbuild.compose.outputs import digests, documents, manifest, referrers
from envbuild.compose.outputs.manifest import Document
from envbuild.compose.outputs.registry_client import Client
from envbuild.errors import PublishError

_TAG = "invalid.envbuild.removed-tag"
_CANNOT = ("no-deletion", "denied", "registry-refused")


def cover(client: Client, tag: str) -> None:
    """Move ``tag`` to its placeholder, so that it names no image any more. Raises :class:`PublishError`."""
    referrers.send_blob(client, referrers.EMPTY)
    documents.write(client, _placeholder(tag), tag)


def is_placeholder(tag: str, digest: str) -> bool:
    """Whether ``digest`` (``sha256:…``) is that of the placeholder of ``tag``."""
    return digest == f"sha256:{_placeholder(tag).digest}"


def delete(repository: str, tags: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Delete those of ``tags`` that name their placeholders. Return the tags that the registry did not delete, with the reason.

    This uses a client of its own, because the right to delete is needed only here, and the user may not have it.
    """
    left = []
    with referrers.opened(repository, writes=True, deletes=True) as client:
        for tag in tags:
            if why := _delete(client, tag):
                left.append((tag, f"it names an empty document, and no image: the registry did not delete it ({why})"))
    return tuple(left)


def _delete(client: Client, tag: str) -> str:
    digest = f"sha256:{_placeholder(tag).digest}"
    try:
        if digests.of_tag(client, tag) != digest:
            return ""
        documents.delete(client, digest)
        return "" if digests.of_tag(client, tag) != digest else "it says that it did"
    except PublishError as error:
        if error.code not in _CANNOT:
            raise
        return error.message


def _placeholder(tag: str) -> Document:
    empty = referrers.empty()
    return manifest.document(
        {
            "schemaVersion": 2,
            "mediaType": manifest.MANIFEST,
            "artifactType": manifest.REMOVED,
            "config": empty,
            "layers": [empty],
            "annotations": {_TAG: tag},
        },
        manifest.MANIFEST,
    )
