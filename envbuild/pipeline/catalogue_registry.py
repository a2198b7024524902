"""Reads the published images from a registry, for the catalogue.

Also reads the statements about these images that are signed with trusted keys.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from envbuild.attest import signing
from envbuild.catalogue import model
from envbuild.catalogue.model import CatalogueEntry, Proved, Smoke, Stated
from envbuild.errors import EnvbuildError, PolicyError, PublishError
from envbuild.model.progress import Progress
from envbuild.pipeline import (
    catalogue_entries,
    evidence,
    gathering,
    gpu_proofs,
    image_labels,
    own_images,
    proofs,
    trusted_sources,
)
from envbuild.pipeline.stored_locks import read_locked
from envbuild.pipeline.tools import Tools

if TYPE_CHECKING:
    from envbuild.attest.keys import PublicKey
    from envbuild.compose.outputs.manifest import Document
    from envbuild.compose.outputs.registry_client import Client

_Read = Sequence[tuple[gathering.Judged, Mapping[str, Any]]]


def require_repository(registry: str) -> None:
    """Raise :class:`PublishError` if the registry does not answer, or has no such repository (``not-in-registry``)."""
    from envbuild.compose.outputs import documents, referrers

    with referrers.opened(registry, writes=False) as client:
        documents.require_repository(client)


def published(
    tools: Tools, entries: Sequence[CatalogueEntry], registry: str, trusted: Sequence[PublicKey]
) -> Iterator[CatalogueEntry]:
    """Yield the entries. Each entry gets the published image of its lock, if ``registry`` has one.

    The entries also get the statements about these images that are signed with one of the ``trusted`` keys. If the policy has
    signers, the image must be signed by one of them, and the labels of each image must name its environment and lock. Other
    images are not shown, because `pull` would refuse them. Raises :class:`PublishError`.
    """
    from envbuild.compose.outputs import referrers

    of_image = trusted_sources.keys_that_count(tools)
    with referrers.opened(registry, writes=False) as client:
        for index, entry in enumerate(entries):
            tools.on_progress(
                Progress(stage="registry", message=entry.name, done=index, total=len(entries), unit="environments")
            )
            # This tag contains the hash of the lock. A tag without this hash may belong to an image of another lock.
            tag = f"{entry.name.replace('+', '_')}-{entry.lock.sha256[:8]}"
            try:
                image = referrers.image(client, tag)
            except PublishError as error:
                if error.code != "not-in-registry":
                    raise
                yield entry
                continue
            if not _may_be_used(tools, client, entry.name, image, of_image):
                yield entry
                continue
            known = replace(entry, published=_described(f"{registry}:{tag}", f"sha256:{image.digest}", image.content))
            yield _stated(tools, client, known, image, trusted) if trusted else known


def _may_be_used(tools: Tools, client: Client, name: str, image: Document, of_image: Sequence[PublicKey]) -> bool:
    """Whether the policy accepts the signature of a published image, and its labels name this environment and lock.

    If not, a warning says why.
    """
    from envbuild.compose.outputs import documents

    digest = f"sha256:{image.digest}"
    try:
        trusted_sources.require_signed(tools, str(client.repository), digest, of_image)
        if locked := read_locked(tools, name):
            labels = image_labels.of_manifest(client, documents.parsed(image))
            image_labels.require(labels, locked, f"{client.repository}@{digest}")
    except (PolicyError, PublishError) as error:
        if not isinstance(error, PolicyError) and error.code != "image-of-another-environment":
            raise
        message = f"the published image of {name} is not shown: {error.message}"
        tools.on_progress(Progress(stage="registry", message=message, warning=True))
        return False
    return True


def _stated(
    tools: Tools, client: Client, entry: CatalogueEntry, image: Document, trusted: Sequence[PublicKey]
) -> CatalogueEntry:
    """Return the entry with the accepted statements about its published image."""
    from envbuild.pipeline import attesting

    subject, locked, shown = proofs.subject_of(tools, entry.name), read_locked(tools, entry.name), entry.published
    if subject is None or locked is None or shown is None:
        return entry
    digest = f"sha256:{image.digest}"
    try:
        ids = (attesting.config_of(image, shown.reference), digest)
    except PublishError:  # ``image`` is an index of images for several platforms. No smoke report is about an index
        ids = (digest, digest)
    expected = gathering.Expected(
        name=entry.name, repository=str(client.repository), digest=digest, ids=ids, subject=subject, lock=locked.lock
    )
    read, unread = gathering.judge(client, expected, trusted)
    accepted = [(judged, report) for judged, report in read if judged.verdict == "accepted"]
    told = tuple(Stated(kind=judged.kind, signer=judged.signer) for judged, _ in accepted)
    signers = tuple(dict.fromkeys(each.signer for each in told if each.kind == signing.SIGNED))
    left = len(read) - len(accepted) + unread
    is_ours = _is_ours(tools, client, entry.name, digest)
    shown = replace(shown, signed_by=signers, statements=tuple(dict.fromkeys(told)), others=left, has_other_inputs=not is_ours)
    return _with_reports(tools, replace(entry, published=shown), accepted, are_proofs=is_ours)


def _is_ours(tools: Tools, client: Client, name: str, digest: str) -> bool:
    """Whether this checkout would make the published image with this ``digest``.

    The tag by which the image was found contains only the hash of the lock. The image may have been made from other recipes or
    with another smoke test.
    """
    from envbuild.compose.outputs import digests

    try:
        own = own_images.find(tools, name)
    except EnvbuildError:
        return False  # this checkout cannot render the lock, so it cannot make any image of the environment
    return own is not None and digests.of_tag(client, own.fixed) == digest


def _with_reports(tools: Tools, entry: CatalogueEntry, accepted: _Read, *, are_proofs: bool) -> CatalogueEntry:
    """Return the entry with the accepted smoke reports of other machines: their verdicts and speeds.

    A report of this machine that is also in the registry is shown once, as the signed report. With ``are_proofs``, passed
    reports also count as proofs. Otherwise the reports are only shown, because the image was made from other inputs than those
    of this checkout.
    """
    proved: dict[Proved, None] = {}
    shown: dict[Smoke, None] = {}
    # (board, capability) → the day of the newest verdict about this GPU, and whether that verdict is a failure
    gpus: dict[tuple[str, str], tuple[str, bool]] = {}
    for judged, whole in accepted:
        if judged.report is None:
            continue
        report = judged.report
        smoke = catalogue_entries.smoke_of(whole)
        shown[replace(smoke, verdict=report.status, signer=judged.signer)] = None
        if report.status == "inconclusive" or not are_proofs:
            continue
        if report.kind == "smoke-gpu":
            boards = {
                (gpu_proofs.board_name(tools.matrix, str(each.get("name", ""))), str(each.get("cc", "")))
                for each in evidence.devices_of(whole)
            }
            if len(boards) == 1:  # the report does not say which of several different GPUs were used
                (gpu,) = boards
                gpus[gpu] = max(gpus.get(gpu, ("", False)), (report.date, report.status == "fail"))
        if report.status == "pass":
            used = evidence.gpus_of(whole)
            proved[Proved(kind=report.kind, date=report.date, engine="", where="registry", gpus=used)] = None
    known = {each.kind for each in entry.proofs}
    order = list(model.PROOFS)
    more = sorted((each for each in proved if each.kind not in known), key=lambda each: each.date)
    newest = {each.kind: each for each in more}
    signed = {each.sha256 for each in shown}
    return replace(
        entry,
        proofs=tuple(sorted((*entry.proofs, *newest.values()), key=lambda each: order.index(each.kind))),
        reports=(*(each for each in entry.reports if each.sha256 not in signed), *shown),
        proved_on=tuple(sorted(gpu for gpu, (_, is_failure) in gpus.items() if not is_failure)),
    )


def _described(reference: str, digest: str, content: bytes) -> model.PublishedImage:
    try:
        layers = tuple(
            model.LayerEntry(digest=str(layer["digest"]), size=_size(layer["size"])) for layer in json.loads(content)["layers"]
        )
    except (ValueError, LookupError, TypeError, RecursionError):
        layers = ()  # an index of images for several platforms has no layers of its own
    return model.PublishedImage(reference=reference, digest=digest, layers=layers)


def _size(told: object) -> int:
    """Return the size of a layer in bytes. Raises ValueError for an impossible size, because a registry may state anything."""
    if not isinstance(told, int) or isinstance(told, bool) or not 0 <= told < 2**63:
        raise ValueError(f"{str(told)[:30]} is not a size")
    return told
