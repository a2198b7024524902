"""Finds what changed between the images that a catalogue shows and the release before them."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from envbuild.attest import signing
from envbuild.catalogue.changes import ComparedImage, since_release
from envbuild.catalogue.model import Catalogue
from envbuild.errors import PolicyError, PublishError
from envbuild.model.progress import Progress
from envbuild.pipeline import release_index, trusted_sources
from envbuild.pipeline.release_index import ImageRelease
from envbuild.pipeline.tools import Tools

if TYPE_CHECKING:
    from envbuild.attest.keys import PublicKey
    from envbuild.compose.outputs.registry_client import Client

# The largest number of attachments of an image that are read. If the registry knows their types, the bill of materials is read
# first.
_LOOKED_AT = 16


def with_changes(tools: Tools, whole: Catalogue, registry: str, trusted: Sequence[PublicKey]) -> Catalogue:
    """Return the catalogue with the changes since the last release in ``registry``, or unchanged if there is no such release.

    This is the current release, or the release before it if the catalogue shows exactly the images of the current release. With
    ``trusted`` keys, the release must be signed with one of them; else a warning says so. The same holds for the bills of
    materials that are compared. Without keys, nothing is checked, as for all images that the catalogue shows.
    """
    from envbuild.compose.outputs import referrers

    shown = {entry.name: entry.published.digest for entry in whole.entries if entry.published is not None}
    with referrers.opened(registry, writes=False) as client:
        release = _last(client, shown)
        if release is None:
            return whole
        try:
            trusted_sources.require_signed(tools, registry, release.digest, trusted)
        except (PolicyError, PublishError) as error:
            message = f"the changes since the release {release.name} are not shown: {error.message}"
            tools.on_progress(Progress(stage="registry", message=message, warning=True))
            return whole
        before = {each.name: each.digest for each in release.members}
        changed = {name for name, digest in shown.items() if before.get(name, digest) != digest}

        def read(digests: Mapping[str, str]) -> dict[str, ComparedImage]:
            made = {name: ComparedImage(digest=digest) for name, digest in digests.items()}
            return made | {
                name: replace(made[name], contents=_contents(client, digests[name], trusted)) for name in sorted(changed)
            }

        return since_release(whole, read(before), read(shown), f"the release {release.name} in {registry}")


def _last(client: Client, shown: Mapping[str, str]) -> ImageRelease | None:
    """Return the newest release, except the current one if ``shown`` has all of its images. None if there is no release.

    The first release is returned in any case.
    """
    from envbuild.compose.outputs import digests

    current = digests.of_tag(client, release_index.CURRENT)
    if not current:
        return None
    release = release_index.read(client, current)
    if release.previous and all(shown.get(each.name) == each.digest for each in release.members):
        return release_index.read(client, release.previous)
    return release


def _contents(client: Client, digest: str, trusted: Sequence[PublicKey]) -> Mapping[tuple[str, str], tuple[str, str]] | None:
    """Return the packages in the bill of materials of an image; None if the image has none that counts."""
    from envbuild.compose.outputs import referrers

    first = signing.ABOUT, signing.SBOM
    for content in islice(referrers.read_with(client, digest, signing.BUNDLE, first), _LOOKED_AT):
        for bill in _bills(content, digest, trusted):
            try:
                return dict(_packages(bill))
            except (ValueError, LookupError, TypeError, AttributeError):
                continue
    return None


def _bills(content: bytes, digest: str, trusted: Sequence[PublicKey]) -> Iterator[Any]:
    """Yield the bill of materials in a Sigstore bundle, if there is one and its signature counts."""
    if not trusted:
        try:
            told = json.loads(base64.b64decode(json.loads(content)["dsseEnvelope"]["payload"]))
            if told["predicateType"] == signing.SBOM:
                yield told["predicate"]
        except (ValueError, LookupError, TypeError, RecursionError):
            pass
        return
    for key in trusted:
        try:
            statement = signing.opened(content, digest, key)
        except signing.UntrustedError:
            continue
        if statement.kind == signing.SBOM:
            yield statement.predicate


def _packages(bill: Any) -> Iterator[tuple[tuple[str, str], tuple[str, str]]]:
    """Yield (group, name) and (version, sha256) of each package. The groups are named as in the catalogue's list of files."""
    found = [(each, _prefix(each)) for each in bill["components"]]
    prefixes = {prefix for _, prefix in found if prefix}
    for each, prefix in found:
        is_debian = str(each.get("purl", "")).startswith("pkg:deb/")
        python = "Python packages" if len(prefixes) == 1 else f"Python packages of {prefix}"
        hashes = [str(one["content"]) for one in each.get("hashes", ())]
        group = python if prefix else "Debian packages" if is_debian else "system"
        yield (group, _line(each["name"])), (_line(each.get("version", "")), hashes[0] if hashes else "")


def _prefix(component: Mapping[str, Any]) -> str:
    return next((_line(each["value"]) for each in component.get("properties", ()) if each["name"] == "envbuild:prefix"), "")


def _line(text: object) -> str:
    """Cut a text to one line of at most 200 characters, because anybody may have written it."""
    return "".join(each if each.isprintable() else " " for each in str(text)[:200])
