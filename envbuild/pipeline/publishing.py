"""``publish``: pushes a proved image to a registry, with signed statements about its proofs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from envbuild.attest import signing
from envbuild.errors import SmokeInconclusiveError
from envbuild.pipeline import attestations, pushing
from envbuild.pipeline.tools import Tools

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from pathlib import Path

    from envbuild.attest.keys import SigningKey
    from envbuild.attest.signing import Statement
    from envbuild.compose.outputs.compression import Compression
    from envbuild.compose.outputs.manifest import Document
    from envbuild.compose.outputs.push import Pushed
    from envbuild.compose.outputs.referrers import Artifact
    from envbuild.compose.outputs.registry_client import Client
    from envbuild.pipeline.image_checks import Smoked
    from envbuild.pipeline.make import Made


@dataclass(frozen=True, kw_only=True, slots=True)
class Destination:
    """The ``repository`` (``HOST/REPOSITORY``) that gets the image, the ``key`` that signs, and the compression of the layers.

    Without ``moves_tags``, the image gets only the tag that never moves. This is used for a release, whose tags move together
    at the end. ``databases`` are OSV databases, from which a statement lists the known vulnerabilities. ``require_allowed``
    raises :class:`PolicyError` if the site's policy does not allow to publish the image.
    """

    repository: str
    key: SigningKey
    compression: Compression | None
    moves_tags: bool = True
    databases: tuple[Path, ...] = ()
    require_allowed: Callable[[Tools, Made], None] = lambda _tools, _made: None


@dataclass(frozen=True, kw_only=True, slots=True)
class Published:
    """The result. ``tags`` are all tags of the image. ``attached`` is the number of its statements.

    ``new`` is the number of statements that were attached now. The image had the other statements before. If the moving tags
    are ``held`` back, the image has only the last one of ``tags``, which never moves.
    """

    pushed: Pushed
    tags: tuple[str, ...]
    attached: int
    new: int
    held: bool = False

    @property
    def nothing_to_do(self) -> bool:
        """Whether the registry already had the image, its tags and its statements."""
        return not (self.pushed.tags or self.new)


def require_access(repository: str) -> None:
    """Raise :class:`PublishError` if the registry does not answer, or refuses this user's first request.

    The request is the first one of a push, so a registry that refuses it would also refuse the push. Call this before any image
    is made, which can take hours. A registry may still refuse to store something later.
    """
    from envbuild.compose.outputs import digests, referrers

    with referrers.opened(repository, writes=True) as client:
        digests.of_tag(client, "latest")


def judged(smoked: Smoked) -> Smoked:
    """Return the verdict for publishing. It is inconclusive if a GPU image passed without GPUs, as with ``--expect cpu``."""
    if smoked.status != "pass" or signing.used_its_devices(smoked.report):
        return smoked
    return replace(
        smoked,
        status="inconclusive",
        exit_code=SmokeInconclusiveError.exit_code,
        sentence="The image is for GPUs, but the smoke test used none.",
        hint="Publish it on a machine with a GPU, or use --allow inconclusive.",
    )


def may_be_published(smoked: Smoked, allowed: Collection[str]) -> bool:
    """Whether an image may be published: the verdict from :func:`judged` is pass or one of ``allowed``."""
    return smoked.status == "pass" or smoked.status in allowed


def publish(tools: Tools, made: Made, to: Destination) -> Published:
    """Push the image under the tag that never moves, attach the statements, and then set the tags that move.

    The caller must check :func:`may_be_published` first. Raises :class:`PublishError`. If the policy does not allow to publish
    the image, raises :class:`PolicyError` before anything is sent.
    """
    to.require_allowed(tools, made)
    stated = attestations.of_image(tools, made, databases=to.databases)
    new: list[str] = []

    def attach(client: Client, manifest: Document) -> None:
        from envbuild.compose.outputs import referrers

        new.extend(referrers.attach(client, manifest, _signed(stated, manifest, to)))

    pushed, tags = pushing.push(tools, made.record, to.repository, to.compression, attach, moves_tags=to.moves_tags)
    return Published(pushed=pushed, tags=tags, attached=len(stated), new=len(new), held=not to.moves_tags)


@dataclass(frozen=True, kw_only=True, slots=True)
class Planned:
    """The work that :func:`publish` would do: tags to set, layers to send, their size in bytes, and statements to attach.

    ``digest`` is the digest of the image in the registry. ``all_layers``, ``all_tags`` and ``all_statements`` describe the
    image as it would be after publishing.
    """

    tags: tuple[str, ...]
    layers: int
    size: int
    statements: int
    digest: str
    all_layers: int
    all_tags: tuple[str, ...]
    all_statements: int

    @property
    def nothing_to_do(self) -> bool:
        """Whether the registry already has the image, its tags and its statements."""
        return not (self.tags or self.statements)


def plan(tools: Tools, made: Made, to: Destination) -> Planned | None:
    """Return the work that :func:`publish` would do now, and write nothing.

    Return None if layers must be compressed first to find this out.
    """
    to.require_allowed(tools, made)
    stated = attestations.of_image(tools, made, stores=False, databases=to.databases)
    missing: list[int] = []

    def count(client: Client, manifest: Document) -> None:
        from envbuild.compose.outputs import referrers

        missing.append(referrers.lacking(client, manifest, _signed(stated, manifest, to)))

    found = pushing.compare(tools, made.record, to.repository, to.compression, count, moves_tags=to.moves_tags)
    if found is None:
        return None
    tags = pushing.tags_of(made.record)
    return Planned(
        tags=found.tags,
        layers=found.layers,
        size=found.size,
        statements=sum(missing),
        digest=found.digest,
        all_layers=found.all_layers,
        all_tags=(*tags.moving, *tags.fixed),
        all_statements=len(stated),
    )


def _signed(stated: Sequence[Statement], manifest: Document, to: Destination) -> list[Artifact]:
    digest = f"sha256:{manifest.digest}"
    return signed(attestations.about_manifest(stated, to.repository, digest), digest, to.key)


def signed(stated: Sequence[Statement], digest: str, key: SigningKey) -> list[Artifact]:
    """Sign the statements about the image with this ``digest``. The annotations tell cosign the type of each statement."""
    from envbuild.compose.outputs import referrers

    return [
        referrers.Artifact(
            content=signing.bundle(each, digest, key),
            kind=signing.BUNDLE,
            annotations={
                "dev.sigstore.bundle.content": "dsse-envelope",
                signing.ABOUT: each.kind,
            },
        )
        for each in stated
    ]
