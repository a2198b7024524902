"""Releases: sets of images in a registry. The moving tags of all images of a release move together.

A release is an OCI index that lists the images with their names and moving tags. It is signed in the same way as the images.
Its own tag is ``release-NAME``. The tag ``release`` names the current release. docs/decisions/0033 has the reasons.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from envbuild.attest import signing
from envbuild.attest.signing import Statement
from envbuild.errors import PublishError, UsageError
from envbuild.pipeline import publishing, release_index, signatures
from envbuild.pipeline.release_index import CURRENT, EarlierImage, ImageRelease, ReleasedImage, is_tag, tag_of

if TYPE_CHECKING:
    from envbuild.attest.keys import PublicKey, SigningKey
    from envbuild.compose.outputs.manifest import Document
    from envbuild.compose.outputs.registry_client import Client

_ROUNDS = 3  # how many times tags are set if somebody else moves them in the meantime


@dataclass(frozen=True, kw_only=True, slots=True)
class Move:
    """A tag that moves from the digest ``before`` to the digest ``after``. ``before`` is empty for a new tag, and ``after`` is
    empty for a tag that is removed."""

    tag: str
    before: str
    after: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ReleaseChange:
    """The change that publishing or rolling back a release makes: the ``moves`` of tags, including the tag ``release``.

    After a rollback, ``stays`` has the tags that were not moved back or not removed, each with the reason. ``lost`` has the
    tags that were removed although they named an image before the release, each with the reason.
    """

    release: ImageRelease
    moves: tuple[Move, ...]
    stays: tuple[tuple[str, str], ...] = ()
    lost: tuple[tuple[str, str], ...] = ()


def publish(repository: str, name: str, members: Sequence[ReleasedImage], key: SigningKey, *, dry_run: bool) -> ReleaseChange:
    """Record the release ``name`` of these images, and move the tags of the release and of the images.

    If a run is interrupted, the next run completes the release. All images must be in ``repository``, with statements that are
    signed with ``key``; otherwise no tag moves. The tag ``release`` moves before the tags of the images, so that a reader of
    the release sees the whole new set at once.

    Raises :class:`PublishError`. The code is ``release-taken`` if another set of images has the name, if this release was
    published before and a newer release followed it, or if a tag that a rollback would restore has named another image since
    the release was recorded. The code is ``release-incomplete`` if an image or a statement is missing, and
    ``release-overtaken`` if somebody else publishes a release at the same time.
    """
    from envbuild.compose.outputs import digests, documents, referrers

    own, ordered = tag_of(name), tuple(sorted(members, key=lambda each: each.name))
    _require_different_tags(ordered)
    with referrers.opened(repository, writes=not dry_run) as client:
        current, taken = digests.of_tag(client, CURRENT), digests.of_tag(client, own)
        for member in ordered:
            _require_whole(client, member, key)
        previous = current
        if taken:
            known = release_index.read(client, taken)
            _require_same(client, known, ordered, current)
            if current != taken:
                _require_tags_as_recorded(client, known)
            previous, ordered = known.previous, known.members  # they record which images the tags named before
        else:
            ordered = tuple(replace(member, before=_named(client, member.tags)) for member in ordered)
        release = ImageRelease(name=name, digest="", previous=previous, members=ordered)
        document = release_index.document(client, release)
        release = replace(release, digest=f"sha256:{document.digest}")
        if taken not in ("", release.digest):
            raise _taken(client, name, "its text differs from the form that envbuild writes")
        moves = _moves(client, [(own, release.digest), (CURRENT, release.digest), *_wanted(release)])
        if dry_run:
            return ReleaseChange(release=release, moves=moves)
        documents.write(client, document, release.digest)
        signed = publishing.signed([Statement(kind=signing.SIGNED, predicate={})], release.digest, key)
        referrers.attach(client, document, signed)
        if not taken:
            _take_name(client, document, own)
        if current != release.digest:
            _require_current(client, current)
            documents.write(client, document, CURRENT)
        _settle(client, release, lambda: _wanted(release))
        return ReleaseChange(release=release, moves=moves)


def roll_back(repository: str, key: PublicKey, *, dry_run: bool) -> ReleaseChange:
    """Move the tags of the current release back to the images of the release before it. The tag ``release`` moves last.

    A tag that the earlier release did not have moves back to the image that it named before the current release. It is removed
    if it named none, or if that image is gone or not proved. A tag that somebody has moved to another image since the release
    stays as it is. Both releases must be signed with ``key``.
    Raises :class:`PublishError`: ``no-release`` if there is no current or no earlier release, ``release-incomplete`` if an
    image of the earlier release is gone.
    """
    from envbuild.compose.outputs import digests, referrers, untag

    with referrers.opened(repository, writes=not dry_run) as client:
        current = digests.of_tag(client, CURRENT)
        if not current:
            raise _no_release(client, f"{client.repository} has no release.")
        signatures.require_signed_with(client, current, key)
        newer = release_index.read(client, current)
        if not newer.previous:
            raise _no_release(
                client, f"The release {newer.name} of {client.repository} is the first one, so there is no release before it."
            )
        signatures.require_signed_with(client, newer.previous, key)
        older = release_index.read(client, newer.previous)
        for member in older.members:
            if not digests.of_tag(client, member.digest):
                raise release_index.incomplete(client, member, "its image is no longer in the registry")
        aims, lost = _aims(client, newer, older, key)
        wanted, stays = _returning(client, newer, aims)
        lost = tuple((tag, why) for tag, why in lost if (tag, "") in wanted)
        moves = _moves(client, [*wanted, (CURRENT, older.digest)])
        if not dry_run:
            _settle(client, newer, lambda: _returning(client, newer, aims)[0])
            if removed := [tag for tag, digest in wanted if not digest]:
                stays += untag.delete(repository, removed)
            _require_current(client, newer.digest)
            _set(client, CURRENT, older.digest)
        return ReleaseChange(release=older, moves=moves, stays=stays, lost=lost)


def _wanted(release: ImageRelease) -> list[tuple[str, str]]:
    return [(tag, member.digest) for member in release.members for tag in member.tags]


def _moves(client: Client, wanted: Sequence[tuple[str, str]]) -> tuple[Move, ...]:
    from envbuild.compose.outputs import digests, untag

    found = ((tag, digests.of_tag(client, tag), digest) for tag, digest in wanted)
    return tuple(
        Move(tag=tag, before=there, after=digest)
        for tag, there, digest in found
        if there != digest and (digest or not untag.is_placeholder(tag, there))
    )


def _settle(client: Client, current: ImageRelease, wanted: Callable[[], Sequence[tuple[str, str]]]) -> None:
    """Set tags until all of them have the ``wanted`` digests. Raise if ``current`` is not the current release any more."""
    moves: tuple[Move, ...] = ()
    for _ in range(_ROUNDS):
        moves = _moves(client, wanted())
        if not moves:
            _require_current(client, current.digest)
            return
        for move in moves:
            _require_current(client, current.digest)
            _set(client, move.tag, move.after)
    if _moves(client, wanted()):
        raise PublishError(
            f"Another process repeatedly moves the tag {moves[0].tag} of {client.repository}.",
            code="tag-moved",
            hint="Run the command again when nobody else is publishing.",
        )
    _require_current(client, current.digest)


def _set(client: Client, tag: str, digest: str) -> None:
    """Set the tag to the document with this digest. For an empty digest, take the tag away from its image."""
    from envbuild.compose.outputs import documents, untag

    if not digest:
        untag.cover(client, tag)
        return
    document = documents.read(client, digest)
    if document is None:
        raise PublishError(
            f"{client.repository}@{digest} was removed while this command ran.",
            code="release-incomplete",
            hint="Run the command again.",
        )
    documents.write(client, document, tag)


def _named(client: Client, tags: Sequence[str]) -> tuple[EarlierImage, ...]:
    """Return those of the ``tags`` that name an image, with this image."""
    from envbuild.compose.outputs import digests, untag

    found = ((tag, digests.of_tag(client, tag)) for tag in tags)
    return tuple(EarlierImage(tag=tag, digest=there) for tag, there in found if there and not untag.is_placeholder(tag, there))


def _aims(
    client: Client, newer: ImageRelease, older: ImageRelease, key: PublicKey
) -> tuple[dict[str, str], tuple[tuple[str, str], ...]]:
    """Return the digest that each tag of both releases must have after a rollback, and the tags whose earlier image is lost.

    The digest is empty for a tag that must be removed. The second result are pairs (tag, reason).
    """
    aims, lost = dict(_wanted(older)), []
    earlier = {each.tag: each.digest for member in newer.members for each in member.before}
    for tag, _ in _wanted(newer):
        if tag in aims:
            continue
        aims[tag] = earlier.get(tag, "")
        if aims[tag] and (why := _why_unproved(client, aims[tag], key)):
            lost.append((tag, f"the image {aims[tag]}, which it named before the release {newer.name}, {why}"))
            aims[tag] = ""
    return aims, tuple(lost)


def _why_unproved(client: Client, digest: str, key: PublicKey) -> str:
    """Return the reason why a moving tag must not name the image. Empty if a moving tag may name the image.

    The reasons are: the image is gone, a statement is missing, or the image is not signed with ``key``.
    """
    from envbuild.compose.outputs import digests, referrers

    if not digests.of_tag(client, digest):
        return "is no longer in the registry"
    if lacking := signing.REQUIRED - referrers.noted(client, digest, signing.ABOUT, signing.REQUIRED):
        return f"has no statement of the type {' and '.join(sorted(lacking))}"
    try:
        signatures.require_signed_with(client, digest, key)
    except PublishError as error:
        if error.code not in ("unsigned", "wrong-signature"):
            raise
        return "is not signed with this key"
    return ""


def _returning(
    client: Client, newer: ImageRelease, aims: Mapping[str, str]
) -> tuple[list[tuple[str, str]], tuple[tuple[str, str], ...]]:
    """Return the tags that must move to the digests of ``aims``, and the tags that stay, each with the reason.

    The first are pairs (tag, digest). The digest is empty for a tag that must be removed.
    """
    from envbuild.compose.outputs import digests, untag

    released, wanted, stays = dict(_wanted(newer)), [], []
    for tag, digest in aims.items():
        there = digests.of_tag(client, tag)
        if there in ("", digest, released.get(tag)) or untag.is_placeholder(tag, there):
            wanted.append((tag, digest))
        else:
            stays.append((tag, f"it names an image that the release {newer.name} did not give it"))
    return wanted, tuple(stays)


def _require_different_tags(members: Sequence[ReleasedImage]) -> None:
    owners: dict[str, str] = {}
    for member in members:
        for tag in member.tags:
            if owners.setdefault(tag, member.name) != member.name:
                raise UsageError(
                    f"{owners[tag]} and {member.name} have the same tag {tag}.",
                    hint="Publish only one of these two environments.",
                )
            if is_tag(tag):
                raise UsageError(
                    f"The tag {tag} of {member.name} is reserved for releases.", hint="Give the environment another name."
                )


def _require_whole(client: Client, member: ReleasedImage, key: SigningKey) -> None:
    """Raise unless the tag that never moves is on the image, and the image has its statements and a signature with ``key``."""
    from envbuild.compose.outputs import digests, referrers

    there = digests.of_tag(client, member.fixed)
    if there != member.digest:
        raise release_index.incomplete(client, member, f"{member.fixed} is {there or 'no image'} instead of {member.digest}")
    lacking = signing.REQUIRED - referrers.noted(client, member.digest, signing.ABOUT, signing.REQUIRED)
    if lacking:
        raise release_index.incomplete(client, member, f"it has no statement of the type {' and '.join(sorted(lacking))}")
    signatures.require_signed_with(client, member.digest, key.public)


def _require_same(client: Client, release: ImageRelease, members: tuple[ReleasedImage, ...], current: str) -> None:
    if release.members != members:
        mine, theirs = ({(each.name, each.digest) for each in found} for found in (members, release.members))
        differing = [f"differs: {name}" for name in sorted({name for name, _ in mine ^ theirs})]
        if differing:
            raise _taken(client, release.name, "it contains other images", *differing)
        raise PublishError(
            f"The release {release.name} of {client.repository} already exists: it has the same images, but with other tags.",
            code="release-taken",
            hint="Tags come from the words with which you name an environment, now or in an earlier build on this machine. Use "
            "the same tags as for the release, or publish under another name.",
            details=list(_other_tags(release.members, members)),
        )
    if current not in (release.digest, release.previous):
        raise PublishError(
            f"The release {release.name} of {client.repository} is not the newest one: another release followed it.",
            code="release-taken",
            hint="To go back to it, use `--rollback`. Or publish these images under another name.",
        )


def _require_tags_as_recorded(client: Client, release: ImageRelease) -> None:
    """Raise if a rollback of ``release``, which is not the current release, would not restore what its tags name now.

    A rollback restores a tag to the recorded image only if the release before does not have this tag, so only such tags count.
    A tag may already name the image of this release. Nothing can be taken back to before the first release.
    """
    older = release_index.read(client, release.previous).members if release.previous else release.members
    kept = {tag for member in older for tag in member.tags}
    details, what = [], ""
    for member in release.members:
        recorded = {each.tag: each.digest for each in member.before}
        named = {each.tag: each.digest for each in _named(client, member.tags)}
        for tag in sorted({*member.tags} - kept):
            then, now = recorded.get(tag, ""), named.get(tag, "")
            if now not in (then, member.digest):
                what = what or f"the tag {tag} {'has named another image' if now else 'was removed'}"
                details.append(f"{tag}: the release recorded {then or 'no image'}, and the tag names {now or 'no image'}")
    if details:
        raise PublishError(
            f"The release {release.name} of {client.repository} already exists, and {what} since this release was recorded.",
            code="release-taken",
            hint="A release never changes, so `--rollback` would not restore what the tag names now. Publish these images "
            "under another release name.",
            details=details,
        )


def _other_tags(released: Sequence[ReleasedImage], members: Sequence[ReleasedImage]) -> Iterator[str]:
    """Yield a line for each image whose tags differ. Tags differ if the environment was named in other words."""
    for theirs, mine in zip(released, members, strict=True):
        lines = (("only in the release", {*theirs.tags} - {*mine.tags}), ("only here", {*mine.tags} - {*theirs.tags}))
        told = [f"{where}: {', '.join(sorted(tags))}" for where, tags in lines if tags]
        if (theirs.tags, theirs.fixed) != (mine.tags, mine.fixed):
            yield f"{mine.name}: {'; '.join(told) or 'the order of the tags, or the tag that never moves'}"


def _take_name(client: Client, document: Document, tag: str) -> None:
    """Set the release's own tag. If two publishers set this tag at the same moment, the second one overwrites the first."""
    from envbuild.compose.outputs import digests, documents

    if not digests.of_tag(client, tag):
        documents.write(client, document, tag)
    if (there := digests.of_tag(client, tag)) != f"sha256:{document.digest}":
        raise _overtaken(client, f"{tag} is now {there or 'no release'}")


def _require_current(client: Client, digest: str) -> None:
    from envbuild.compose.outputs import digests

    if (there := digests.of_tag(client, CURRENT)) != digest:
        raise _overtaken(client, f"the current release is now {there or 'none'}")


def _overtaken(client: Client, why: str) -> PublishError:
    return PublishError(
        f"Another process is changing the releases of {client.repository} at the same time: {why}.",
        code="release-overtaken",
        hint="Only one process can make a release, and this command stopped. Look at the current release before you run "
        "it again.",
    )


def _taken(client: Client, name: str, why: str, *details: str) -> PublishError:
    return PublishError(
        f"The release {name} of {client.repository} already exists: {why}.",
        code="release-taken",
        hint="A release never changes: publish these images under another name.",
        details=list(details),
    )


def _no_release(client: Client, message: str) -> PublishError:
    return PublishError(
        message,
        code="no-release",
        hint="There is no release to go back to. To make a release, run `envbuild publish --release NAME --to "
        f"{client.repository}`.",
    )
