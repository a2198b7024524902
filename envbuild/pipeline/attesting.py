"""``attest``: attaches a smoke report, from this or another machine, to an image in a registry, as a signed statement."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envbuild import files
from envbuild.attest import signing
from envbuild.errors import InvalidInputError, Problem, PublishError
from envbuild.pipeline import own_images, smoke_reports
from envbuild.pipeline.stored_locks import read_locked
from envbuild.pipeline.tools import Tools

if TYPE_CHECKING:
    from envbuild.attest.keys import SigningKey
    from envbuild.compose.outputs.manifest import Document

_AGAIN = "Run the test again."
_OTHER_TAG = "Check out the revision from which the image was built. Or name the tag or digest of the tested image with --tag."


@dataclass(frozen=True, kw_only=True, slots=True)
class Attested:
    """The result: the ``digest`` of the image, and the stated verdict (``status``).

    ``is_new`` is false if the image already had this statement.
    """

    digest: str
    status: str
    is_new: bool


def attest(  # noqa: PLR0917 - all these arguments describe one statement
    tools: Tools, name: str, path: Path, repository: str, tag: str, key: SigningKey
) -> Attested:
    """Attach the smoke report in ``path`` to the image with ``tag`` in ``repository``.

    If ``tag`` is empty, the image is the one with the inputs of this checkout, as for `pull`. The report must be about exactly
    this image, and about the lock of this checkout. If the policy has signers, ``key`` must be the key of one of them, and the
    image must be signed by one of them. Raises :class:`InvalidInputError` (``report``, ``report-of-another-image``),
    :class:`PublishError`, and :class:`PolicyError`.
    """
    from envbuild.compose.outputs import referrers
    from envbuild.pipeline import publishing, trusted_sources

    trusted_sources.trusted(tools, repository, [key.public])  # others would refuse a statement that is signed with another key
    of_image = trusted_sources.keys_that_count(tools)  # another signer may have published the image
    report = _read(name, path)
    lock = _lock(tools, name, path, report)
    passed = report["status"] == "pass" and not signing.used_its_devices(report)
    status = "inconclusive" if passed else report["status"]
    own = None if tag else own_images.require(tools, name)
    tag = own.fixed if own else tag
    with referrers.opened(repository, writes=True) as client:
        try:
            image = referrers.image(client, tag)
        except PublishError as error:
            if error.code != "not-in-registry" or own is None:
                raise
            raise own_images.absent(name, repository, own, _OTHER_TAG) from error
        trusted_sources.require_signed(tools, repository, f"sha256:{image.digest}", of_image)
        _require_same(path, report, image, f"{repository}:{tag}")
        stated = signing.smoke(report["image"]["id"], lock, status, report)
        made = publishing.signed([stated], f"sha256:{image.digest}", key)
        new = referrers.attach(client, image, made)
    return Attested(digest=f"sha256:{image.digest}", status=status, is_new=bool(new))


def _read(name: str, path: Path) -> Mapping[str, Any]:
    from envbuild import smoketest

    try:
        report, problems = smoketest.read_report(files.read_bytes(path))
    except OSError as error:
        raise InvalidInputError(f"Cannot read {path}: {error.strerror or error}.", code="report") from error
    if report is not None and (wrong := smoke_reports.failed_pass(report)):
        raise InvalidInputError(f"The report in {path} is not attached: {wrong}.", code="report", hint=_AGAIN)
    if report is None or problems:
        raise InvalidInputError(
            f"{path} is not a complete smoke report.",
            code="report",
            hint="To make one, run `envbuild smoke NAME`; it prints the path of its report.",
            problems=[Problem(where=str(path), line=0, message=each) for each in problems],
        )
    if report["status"] not in smoke_reports.FINISHED:
        raise InvalidInputError(
            f"The smoke test of {path} did not finish, so its report proves nothing.",
            code="report",
            hint=_AGAIN,
        )
    if problem := smoke_reports.date_problem(report):
        raise InvalidInputError(
            f"The report in {path} has a wrong date: {problem}.",
            code="report",
            hint="Set the clock of the machine that was tested, and run the test again.",
        )
    if report["environment"].get("name") != name:
        raise InvalidInputError(
            f"The report in {path} is about {report['environment'].get('name')}, not about {name}.",
            code="report-of-another-image",
        )
    return report


def _lock(tools: Tools, name: str, path: Path, report: Mapping[str, Any]) -> str:
    """Return the digest of the checkout's lock. Raise if the report is about another lock, and so about another image, or if
    its verdict does not follow from what it says."""
    locked = read_locked(tools, name)
    told = str(report["environment"].get("lock", ""))
    if locked is None or told != locked.digest:
        raise InvalidInputError(
            f"The report in {path} is about the lock {told[:16] or 'without a hash'}, but here {name} has "
            + (f"the lock {locked.digest[:16]}." if locked else "no lock here."),
            code="report-of-another-image",
            hint="Check out the revision from which the image was built.",
        )
    if problem := smoke_reports.contradiction(report, locked.lock):
        raise InvalidInputError(
            f"The report in {path} is not attached: {problem}.",
            code="report",
            hint=f"Run the whole test again: envbuild smoke {name}",
        )
    return locked.digest


def config_of(image: Document, place: str) -> str:
    """Return the digest of the image's configuration. ``place`` names the image in error messages.

    Raises :class:`PublishError` (``unknown-format``) if ``image`` is not the manifest of an image.
    """
    try:
        return str(json.loads(image.content)["config"]["digest"])
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise PublishError(
            f"{place} is not an image, or is an index of images for several kinds of machines.",
            code="unknown-format",
            hint="Choose another tag or digest with --tag.",
        ) from error


def _require_same(path: Path, report: Mapping[str, Any], image: Document, place: str) -> None:
    """Raise :class:`InvalidInputError` unless the report is about this image.

    The report names the image by the id that an engine gave to it. Most engines use the digest of the configuration as the id.
    Engines with containerd's image store use the digest of the manifest.
    """
    config = config_of(image, place)
    tested = str(report["image"]["id"])
    if not tested or tested not in (config, f"sha256:{image.digest}"):
        raise InvalidInputError(
            f"The report in {path} is about the image {tested or 'without an id'}, but {place} is {config}.",
            code="report-of-another-image",
            hint="Choose another tag or digest with --tag. Or get this image with `envbuild pull`, and test it with "
            "`envbuild smoke`, which writes its id into the report.",
        )
