"""Attaches artifacts to an image in a registry, and reads attached artifacts. The manifest of an artifact names the image as
its subject.

https://github.com/opencontainers/distribution-spec/blob/v1.1.0/spec.md describes the referrers API. It also describes the tag
that replaces this API in registries without it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from envbuild.compose.outputs import credentials, manifest, pull
from envbuild.compose.outputs import digests as tagged
from envbuild.compose.outputs.manifest import Document
from envbuild.compose.outputs.registry_client import Client, parse
from envbuild.errors import PublishError

EMPTY = b"{}"
_EMPTY_KIND = "application/vnd.oci.empty.v1+json"
_LARGEST = 64 << 20  # bytes of one artifact; the smoke report of a machine with many GPUs has a few hundred kB
MOST = 200  # artifacts that are read; anybody with write access could attach any number
_PAGES = 20  # pages of the list of artifacts; a registry could name further pages without end
_LONGEST_LIST = 32 << 20  # bytes of that list: about 80,000 entries
_MOST_ENTRIES = 100_000
_ATTEMPTS = 5
_NO_API = (400, 404, 405, 406)  # the HTTP statuses of registries without the referrers API


@dataclass(frozen=True, kw_only=True, slots=True)
class Artifact:
    """A blob of the media type ``kind`` to attach. Readers choose among several artifacts by their annotations."""

    content: bytes
    kind: str
    annotations: Mapping[str, str]


def attach(client: Client, subject: Document, artifacts: Sequence[Artifact]) -> list[str]:
    """Attach those artifacts that are not attached to ``subject`` yet. Return the digests of their manifests.

    The registry must already have the subject. Raises :class:`PublishError`.
    """
    added, has_api = _lacking(client, subject, artifacts)
    if added:
        send_blob(client, EMPTY)
    for artifact, document in added:
        send_blob(client, artifact.content)
        headers = {"Content-Type": manifest.MANIFEST}
        client.ask("PUT", client.url(f"manifests/sha256:{document.digest}"), (201,), headers=headers, body=document.content)
    if added and not has_api:
        _list_by_tag(client, subject, [_entry(artifact, document) for artifact, document in added])
    return [f"sha256:{document.digest}" for _, document in added]


def lacking(client: Client, subject: Document, artifacts: Sequence[Artifact]) -> int:
    """The number of artifacts that :func:`attach` would attach to ``subject`` now."""
    return len(_lacking(client, subject, artifacts)[0])


def _lacking(client: Client, subject: Document, artifacts: Sequence[Artifact]) -> tuple[list[tuple[Artifact, Document]], bool]:
    """The artifacts that are not attached, with their manifests; and whether the registry has the referrers API.

    In a registry without this API, the list of attached manifests is under a tag. This list may still name manifests that a
    killed `registry prune` or the registry's garbage collection removed, so each of them is looked up.
    """
    listed, has_api = _listed(client, f"sha256:{subject.digest}")
    known = {str(entry.get("digest")) for entry in listed}
    told = {f"sha256:{(document := _manifest(each, subject)).digest}": (each, document) for each in artifacts}
    there = {digest for digest in told if digest in known and (has_api or tagged.of_tag(client, digest))}
    return [pair for digest, pair in told.items() if digest not in there], has_api


def read(source: str, digest: str, kind: str, first: tuple[str, str] = ("", "")) -> Iterator[bytes]:
    """Yield the blobs of the media type ``kind`` that are attached to the manifest with ``digest`` (``sha256:…``) in
    ``source``.

    The blobs are fetched one by one. Blobs with the annotation ``first`` (name and value) come before the others. Blobs that
    are damaged, missing or too large are left out, because a check of signatures needs only one valid blob. The registry's list
    of attached manifests may lack media types and annotations, for example if cosign wrote the list under a tag. So the media
    type is taken from the manifests. Raises :class:`PublishError`.
    """
    with opened(source, writes=False) as client:
        yield from read_with(client, digest, kind, first)


def read_with(
    client: Client, digest: str, kind: str, first: tuple[str, str] = ("", ""), *, most: int = MOST, largest: int = _LARGEST
) -> Iterator[bytes]:
    """Yield the same blobs as :func:`read`, with an open client. Read at most ``most`` attached manifests, and leave out blobs
    of more than ``largest`` bytes."""

    def rank(entry: Mapping[str, Any]) -> int:
        notes = entry.get("annotations")
        found = notes.get(first[0]) if isinstance(notes, dict) else None
        return 0 if found == first[1] else 1 if found is None else 2

    entries, _ = _listed(client, digest)
    for entry in sorted(entries, key=rank)[:most]:
        content = _content(client, entry, digest, kind, largest)
        if content is not None:
            yield content


def noted(client: Client, digest: str, annotation: str, wanted: Collection[str]) -> set[str]:
    """The values of ``annotation`` in the list of manifests that are attached to the manifest with this ``digest``.

    The list may lack annotations, as for :func:`read`. If it lacks one of the values ``wanted``, the annotations of its other
    entries are read from the manifests themselves.
    """
    entries = _listed(client, digest)[0]
    found = set(_values((entry.get("annotations") for entry in entries), annotation))
    if found.issuperset(wanted):
        return found
    others = (entry for entry in entries if not any(_values([entry.get("annotations")], annotation)))
    return found.union(_values((_annotations(client, entry, digest) for entry in islice(others, MOST)), annotation))


def digests(client: Client, digest: str) -> list[str]:
    """The digests of the manifests that are attached to the manifest with this ``digest``."""
    found = (str(entry.get("digest")) for entry in _listed(client, digest)[0])
    return [each for each in dict.fromkeys(found) if re.fullmatch("sha256:[0-9a-f]{64}", each)]


@contextlib.contextmanager
def opened(source: str, *, writes: bool, deletes: bool = False) -> Iterator[Client]:
    """Yield a client of the repository ``source``. The client is closed at the end of the block."""
    repository = parse(source)
    client = Client(repository, credentials.find(repository.host), writes=writes, deletes=deletes)
    try:
        yield client
    finally:
        client.close()


def image(client: Client, tag: str) -> Document:
    """The manifest of the image with ``tag``, which may also be a digest.

    Raises :class:`PublishError` (``not-in-registry``, ``digest-differs``).
    """
    kinds = (manifest.MANIFEST, manifest.DOCKER_KINDS[0])
    answer = client.ask("GET", client.url(f"manifests/{tag}"), (200, 404), headers={"Accept": ", ".join(kinds)})
    if answer.status_code == 404:
        raise pull.absent(str(client.repository), tag)
    digest = hashlib.sha256(answer.content).hexdigest()
    told = tag if tag.startswith("sha256:") else answer.headers.get("Docker-Content-Digest", f"sha256:{digest}")
    if told != f"sha256:{digest}":
        raise pull.differs(client.repository, told)
    if manifest.is_removed(answer.content):
        raise pull.absent(str(client.repository), tag)
    kind = answer.headers.get("Content-Type", "").partition(";")[0]
    return Document(content=answer.content, media_type=kind, digest=digest)


def _manifest(artifact: Artifact, subject: Document) -> Document:
    blob = hashlib.sha256(artifact.content).hexdigest()
    return manifest.document(
        {
            "schemaVersion": 2,
            "mediaType": manifest.MANIFEST,
            "artifactType": artifact.kind,
            "config": empty(),
            "layers": [manifest.descriptor(artifact.kind, blob, len(artifact.content))],
            "subject": subject.descriptor(),
            "annotations": dict(artifact.annotations),
        },
        manifest.MANIFEST,
    )


def _entry(artifact: Artifact, document: Document) -> dict[str, Any]:
    return document.descriptor() | {"artifactType": artifact.kind, "annotations": dict(artifact.annotations)}


def empty() -> dict[str, Any]:
    """The descriptor of the empty JSON object, which stands for an absent configuration or content."""
    return manifest.descriptor(_EMPTY_KIND, hashlib.sha256(EMPTY).hexdigest(), len(EMPTY))


def send_blob(client: Client, content: bytes) -> None:
    """Send a blob, unless the registry has it."""
    digest = hashlib.sha256(content).hexdigest()
    if client.ask("HEAD", client.url(f"blobs/sha256:{digest}"), (200, 404)).status_code == 404:
        client.upload(digest, content)


def _listed(client: Client, digest: str) -> tuple[list[dict[str, Any]], bool]:
    """The descriptors of the manifests that are attached to ``digest``; and whether the registry has the referrers API."""
    headers = {"Accept": manifest.INDEX}
    answer, content = client.ask_long(client.url(f"referrers/{digest}"), (200, *_NO_API), _LONGEST_LIST, headers)
    if answer.status_code != 200 or answer.headers.get("Content-Type", "").partition(";")[0] != manifest.INDEX:
        return _listed_by_tag(client, digest), False
    entries, left = _entries(client, content), _LONGEST_LIST - len(content)
    for _ in range(_PAGES - 1):
        following = answer.links.get("next", {}).get("url")
        if not following or len(entries) >= _MOST_ENTRIES:
            break
        answer, content = client.ask_long(client.absolute(answer.url, following), (200,), left, headers)
        entries, left = entries + _entries(client, content), left - len(content)
    return entries, True


def _listed_by_tag(client: Client, digest: str) -> list[dict[str, Any]]:
    headers = {"Accept": manifest.INDEX}
    answer, content = client.ask_long(client.url(f"manifests/{_tag(digest)}"), (200, 404), _LONGEST_LIST, headers)
    return _entries(client, content) if answer.status_code == 200 else []


def _list_by_tag(client: Client, subject: Document, added: Sequence[dict[str, Any]]) -> None:
    """Add entries to the list under the tag that replaces the referrers API.

    Another client may write the list at the same time. So the list is read and written again until it has all entries.
    """
    digest = f"sha256:{subject.digest}"
    for _ in range(_ATTEMPTS):
        listed = _listed_by_tag(client, digest)
        known = {str(entry.get("digest")) for entry in listed}
        lacking = [entry for entry in added if entry["digest"] not in known]
        if not lacking:
            return
        index = manifest.index([*listed, *lacking])
        headers = {"Content-Type": manifest.INDEX}
        client.ask("PUT", client.url(f"manifests/{_tag(digest)}"), (201,), headers=headers, body=index.content)
    raise PublishError(
        f"The list of documents attached to {client.repository}@{digest} changed repeatedly while this command ran.",
        code="attachments-lost",
        hint="Somebody else is publishing the same image. Run the command again: it adds only what is missing.",
    )


def _values(notes: Iterable[object], annotation: str) -> Iterator[str]:
    return (str(each[annotation]) for each in notes if isinstance(each, dict) and annotation in each)


def _annotations(client: Client, entry: Mapping[str, Any], subject: str) -> object:
    """The annotations in the manifest of ``entry``; None if the manifest is absent, damaged, or not attached to ``subject``."""
    digest = str(entry.get("digest"))
    if not re.fullmatch("sha256:[0-9a-f]{64}", digest):
        return None
    answer = client.ask("GET", client.url(f"manifests/{digest}"), (200, 404), headers={"Accept": manifest.MANIFEST})
    try:
        told = json.loads(answer.content)
        is_right = f"sha256:{hashlib.sha256(answer.content).hexdigest()}" == digest and told["subject"]["digest"] == subject
        return told["annotations"] if is_right else None
    except (ValueError, LookupError, TypeError, RecursionError):
        return None


def _tag(digest: str) -> str:
    return digest.replace(":", "-")


def _entries(client: Client, content: bytes) -> list[dict[str, Any]]:
    try:
        entries = json.loads(content)["manifests"] or []
        return [entry for entry in entries if isinstance(entry, dict)]
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise PublishError(
            f"The answer of {client.repository} to a request for attached documents is not a list.",
            code="unknown-format",
            hint="Another program may use the tag that begins with sha256- for another purpose.",
        ) from error


def _content(client: Client, entry: Mapping[str, Any], subject: str, kind: str, largest: int) -> bytes | None:
    """The blob of ``entry``, an entry of the list of attached manifests. None if the blob is damaged, is not of the type
    ``kind``, is not attached to ``subject``, or is larger than ``largest`` bytes."""
    digest = str(entry.get("digest"))
    if not re.fullmatch("sha256:[0-9a-f]{64}", digest):
        return None
    try:
        answer = client.ask("GET", client.url(f"manifests/{digest}"), (200, 404), headers={"Accept": manifest.MANIFEST})
        if f"sha256:{hashlib.sha256(answer.content).hexdigest()}" != digest:
            return None
        told = json.loads(answer.content)
        (layer,) = told["layers"]
        size, blob = int(layer["size"]), str(layer["digest"]).removeprefix("sha256:")
        if told["subject"]["digest"] != subject or layer["mediaType"] != kind or not 0 < size <= largest:
            return None
        if not re.fullmatch("[0-9a-f]{64}", blob):
            return None
        content = b"".join(client.blob(blob, size))
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError):
        return None
    except PublishError as error:  # one damaged entry must not hide the others
        if error.code not in ("digest-differs", "registry-refused", "unknown-format"):
            raise
        return None
    return content if hashlib.sha256(content).hexdigest() == blob else None
