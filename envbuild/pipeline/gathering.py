"""``evidence --from``: reads statements attached to an image in a registry, and accepts those signed with trusted keys."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from envbuild import codec, files
from envbuild.attest import signing
from envbuild.attest.signing import UntrustedError
from envbuild.errors import PublishError
from envbuild.model.progress import as_news
from envbuild.pipeline import attesting, evidence, image_labels, own_images, proofs, smoke_reports
from envbuild.pipeline.gathered_reports import AcceptedReport, Gathered, held
from envbuild.pipeline.tools import Tools

if TYPE_CHECKING:
    from envbuild.attest.keys import PublicKey
    from envbuild.attest.signing import Statement
    from envbuild.compose.outputs.registry_client import Client
    from envbuild.model.lock import Lock

Verdict = Literal["accepted", "not trusted", "refused"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """A statement that is attached to the image, with its type (``kind``), the ``signer`` that it names, and our ``verdict``.

    ``why`` is the reason if the statement was not accepted. Only an accepted smoke report has a ``report``.
    """

    kind: str
    signer: str
    verdict: Verdict
    why: str = ""
    report: AcceptedReport | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class GatheredStatements:
    """The statements about one image. ``name`` is the environment of the image, and ``tag`` is its tag in ``repository``.

    ``unread`` is the number of attached documents that were not read. A document is not read if it is damaged, too large or of
    another type, or if there are too many documents.
    """

    name: str
    repository: str
    tag: str
    digest: str
    statements: tuple[Judged, ...]
    unread: int = 0


def gather(tools: Tools, name: str, repository: str, trusted: Sequence[PublicKey]) -> GatheredStatements:
    """Read all statements about the published image of this checkout, judge them, and store the accepted smoke reports.

    A statement is accepted if it is signed with a ``trusted`` key and is about exactly this image. A smoke report must also be
    complete and about this lock. If the policy has signers, ``trusted`` must be among them, and the image must be signed by
    one of them. Raises :class:`PublishError` (``not-in-registry``) if the registry does not have the image,
    (``image-of-another-environment``) if its labels name another environment or lock, and :class:`PolicyError`.
    """
    from envbuild.compose.outputs import documents, referrers
    from envbuild.pipeline import trusted_sources

    trusted = trusted_sources.trusted(tools, repository, trusted)
    of_image = trusted_sources.keys_that_count(tools)  # another signer may have published the image
    own = own_images.require(tools, name)
    subject = proofs.subject_of(tools, name)
    if subject is None:
        raise own_images.without_lock(tools, name)
    with referrers.opened(repository, writes=False) as client:
        try:
            image = referrers.image(client, own.fixed)
        except PublishError as error:
            if error.code != "not-in-registry":
                raise
            hint = "Check out the revision from which the image was built, or push the image there with `envbuild publish`."
            raise own_images.absent(name, repository, own, hint) from error
        digest = f"sha256:{image.digest}"
        trusted_sources.require_signed(tools, repository, digest, of_image)
        labels = image_labels.of_manifest(client, documents.parsed(image))
        image_labels.require(labels, own.locked, f"{repository}:{own.fixed}")
        ids = (attesting.config_of(image, f"{repository}:{own.fixed}"), digest)
        expected = Expected(name=name, repository=repository, digest=digest, ids=ids, subject=subject, lock=own.locked.lock)
        read, unread = judge(client, expected, trusted)
        found = tuple(judged for judged, _ in read)
    answer = GatheredStatements(name=name, repository=repository, tag=own.fixed, digest=digest, statements=found, unread=unread)
    _keep(tools, answer)
    return answer


@dataclass(frozen=True, kw_only=True, slots=True)
class Expected:
    """The subject that a statement must have: the image with this ``digest``, and the image's lock, rendering and guest.

    ``ids`` are the two ids that engines can use for this image.
    """

    name: str
    repository: str
    digest: str
    ids: tuple[str, str]
    subject: evidence.Subject
    lock: Lock


def judge(
    client: Client, expected: Expected, trusted: Sequence[PublicKey]
) -> tuple[list[tuple[Judged, Mapping[str, Any]]], int]:
    """Judge all statements that are attached to an image.

    The first value lists each statement with its whole smoke report. The report is empty unless the statement is an accepted
    smoke report. The second value is the number of attached documents that were not read.
    """
    from envbuild.compose.outputs import referrers

    bundles = referrers.read_with(client, expected.digest, signing.BUNDLE, most=referrers.MOST)
    found = [_judged(each, expected, trusted) for each in bundles]
    return found, max(0, len(referrers.digests(client, expected.digest)) - len(found))


def _judged(content: bytes, expected: Expected, trusted: Sequence[PublicKey]) -> tuple[Judged, Mapping[str, Any]]:
    """Judge one Sigstore bundle, which holds one signed statement."""
    signer, kind = signing.claims(content)
    objections = []
    for key in trusted:
        try:
            statement = signing.opened(content, expected.digest, key)
        except UntrustedError as error:
            objections.append(error)
            continue
        return _of_trusted(statement, key.hint, expected)
    # ``is_signed`` is true if the statement is signed with a trusted key, but is not accepted for another reason.
    signed = [str(each) for each in objections if each.is_signed]
    if signed:
        return Judged(kind=kind, signer=signer, verdict="refused", why=signed[0]), {}
    why = str(objections[0]) if objections else "no key was given"
    return Judged(kind=kind, signer=signer, verdict="not trusted", why=why), {}


def _of_trusted(statement: Statement, signer: str, expected: Expected) -> tuple[Judged, Mapping[str, Any]]:
    if statement.kind != signing.SMOKE:
        return Judged(kind=statement.kind, signer=signer, verdict="accepted"), {}
    why = _objection(statement.predicate, expected)
    if why:
        return Judged(kind=statement.kind, signer=signer, verdict="refused", why=why), {}
    report = _report(statement.predicate, signer, expected)
    return Judged(kind=statement.kind, signer=signer, verdict="accepted", report=report), statement.predicate["report"]


def _objection(predicate: Mapping[str, Any], expected: Expected) -> str:
    """Return the reason why a signed statement about a smoke test is not accepted; empty if it is accepted."""
    from envbuild import smoketest

    report, status = predicate.get("report"), predicate.get("status")
    if not isinstance(report, dict):
        return "it has no report"
    if wrong := smoke_reports.failed_pass(report):
        return f"about its report: {wrong}"
    whole, problems = smoketest.read_report(json.dumps(report).encode())
    if whole is None or problems:
        return f"its report is not complete: {'; '.join(problems[:2])}"
    if problem := smoke_reports.date_problem(whole):
        return f"its report has a wrong date: {problem}"
    about = whole["environment"]
    if about.get("name") != expected.name:
        return f"its report is about another environment: {about.get('name')}"
    locks = {str(predicate.get("lock")), str(about.get("lock", ""))}
    if locks != {expected.subject.lock}:
        return f"its report is about another lock ({' and '.join(sorted(each[:12] or 'none' for each in locks))})"
    tested = {str(predicate.get("image")), str(whole["image"]["id"])}
    if not tested <= set(expected.ids):
        return f"its report is about another image ({' and '.join(sorted(each[:19] or 'none' for each in tested))})"
    return _contradiction(str(status), whole, expected.lock)


def _contradiction(status: str, report: Mapping[str, Any], lock: Lock) -> str:
    if status not in smoke_reports.FINISHED:
        return f"it says {status!r}, which is not a verdict"
    if status != report["status"] and (status, report["status"]) != ("inconclusive", "pass"):
        return f"it says {status}, but its report says {report['status']}"
    if problem := smoke_reports.contradiction(report, lock):
        return f"about its report: {problem}"
    if status == "pass" and not signing.used_its_devices(report):
        return "it says pass for a GPU image, but its test used no GPU"
    return ""


def _report(predicate: Mapping[str, Any], signer: str, expected: Expected) -> AcceptedReport:
    report = predicate["report"]
    host, kind = report.get("host") or {}, evidence.kind_of_smoke(report)
    devices = list(evidence.devices_of(report)) if kind == "smoke-gpu" else []
    return AcceptedReport(
        repository=expected.repository,
        digest=expected.digest,
        signer=signer,
        status=str(predicate["status"]),
        kind=kind,
        gpus=tuple(dict.fromkeys(str(each.get("name", "")) for each in devices)),
        capabilities=tuple(dict.fromkeys(str(each.get("cc", "")) for each in devices)),
        driver=str(host.get("driver") or ""),
        processor=str(host.get("cpu_model") or ""),
        date=str(report["started_utc"])[:10],
        lock=expected.subject.lock,
        rendering=expected.subject.rendering,
        guest=expected.subject.guest,
    )


def _keep(tools: Tools, answer: GatheredStatements) -> None:
    """Store the accepted reports. They replace the earlier reports from the same repository.

    A lock file makes sure that only one process at a time does this: another process may store reports from another repository.
    """
    path = tools.workspace.gathered_file(answer.name)
    with files.locked(path.with_suffix(".running"), as_news("evidence", tools.on_progress)):
        _replace(tools, path, answer)


def _replace(tools: Tools, path: Path, answer: GatheredStatements) -> None:
    others = [each for each in held(tools, answer.name) if each.repository != answer.repository]
    new = [each.report for each in answer.statements if each.report is not None]
    reports = tuple(dict.fromkeys((*others, *new)))
    if reports or path.exists():
        files.write_atomic(path, codec.dumps(Gathered(schema=1, name=answer.name, reports=reports)))
