"""``attest``: the report of a smoke test on any machine, stated of the image in a registry."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envbuild import files
from envbuild.attest import statements
from envbuild.errors import InvalidInputError, Problem

if TYPE_CHECKING:
    from envbuild.attest.keys import SigningKey
    from envbuild.compose.outputs.manifest import Document

_FINISHED = ("pass", "fail", "inconclusive")


@dataclass(frozen=True, kw_only=True, slots=True)
class Attested:
    """The ``digest`` of the image, the verdict (``status``) that was stated of it, and whether it ``is_new`` there."""

    digest: str
    status: str
    is_new: bool


def attest(name: str, path: Path, repository: str, tag: str, key: SigningKey) -> Attested:
    """State the report in ``path`` of the image that ``repository`` has under ``tag``, which must be the image of the report.

    Raises :class:`InvalidInputError` (``report``, ``report-of-another-image``) and :class:`PublishError`.
    """
    from envbuild.compose.outputs import referrers
    from envbuild.pipeline import publication

    report = _read(name, path)
    with referrers.opened(repository, writes=True) as client:
        image = referrers.image(client, tag)
        _require_same(path, report, image, f"{repository}:{tag}")
        stated = statements.smoke(report["image"]["id"], report["environment"].get("lock", ""), report["status"], report)
        made = publication.signed([stated], f"sha256:{image.digest}", key)
        new = referrers.attach(client, image, made)
    return Attested(digest=f"sha256:{image.digest}", status=report["status"], is_new=bool(new))


def _read(name: str, path: Path) -> Mapping[str, Any]:
    from envbuild import smoketest

    try:
        report, problems = smoketest.read_report(files.read_bytes(path))
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be read: {error.strerror or error}.", code="report") from error
    if report is None or problems:
        raise InvalidInputError(
            f"{path} is no whole smoke report.",
            code="report",
            hint="`envbuild smoke NAME` writes one, and so does `envbuild-smoke --json FILE` in the image.",
            problems=[Problem(where=str(path), line=0, message=each) for each in problems],
        )
    if report["status"] not in _FINISHED:
        raise InvalidInputError(
            f"The smoke test of {path} did not finish, so that its report states nothing.",
            code="report",
            hint="Run the test again.",
        )
    if report["environment"].get("name") != name:
        raise InvalidInputError(
            f"The report in {path} is about {report['environment'].get('name')}, and not about {name}.",
            code="report-of-another-image",
        )
    return report


def _require_same(path: Path, report: Mapping[str, Any], image: Document, place: str) -> None:
    """Engines name an image by the digest of its configuration; those with containerd's image store by that of its manifest."""
    config = str(json.loads(image.content).get("config", {}).get("digest", ""))
    tested = str(report["image"]["id"])
    if not tested or tested not in (config, f"sha256:{image.digest}"):
        raise InvalidInputError(
            f"The report in {path} is about the image {tested or 'without an id'}, and {place} is {config}.",
            code="report-of-another-image",
            hint="`--tag` names another tag or digest. Test the image with `envbuild smoke`, which notes its id in the report.",
        )
