"""Compare what this checkout would build with what a registry has."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from envbuild import image_inputs
from envbuild.attest import signing
from envbuild.errors import Problem, PublishError, UsageError
from envbuild.pipeline import image_labels
from envbuild.pipeline.revision_inputs import ChangedInput, Revision
from envbuild.pipeline.stored_locks import Locked
from envbuild.pipeline.tools import Tools

if TYPE_CHECKING:
    from envbuild.compose.outputs.registry_client import Client

_COMMIT = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")
_LOOKED_AT = 8  # attachments: if the registry knows their types, the provenance comes first
_LONGEST = 200  # characters of a label that are shown


class PublishedInputs:
    """The images of a repository. Each has a tag that ends in the digest of its inputs and never moves."""

    def __init__(self, tools: Tools, client: Client) -> None:
        self._tools = tools
        self._client = client
        self._revisions: dict[str, Revision | None] = {}
        self._taken: list[Problem] = []

    def reasons(self, locked: Locked, rendering: Mapping[str, str], tags: tuple[str, ...]) -> tuple[ChangedInput, ...]:
        """Return the reasons why the registry lacks the image of a lock; empty if the image is there.
        ``tags`` are those of ``build.tags_of``.

        The reason is found in the provenance of the image that was published before. The signature of that provenance is not
        checked, because the reason is only shown and decides nothing. If the tag of the inputs is on an image that says it was
        made from something else, :meth:`require_own_images` raises. Raises :class:`PublishError`.
        """
        from envbuild.compose.outputs import digests, documents

        canonical, of_lock, fixed = (tag.rpartition(":")[2] for tag in tags[:3])
        there = documents.read(self._client, fixed)
        if there is not None:
            self._compare_labels(locked, fixed, documents.parsed(there))
            return ()
        same_lock = digests.of_tag(self._client, of_lock)
        last = same_lock or digests.of_tag(self._client, canonical)
        if not last:
            return (ChangedInput(input="new"),)
        built = self._provenance(last)
        return self._by_commit(locked, rendering, built) or self._by_digests(locked, rendering, built, bool(same_lock))

    def require_own_images(self) -> None:
        """Raise :class:`PublishError` (``tag-taken``) if a tag that never moves is on an image of another environment or lock.

        Only tags that :meth:`reasons` looked at are known.
        """
        if self._taken:
            raise PublishError(
                f"{self._client.repository} has other images under {len(self._taken)} of the tags that never move.",
                code="tag-taken",
                problems=self._taken,
                hint="Somebody else has set these tags. Remove them from the registry, or use another repository.",
            )

    def _compare_labels(self, locked: Locked, tag: str, manifest: Mapping[str, Any]) -> None:
        """Note the ``tag`` as taken if the labels of its image name another environment or lock, or none."""
        labels = image_labels.of_manifest(self._client, manifest)
        wanted = {image_labels.NAME: locked.lock.environment.name, image_labels.LOCK: locked.digest}
        differ = [
            f"the label {label} is {labels.get(label, '')[:_LONGEST]!r} instead of {text!r}"
            for label, text in wanted.items()
            if labels.get(label) != text
        ]
        if differ:
            self._taken.append(Problem(where=tag, line=0, message="; ".join(differ)))

    def _by_commit(self, locked: Locked, rendering: Mapping[str, str], built: Mapping[str, Any]) -> tuple[ChangedInput, ...]:
        """What differs from the commit at which the image was built, if git knows it here; empty if that explains nothing."""
        commit = built.get("commit", "")
        if not commit:
            return ()
        if commit not in self._revisions:
            try:
                self._revisions[commit] = Revision(self._tools, commit)
            except UsageError:  # no checkout, or a shallow one
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
        """The hashes and the commit that the provenance of an image states; empty if it has none."""
        from envbuild.compose.outputs import referrers

        first = signing.ABOUT, signing.PROVENANCE
        for content in islice(referrers.read_with(self._client, digest, signing.BUNDLE, first), _LOOKED_AT):
            told = _stated(content)
            if told:
                return told
        return {}


def _stated(content: bytes) -> dict[str, Any]:
    """Return the hashes and the sources from a bundle with provenance; empty for a bundle with another statement."""
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
    # The provenance may be forged, and may name something other than a commit.
    return {**hashes, "commit": next((commit for commit in commits if _COMMIT.fullmatch(commit)), "")}
