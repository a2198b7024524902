"""``registry list`` and ``registry prune``: finds the images of a repository that are needed, and removes other images."""

from __future__ import annotations

import base64
import contextlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from envbuild.attest import signing
from envbuild.errors import EnvbuildError, InterruptedByUserError, PublishError
from envbuild.pipeline import image_labels, release_index

if TYPE_CHECKING:
    from envbuild.compose.outputs.manifest import Document
    from envbuild.compose.outputs.registry_client import Client
    from envbuild.pipeline.release_index import ImageRelease

_FIXED = re.compile("(?P<name>.+)-[0-9a-f]{8}-[0-9a-f]{8}")
_LIST = re.compile("sha256-[0-9a-f]{64}")
_DAMAGED = ("digest-differs", "registry-refused", "unknown-format")


@dataclass(frozen=True, kw_only=True, slots=True)
class RegistryDocument:
    """An image, release or other document of a repository.

    ``needed_by`` lists the reasons to keep the document; it is empty if there is no reason. ``size`` is the sum of the sizes of
    the layers, in bytes. ``name`` is the name of the environment; it is empty if this is not an image of envbuild. ``built_at``
    is the time of the build; it is empty if the time is unknown.
    """

    digest: str
    tags: tuple[str, ...]
    kind: str
    name: str
    size: int
    built_at: str
    statements: int
    needed_by: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class PrunedImages:
    """The result: ``removed`` and ``kept`` images, and the number of removed ``statements``. A dry run removes nothing."""

    removed: tuple[RegistryDocument, ...]
    kept: tuple[RegistryDocument, ...]
    statements: int = 0


@dataclass(kw_only=True, slots=True)
class _Seen:
    """The content of the repository at one moment.

    ``documents`` has the manifest of each digest, and ``tags`` the tags of each digest. ``listed`` has the digests that image
    lists and releases name.
    """

    documents: dict[str, Document] = field(default_factory=dict)
    tags: dict[str, list[str]] = field(default_factory=dict)
    listed: set[str] = field(default_factory=set)

    def holds(self, digest: str) -> bool:
        """Whether the document with this digest has a tag, or is named by a release or another list of images."""
        return digest in self.tags or digest in self.listed


def survey(repository: str) -> tuple[RegistryDocument, ...]:
    """Return all documents in the repository that have a tag, except lists of statements.

    The documents are sorted by the name of the environment; documents without a name come last. Of documents with the same
    name, those that ``prune`` must keep (``needed_by``) come first. The others are sorted by age, the newest first.

    Raises :class:`PublishError` (``not-in-registry``) if the registry does not have the repository.
    """
    from envbuild.compose.outputs import documents, referrers

    with referrers.opened(repository, writes=False) as client:
        documents.require_repository(client)
        return _survey(client, _look(client))


def prune(repository: str, keep: int, *, dry_run: bool) -> PrunedImages:
    """Remove each image of an environment unless a moving tag, a release or another list of images names this image.

    An image to which the rollback of a release would move a tag back stays, too. The newest ``keep`` images of each environment
    stay. An image without a known build time stays, unless ``keep`` is 0. The statements about an image are removed before the
    image, so that a killed run leaves no statement without its image. Raises :class:`PublishError` (``no-deletion``) if the
    registry does not allow deletion, and (``not-in-registry``) if it lacks the repository. If the run fails or is interrupted,
    the ``details`` of the error list the images and statements that were already removed.
    """
    from envbuild.compose.outputs import digests, documents, referrers

    with referrers.opened(repository, writes=not dry_run, deletes=not dry_run) as client:
        documents.require_repository(client)
        seen = _look(client)
        found = _survey(client, seen)
        removed = tuple(_superfluous(found, keep))
        kept = tuple(each for each in found if each not in removed)
        if dry_run:
            count = sum(1 for each in removed for _ in _removable_statements(client, each.digest, seen))
            return PrunedImages(removed=removed, kept=kept, statements=count)
        count = 0
        with _lists_removed() as done:
            for each in removed:
                _require_unneeded(client, each, found)
                for digest in _removable_statements(client, each.digest, seen):
                    count += documents.delete(client, digest)
                    done[each] = "some of its statements, but not the image"
                listed = digests.of_tag(client, each.digest.replace(":", "-"))
                if listed and not seen.holds(listed):
                    documents.delete(client, listed)
                documents.delete(client, each.digest)
                done[each] = "the image and its statements"
        return PrunedImages(removed=removed, kept=kept, statements=count)


