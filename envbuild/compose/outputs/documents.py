"""Reads, writes and deletes the manifests of one repository, and lists its tags."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

from envbuild.compose.outputs import digests, manifest, pull
from envbuild.compose.outputs.manifest import Document
from envbuild.compose.outputs.registry_client import Client
from envbuild.compose.outputs.registry_errors import is_web_page, no_registry
from envbuild.errors import PublishError

_PAGE = 1000  # tags in one request
_PAGES = 1000  # a limit, because a registry could name further pages without end


def has_repository(client: Client) -> bool:
    """Whether the registry has the repository. Raises :class:`PublishError` (``unknown-format``) if the host is not a
    registry."""
    url = client.url("tags/list?n=1")
    answer = client.ask("GET", url, (200, 404))
    if answer.status_code == 404:
        # A web server that is not a registry also answers 404 with a web page. But some registries send errors as web pages,
        # too.
        if is_web_page(answer) and client.ask("GET", client.absolute(url, "/v2/"), (200, 401, 404)).status_code == 404:
            raise no_registry(client.repository, url)
        return False
    try:
        json.loads(answer.content)["tags"]
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise no_registry(client.repository) from error
    return True


def require_repository(client: Client) -> None:
    """Raise :class:`PublishError` (``not-in-registry``) if the registry does not have the repository."""
    if not has_repository(client):
        raise PublishError(
            f"{client.repository.host} has no repository {client.repository.name}.",
            code="not-in-registry",
            hint="Check the name. `envbuild publish` creates the repository when it publishes the first image.",
        )


def read(client: Client, reference: str) -> Document | None:
    """Read the manifest or index with the tag or digest ``reference``; None if the repository has none.

    Raises :class:`PublishError` (``digest-differs``) if the digest of the content differs from the requested digest.
    """
    answer = client.ask("GET", client.url(f"manifests/{reference}"), (200, 404), headers={"Accept": digests.KINDS})
    if answer.status_code == 404:
        return None
    digest = hashlib.sha256(answer.content).hexdigest()
    if reference.startswith("sha256:") and reference != f"sha256:{digest}":
        raise pull.differs(client.repository, reference)
    kind = answer.headers.get("Content-Type", "").partition(";")[0]
    return Document(content=answer.content, media_type=kind or manifest.MANIFEST, digest=digest)


def parsed(document: Document) -> dict[str, Any]:
    """The JSON object in a manifest or index; empty if the content is not a JSON object."""
    try:
        value = json.loads(document.content)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def write(client: Client, document: Document, reference: str) -> None:
    """Store a manifest or index in the registry under ``reference``, a tag or the digest of ``document``."""
    headers = {"Content-Type": document.media_type}
    client.ask("PUT", client.url(f"manifests/{reference}"), (201,), headers=headers, body=document.content)


def delete(client: Client, digest: str) -> bool:
    """Delete the manifest with this ``digest`` (``sha256:…``) and all its tags. Return whether the manifest existed.

    Raises :class:`PublishError` (``no-deletion``) if the registry allows no deletion.
    """
    answer = client.ask("DELETE", client.url(f"manifests/{digest}"), (202, 200, 204, 404, 405))
    if answer.status_code == 405:
        raise PublishError(
            f"The registry of {client.repository} does not allow deletions.",
            code="no-deletion",
            hint="The operator of the registry can allow them: for docker-registry, REGISTRY_STORAGE_DELETE_ENABLED=true.",
        )
    return answer.status_code != 404


def tags(client: Client) -> list[str]:
    """All tags of the repository, sorted; empty if the repository does not exist.

    Raises :class:`PublishError` (``too-long``, ``unknown-format``).
    """
    found: dict[str, None] = {}
    url = client.url(f"tags/list?n={_PAGE}")
    for _ in range(_PAGES):
        answer = client.ask("GET", url, (200, 404))
        if answer.status_code == 404:
            break
        try:
            found |= dict.fromkeys(each for each in json.loads(answer.content)["tags"] or [] if _is_tag(each))
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            raise PublishError(
                f"The answer of {client.repository} to a request for its tags is not a list.",
                code="unknown-format",
                hint="Check that the name of the registry is right.",
            ) from error
        following = answer.links.get("next", {}).get("url")
        if not following:
            break
        url = client.absolute(answer.url, following)
    else:  # raise an error, because an incomplete list must not look complete
        raise PublishError(
            f"The list of the tags of {client.repository} has more than {_PAGES} pages.",
            code="too-long",
            hint="Anybody who may write to the repository could have set so many tags. Ask its owner to remove some.",
        )
    return sorted(found)


def _is_tag(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch("[A-Za-z0-9_][A-Za-z0-9._-]{0,127}", value) is not None
