"""The index that records a release in a registry: its form, and how it is read and written.

docs/decisions/0033 has the reasons.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from envbuild.errors import PublishError, UsageError

if TYPE_CHECKING:
    from envbuild.compose.outputs.manifest import Document
    from envbuild.compose.outputs.registry_client import Client

CURRENT = "release"
KIND = "application/vnd.envbuild.release.v1+json"
_NAME, _TAGS, _BEFORE = "invalid.envbuild.name", "invalid.envbuild.tags", "invalid.envbuild.tags-before"
_RELEASE, _PREVIOUS = "invalid.envbuild.release", "invalid.envbuild.previous"
_FIXED = "org.opencontainers.image.ref.name"


@dataclass(frozen=True, kw_only=True, slots=True)
class EarlierImage:
    """The ``digest`` of the image that a moving ``tag`` named before a release."""

    tag: str
    digest: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ReleasedImage:
    """An image of a release: the environment's ``name``, the tag that never moves (``fixed``), and its moving ``tags``.

    ``before`` has those of the ``tags`` that named an image before the release, with this image. It is empty in releases of
    earlier versions of envbuild. Members are compared without ``before``, because it does not belong to the image.
    """

    name: str
    digest: str
    fixed: str
    tags: tuple[str, ...]
    before: tuple[EarlierImage, ...] = field(default=(), compare=False, metadata={"left_out_if_default": True})


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageRelease:
    """A release in a registry. ``previous`` is the digest of the release before it; empty for the first release."""

    name: str
    digest: str
    previous: str
    members: tuple[ReleasedImage, ...]


def tag_of(name: str) -> str:
    """Return the tag of the release ``name``. Raises :class:`UsageError` if the name is not valid in a tag."""
    if not _is_name(name):
        raise UsageError(
            f"{name!r} cannot be the name of a release.", hint="Use letters, digits, dots, '-' and '_', for example 2026.11"
        )
    return f"{CURRENT}-{name}"


def _is_name(text: str) -> bool:
    return re.fullmatch("[A-Za-z0-9][A-Za-z0-9._-]{0,63}", text) is not None


def is_tag(tag: str) -> bool:
    """Whether ``tag`` is a tag that envbuild uses for releases."""
    return tag == CURRENT or tag.startswith(f"{CURRENT}-")


def recorded(client: Client) -> Iterator[ImageRelease]:
    """Yield all releases of the repository, and the earlier releases that they name. No signature is checked.

    Other manifests under the tags of releases are ignored. Raises :class:`PublishError` for a damaged release.
    """
    from envbuild.compose.outputs import digests, documents

    known: set[str] = set()
    for tag in documents.tags(client):
        digest = digests.of_tag(client, tag) if is_tag(tag) else ""
        while digest and digest not in known:
            known.add(digest)
            found = documents.read(client, digest)
            if found is None or documents.parsed(found).get("artifactType") != KIND:
                break
            release = read(client, digest)
            yield release
            digest = release.previous


def document(client: Client, release: ImageRelease) -> Document:
    """Return the OCI index of a release. Its bytes depend only on the release, so its digest is always the same."""
    from envbuild.compose.outputs import documents, manifest

    entries = []
    for member in release.members:
        found = documents.read(client, member.digest)
        if found is None:
            raise incomplete(client, member, "its image is not in the registry")
        notes = {_FIXED: member.fixed, _NAME: member.name, _TAGS: " ".join(member.tags)}
        if member.before:  # without it, the document is the same as that of an earlier version of envbuild
            notes[_BEFORE] = " ".join(f"{each.tag}@{each.digest}" for each in member.before)
        entries.append(found.descriptor() | {"annotations": notes})
    notes = {_RELEASE: release.name} | ({_PREVIOUS: release.previous} if release.previous else {})
    told = {"schemaVersion": 2, "mediaType": manifest.INDEX, "artifactType": KIND, "manifests": entries, "annotations": notes}
    return manifest.document(told, manifest.INDEX)


def read(client: Client, digest: str) -> ImageRelease:
    """Return the release with this digest. Raises :class:`PublishError` (``unknown-format``) if it is not a release."""
    from envbuild.compose.outputs import documents

    found = documents.read(client, digest)
    told = documents.parsed(found) if found else {}
    try:
        notes = told["annotations"]
        members = tuple(map(_member, told["manifests"]))
        previous = str(notes.get(_PREVIOUS, ""))
        if told["artifactType"] != KIND or (previous and not _is_digest(previous)) or not _is_name(str(notes[_RELEASE])):
            raise ValueError(previous)
        return ImageRelease(name=str(notes[_RELEASE]), digest=digest, previous=previous, members=members)
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise PublishError(
            f"{client.repository}@{digest} is not a release.",
            code="unknown-format",
            hint=f"Others may use the tag {CURRENT}, or a tag that begins with {CURRENT}-, for another purpose.",
        ) from error


def _member(entry: Mapping[str, Any]) -> ReleasedImage:
    notes, digest = entry["annotations"], str(entry["digest"])
    tags = str(notes[_TAGS]).split()
    before = [each.partition("@")[::2] for each in str(notes.get(_BEFORE, "")).split()]
    digests, named = [digest, *(earlier for _, earlier in before)], {tag for tag, _ in before}
    if not all(map(_is_digest, digests)) or not all(map(_is_image_tag, tags)) or not named <= set(tags):
        raise ValueError(digest)
    return ReleasedImage(
        name=str(notes[_NAME]),
        digest=digest,
        fixed=str(notes[_FIXED]),
        tags=tuple(tags),
        before=tuple(EarlierImage(tag=tag, digest=earlier) for tag, earlier in before),
    )


def _is_image_tag(text: str) -> bool:
    return re.fullmatch("[A-Za-z0-9_][A-Za-z0-9._-]{0,127}", text) is not None


def _is_digest(text: str) -> bool:
    return re.fullmatch("sha256:[0-9a-f]{64}", text) is not None


def incomplete(client: Client, member: ReleasedImage, why: str) -> PublishError:
    """Return the error for a release that lacks an image, or something of an image."""
    return PublishError(
        f"The release is incomplete in {client.repository}: {member.name}: {why}.",
        code="release-incomplete",
        hint="No tag was moved. To add what is missing, run `envbuild publish`.",
    )