@contextlib.contextmanager
def _lists_removed() -> Iterator[dict[RegistryDocument, str]]:
    """Yield a dictionary in which the ``with`` block notes the images that it removed.

    If the block fails, the details of the error list these notes. An interruption with Ctrl-C is treated like an error.
    """
    done: dict[RegistryDocument, str] = {}
    try:
        yield done
    except EnvbuildError as error:
        error.details = (*error.details, *_removed_lines(done))
        raise
    except KeyboardInterrupt as interrupt:
        raise InterruptedByUserError(
            "You interrupted the command. It had already removed some images from the registry; they stay removed.",
            hint="Run the same command again to continue.",
            details=_removed_lines(done),
        ) from interrupt


def _removed_lines(done: Mapping[RegistryDocument, str]) -> list[str]:
    return [f"removed before: {image.tags[0]} ({image.digest}): {what}" for image, what in done.items()]


def _look(client: Client) -> _Seen:
    from envbuild.compose.outputs import documents

    seen = _Seen()
    for tag in documents.tags(client):
        if _LIST.fullmatch(tag):
            continue
        document = documents.read(client, tag)
        if document is None:
            continue  # the tag was removed in the meantime
        digest = f"sha256:{document.digest}"
        seen.tags.setdefault(digest, []).append(tag)
        seen.documents[digest] = document
    return seen


def _survey(client: Client, seen: _Seen) -> tuple[RegistryDocument, ...]:
    from envbuild.compose.outputs import documents, manifest

    by_release: dict[str, list[str]] = {}
    releases = {release.digest: release for release in release_index.recorded(client)}
    for release in releases.values():
        by_release.setdefault(release.digest, []).append(f"the release {release.name}")
        for member in release.members:
            by_release.setdefault(member.digest, []).append(f"the release {release.name}")
        for digest in _restored(release, releases.get(release.previous)):
            by_release.setdefault(digest, []).append(f"the rollback of the release {release.name}")
    listed: dict[str, list[str]] = {}
    values = {digest: documents.parsed(document) for digest, document in seen.documents.items()}
    for digest, value in values.items():
        for entry in _entries(value):
            listed.setdefault(str(entry.get("digest")), []).append(f"the list {seen.tags[digest][0]}")
    seen.listed |= by_release.keys() | listed.keys()
    found = []
    for digest, tags in seen.tags.items():
        value = values.get(digest, {})
        fixed = [match for tag in tags if (match := _FIXED.fullmatch(tag))]
        is_image = "config" in value and not _entries(value) and value.get("artifactType") != manifest.REMOVED
        is_ours = is_image and bool(fixed)
        is_release = value.get("artifactType") == release_index.KIND
        reasons = [f"the tag {tag}" for tag in tags if not _FIXED.fullmatch(tag)]
        reasons += [*by_release.get(digest, ()), *(listed.get(digest, ()) if digest not in by_release else ())]
        # Tags of other programs may look like envbuild's tags, but their images do not have envbuild's label.
        if not reasons and not (is_ours and _names(client, value, fixed[0]["name"])):
            is_ours, reasons = False, ["it is not an image of an environment"]
        found.append(
            RegistryDocument(
                digest=digest,
                tags=tuple(tags),
                kind="image" if is_image else "release" if is_release else "other",
                name=fixed[0]["name"] if is_ours else "",
                size=_size(value),
                built_at=_built_at(client, digest) if is_ours and not reasons else "",
                statements=len(_statements_of(client, digest)),
                needed_by=tuple(dict.fromkeys(reasons)),
            )
        )
    newest_first = sorted(found, key=lambda each: each.built_at, reverse=True)
    return tuple(sorted(newest_first, key=lambda each: (each.name == "", each.name, not each.needed_by)))


