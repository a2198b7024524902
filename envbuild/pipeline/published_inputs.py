"""Compares the images that this checkout would build with the images that a registry has."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

from envbuild import image_inputs
from envbuild.attest import signing
from envbuild.errors import Problem, PublishError, UsageError
from envbuild.pipeline import image_labels, release_index
from envbuild.pipeline.revision_inputs import ChangedInput, Revision
from envbuild.pipeline.stored_locks import Locked
from envbuild.pipeline.tools import Tools

if TYPE_CHECKING:
    from envbuild.compose.outputs.registry_client import Client

_COMMIT = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")
# The largest number of attachments that are read. If the registry knows their types, the provenance is read first.
_LOOKED_AT = 8
_STATEMENTS = {
    signing.SIGNED: "signature", signing.SBOM: "bill of materials", signing.VERIFIED: "verify", signing.SMOKE: "smoke test",
}  # fmt: skip


class PublishedInputs:
    """The published images of a repository. Each image has a tag that never moves, which ends in the digest of its inputs."""

    def __init__(self, tools: Tools, client: Client) -> None:
        self._tools = tools
        self._client = client
        self._revisions: dict[str, Revision | None] = {}
        self._taken: list[Problem] = []

    def reasons(self, locked: Locked, rendering: Mapping[str, str], tags: tuple[str, ...]) -> tuple[ChangedInput, ...]:
        """Return the reasons why the image of a lock must be published; empty if its publication is complete.

        ``tags`` are the tags from ``build.tags_of``. To find the reasons, the provenance of the image that was published before
        is read. The signature of this provenance is not checked, because the reasons are only shown and decide nothing. If the
        registry has the image, its labels are compared with the lock. If the labels differ from the lock, a later call of
        :meth:`require_own_images` raises an error. If they are right, the reason is ``unfinished`` if the image lacks a
        statement that every published image has, or if the tag that `publish` sets last names another image. Signatures are not
        checked. Raises :class:`PublishError`.
        """
        from envbuild.compose.outputs import digests, documents

        canonical, of_lock, fixed = (tag.rpartition(":")[2] for tag in tags[:3])
        there = documents.read(self._client, fixed)
        if there is not None:
            is_own = self._has_own_labels(locked, fixed, documents.parsed(there))
            return self._unfinished(f"sha256:{there.digest}", canonical) if is_own else ()
        same_lock = digests.of_tag(self._client, of_lock)
        last = same_lock or digests.of_tag(self._client, canonical)
        if not last:
            return (ChangedInput(input="new"),)
        built = self._provenance(last)
        return self._by_commit(locked, rendering, built) or self._by_digests(locked, rendering, built, bool(same_lock))

    def require_own_images(self) -> None:
        """Raise :class:`PublishError` (``tag-taken``) if a tag that never moves is on an image of another environment or lock.

        Only the tags that :meth:`reasons` has looked at are considered.
        """
        if self._taken:
            raise PublishError(
                f"{self._client.repository} has other images under {len(self._taken)} of the tags that never move.",
                code="tag-taken",
                problems=self._taken,
                hint="Somebody else has set these tags. Remove them from the registry, or use another repository.",
            )

    def _unfinished(self, digest: str, canonical: str) -> tuple[ChangedInput, ...]:
        """Return what `publish` has not done yet for the image with this ``digest``; empty if nothing is left to do.

        `publish` sets the tag that never moves, attaches the statements, and sets the moving tags, at last ``canonical``.
        """
        from envbuild.compose.outputs import digests, referrers

        stated = referrers.noted(self._client, digest, signing.ABOUT, signing.REQUIRED)
        lacks = [words for kind, words in _STATEMENTS.items() if kind not in stated]
        if digests.of_tag(self._client, canonical) != digest and digest not in self._withdrawn:
            lacks.append(f"tag {canonical}")
        return (ChangedInput(input="unfinished", lacks=tuple(lacks)),) if lacks else ()

    @cached_property
    def _withdrawn(self) -> frozenset[str]:
        """The digests of the images that belong to a release, but not to the current one.

        A rollback or a newer release has moved the tags of these images on purpose.
        """
        from envbuild.compose.outputs import digests

        current = digests.of_tag(self._client, release_index.CURRENT)
        kept, withdrawn = set[str](), set[str]()
        for release in release_index.recorded(self._client):
            (kept if release.digest == current else withdrawn).update(member.digest for member in release.members)
        return frozenset(withdrawn - kept)

    def _has_own_labels(self, locked: Locked, tag: str, manifest: Mapping[str, Any]) -> bool:
        """Whether the labels of the image with ``tag`` name the environment and the lock; if not, record ``tag`` as taken."""
        differ = image_labels.differences(image_labels.of_manifest(self._client, manifest), locked)
        if differ:
            self._taken.append(Problem(where=tag, line=0, message="; ".join(differ)))
        return not differ

    def _by_commit(self, locked: Locked, rendering: Mapping[str, str], built: Mapping[str, Any]) -> tuple[ChangedInput, ...]:
        """Return the inputs that have changed since the commit at which the image was built.

        The result is empty if this checkout does not have the commit, or if no input has changed.
        """
        commit = built.get("commit", "")
        if not commit:
            return ()
        if commit not in self._revisions:
            try:
                self._revisions[commit] = Revision(self._tools, commit)
            except UsageError:  # this is no checkout, or a shallow clone
                self._revisions[commit] = None
        revision = self._revisions[commit]
        return revision.reasons(locked, rendering) if revision else ()

    def _by_digests(
        self, locked: Locked, rendering: Mapping[str, str], built: Mapping[str, Any], same_lock: bool
    ) -> tuple[ChangedInput, ...]:
        if not same_lock:
            return (ChangedInput(input="lock"),)
        lock, workspace = locked.lock, self._tools.workspace
        texts = {path: text.encode() for path, text in rendering.items()}
        rendered = image_inputs.rendering_digest(workspace, lock.environment.custom, texts)
        guest = image_inputs.guest_digest(workspace, lock, self._tools.recipes)
        found = [ChangedInput(input="render")] if built.get("rendering") not in (None, rendered) else []
        found += [ChangedInput(input="guest")] if built.get("guest") not in (None, guest) else []
        return tuple(found) or (ChangedInput(input="render"), ChangedInput(input="guest"))

    def _provenance(self, digest: str) -> Mapping[str, Any]:
        """Return the hashes and the commit from the provenance of an image; empty if the image has no provenance."""
        from envbuild.compose.outputs import referrers

        first = signing.ABOUT, signing.PROVENANCE
        for content in islice(referrers.read_with(self._client, digest, signing.BUNDLE, first), _LOOKED_AT):
            told = _stated(content)
            if told:
                return told
        return {}


def _stated(content: bytes) -> dict[str, Any]:
    """Return the hashes and the commit from a Sigstore bundle with a provenance; empty for a bundle with another statement."""
    try:
        told = json.loads(base64.b64decode(json.loads(content)["dsseEnvelope"]["payload"]))
        if told["predicateType"] != signing.PROVENANCE:
            return {}
        built = told["predicate"]["buildDefinition"]
        hashes = {name: str(each["sha256"]) for name, each in built["internalParameters"].items()}
        sources = [each for each in built["resolvedDependencies"] if "gitCommit" in each["digest"] and "uri" not in each]
        commits = [str(each["digest"]["gitCommit"]) for each in sources if each.get("annotations") == {"modified": False}]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return {}
    # The provenance may be forged. So only text in the form of a commit id is used.
    return {**hashes, "commit": next((commit for commit in commits if _COMMIT.fullmatch(commit)), "")}