def _restored(release: ImageRelease, older: ImageRelease | None) -> Iterator[str]:
    """Yield the digests of the images to which a rollback of ``release`` would move tags that ``older`` does not have."""
    if older is not None:
        known = {tag for member in older.members for tag in member.tags}
        yield from (each.digest for member in release.members for each in member.before if each.tag not in known)


def _superfluous(found: Sequence[RegistryDocument], keep: int) -> Iterator[RegistryDocument]:
    """Yield the images that are not needed, except the newest ``keep`` images of each environment."""
    count: dict[str, int] = {}
    for each in found:  # images of one environment are sorted, the newest first
        if each.needed_by or not each.name:
            continue
        count[each.name] = count.get(each.name, 0) + 1
        if keep == 0 or (each.built_at and count[each.name] > keep):
            yield each


def _entries(value: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    entries = value.get("manifests")
    return [each for each in entries if isinstance(each, dict)] if isinstance(entries, list) else []


def _names(client: Client, value: Mapping[str, Any], name: str) -> bool:
    """Whether the label of the image names the environment ``name``, which is spelt as in tags ("_" in place of "+")."""
    try:
        return image_labels.of_manifest(client, value).get(image_labels.NAME, "").replace("+", "_") == name
    except PublishError as error:
        if error.code not in _DAMAGED:
            raise
        return False


def _size(value: Mapping[str, Any]) -> int:
    layers = value.get("layers")
    sizes = [each.get("size") for each in layers if isinstance(each, dict)] if isinstance(layers, list) else []
    return sum(size for size in sizes if isinstance(size, int) and 0 <= size < 1 << 63)


def _statements_of(client: Client, digest: str) -> list[str]:
    """Return the digests of the documents that are attached to an image."""
    from envbuild.compose.outputs import referrers

    return [each for each in referrers.digests(client, digest) if each != digest]


def _removable_statements(client: Client, digest: str, seen: _Seen) -> Iterator[str]:
    """Yield the digests of the statements that must be removed together with an image.

    These statements name the image as their subject, have no tag, and are in no release or list. This is checked because
    anybody who may write to the repository can list any document as attached, even an image that is still needed.
    """
    from envbuild.compose.outputs import documents

    for each in _statements_of(client, digest):
        document = None if seen.holds(each) else documents.read(client, each)
        subject = documents.parsed(document).get("subject") if document else None
        if isinstance(subject, dict) and subject.get("digest") == digest:
            yield each


def _built_at(client: Client, digest: str) -> str:
    """Return the build time from the image's provenance. No signature is checked, because the time decides only the order."""
    from envbuild.compose.outputs import referrers

    times = []
    for content in referrers.read_with(client, digest, signing.BUNDLE, (signing.ABOUT, signing.PROVENANCE)):
        try:
            told = json.loads(base64.b64decode(json.loads(content)["dsseEnvelope"]["payload"]))
            if told["predicateType"] != signing.PROVENANCE:
                break  # statements of provenance come first, so no further one follows
            times.append(str(told["predicate"]["runDetails"]["metadata"]["finishedOn"]))
        except (ValueError, LookupError, TypeError, RecursionError):
            continue
    return max(times, default="")


def _require_unneeded(client: Client, image: RegistryDocument, found: Sequence[RegistryDocument]) -> None:
    """Raise if a tag was moved to the image after the repository was read, because deleting a manifest deletes all its tags.

    Only some tags are read again: new tags, tags that begin with the environment's name, and tags that were on an image of the
    environment. A new tag of a release is always a reason to raise, because the release may list the image.
    """
    from envbuild.compose.outputs import digests, documents

    names = {tag: each.name for each in found for tag in each.tags}
    for tag in documents.tags(client):
        if tag in image.tags or _LIST.fullmatch(tag):
            continue
        is_new = tag not in names
        if not (is_new or names[tag] == image.name or tag.startswith(image.name)):
            continue
        if (is_new and release_index.is_tag(tag)) or digests.of_tag(client, tag) == image.digest:
            raise PublishError(
                f"Somebody set the tag {tag} of {client.repository} while this command ran, so {image.digest} may be needed.",
                code="tag-moved",
                hint="Run the command again when nobody is publishing.",
            )
