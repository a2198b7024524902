"""Collects the facts about one environment that a policy judges, from its lock, an audit, its last image, and its proofs."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envbuild import codec
from envbuild.errors import EnvbuildError, InvalidInputError
from envbuild.pipeline import end_of_life, evidence, image_checks, locking, proofs, resolving, stage_cache, status
from envbuild.pipeline.stored_locks import Locked
from envbuild.pipeline.tools import Tools
from envbuild.policy.model import Facts, Licensed, PartEnd, Policy, PolicyProof

if TYPE_CHECKING:
    from envbuild.build import BuildRecord
    from envbuild.model.environment import Environment
    from envbuild.model.vulnerabilities import Audit

_STAGE = "policy-audit"  # of an image
_STAGE_OF_LOCK = "policy-audit-lock"  # of a lock without an image, and of any lock before an image is made


@dataclass(frozen=True, kw_only=True, slots=True)
class Questions:
    """Where known vulnerabilities are looked up: in OSV ``databases`` or, if there are none, at a ``service``.

    ``answers`` is a file from `envbuild audit --json`, or a folder with such a file for each environment. If ``answers`` is
    given, neither databases nor a service are asked. With ``stored_only``, no service is asked. If there are no databases
    either, only an answer that an earlier run stored counts.
    """

    databases: tuple[Path, ...] = ()
    service: str = "osv"
    answers: Path | None = None
    stored_only: bool = False


def today() -> str:
    """Return the date of today (UTC), in ISO form."""
    return datetime.datetime.now(tz=datetime.UTC).date().isoformat()


def of_lock(tools: Tools, policy: Policy, locked: Locked, questions: Questions, *, repository: str = "") -> Facts:
    """Return the facts about the environment of a lock. Only facts that ``policy`` judges are looked up."""
    environment, unknown = locked.lock.environment, dict[str, str]()
    record = _record(tools, locked)
    audit = _audit(tools, policy, locked, record, questions, unknown) if policy.vulnerabilities is not None else None
    against = tuple(_against(tools, environment))
    if record is None:
        unknown["sizes"] = unknown["licences"] = image_checks.no_image_here(tools, environment.name)
    return Facts(
        name=environment.name,
        base=environment.base.image,
        advisories=audit.findings if audit else None,
        partly_unknown=audit.unchecked if audit else (),
        licences=_licences(tools, locked, record, unknown) if policy.licences is not None and record is not None else None,
        size=record.size if record is not None else None,
        ends=tuple(_ends(tools, environment)) if policy.end_of_life is not None else (),
        proofs=tuple(_proofs(tools, locked)) if policy.evidence else (),
        against=against,
        stale=tuple(_stale(tools, locked)) if not against else (),
        repository=repository,
        unknown=unknown,
    )


def before_making(
    tools: Tools, policy: Policy, environment: Environment, locked: Locked | None, questions: Questions, *, repository: str
) -> Facts:
    """Return the facts that hold for every image of ``environment``, whatever the image will contain.

    ``locked`` is its lock; None if there is no lock yet. Facts about images that were made before are left out, because the
    next image may differ from them. So are the packages that an audit of the lock cannot compare.
    """
    is_audited = policy.vulnerabilities is not None
    audit = _audit(tools, policy, locked, None, questions, {}) if is_audited and locked is not None else None
    return Facts(
        name=environment.name,
        base=environment.base.image,
        advisories=audit.findings if audit else None,
        ends=tuple(_ends(tools, environment)) if policy.end_of_life is not None else (),
        proofs=tuple(_proofs(tools, locked)) if policy.evidence and locked is not None else (),
        against=tuple(_against(tools, environment)),
        repository=repository,
    )


def _against(tools: Tools, environment: Environment) -> Iterator[str]:
    """Yield the reasons why site rules exclude the environment."""
    for each in resolving.site_conflicts(tools, environment):
        yield f"{each.row}: {each.reason}"


def _record(tools: Tools, locked: Locked) -> BuildRecord | None:
    """Return the build record of the environment's last image on this machine; None if that image is from another lock."""
    from envbuild import build

    record = build.read_record(tools.workspace, locked.lock.environment.name)
    return record if record is not None and record.lock == locked.digest else None


def _stale(tools: Tools, locked: Locked) -> Iterator[str]:
    try:
        locking.check_lock(tools, locked)
    except InvalidInputError as error:
        yield f"{error.message} {error.problems[0] if error.problems else ''}".strip()


def _audit(  # noqa: PLR0917 - an audit needs all these arguments
    tools: Tools,
    policy: Policy,
    locked: Locked,
    record: BuildRecord | None,
    questions: Questions,
    unknown: dict[str, str],
) -> Audit | None:
    """Return the audit. If there is none, return None and add the reason to ``unknown``."""
    if questions.answers is not None:
        return _given(questions.answers, policy, locked, unknown)
    from envbuild import disk_cache
    from envbuild.audit import audit
    from envbuild.model.vulnerabilities import Audit

    name = locked.lock.environment.name
    asked = disk_cache.stamp([*questions.databases])[0] if questions.databases else questions.service
    key = {"lock": locked.digest, "asked": asked, "image": record.image if record is not None else "", "form": 1}
    stage = _STAGE if record is not None else _STAGE_OF_LOCK
    known = stage_cache.recall(tools.workspace, name, stage, key)
    valid = policy.vulnerabilities.answers_valid_days if policy.vulnerabilities else 0
    if known is not None and _age(known.get("date")) <= valid:
        try:
            return codec.decode(Audit, known["audit"], stage)
        except (InvalidInputError, LookupError):
            pass  # another version of envbuild stored this answer
    if questions.stored_only and not questions.databases:
        unknown["vulnerabilities"] = "no recent answer is stored, and the options forbid asking a service"
        return None
    sources, why = None, image_checks.no_image_here(tools, name)
    if record is not None:
        sources, why = image_checks.sources_of_image(tools, name, locked.digest)
    try:
        found = audit(
            locked.lock, databases=questions.databases, service=questions.service, sources=sources, why_no_sources=why
        )
    except EnvbuildError as error:
        if error.code != "advisories-unreachable":
            raise
        unknown["vulnerabilities"] = error.message
        return None
    stage_cache.keep(tools.workspace, name, stage, key, {"audit": codec.encode(found), "date": today()})
    return found


def _age(date: Any) -> float:
    """Return the age of an answer in days; infinite if the date of the answer is invalid or in the future."""
    try:
        days = (datetime.date.fromisoformat(today()) - datetime.date.fromisoformat(str(date))).days
    except ValueError:
        return float("inf")
    return days if days >= 0 else float("inf")


def _given(place: Path, policy: Policy, locked: Locked, unknown: dict[str, str]) -> Audit | None:
    """Return the answer in a file from `envbuild audit --json`.

    If the answer is not about this lock, or is older than the policy allows, return None and add the reason to ``unknown``.
    """
    from envbuild.model.vulnerabilities import Audit

    name = locked.lock.environment.name
    path = place / f"{name}.json" if place.is_dir() else place
    answer = stage_cache.read_json(path)
    if answer is None:
        unknown["vulnerabilities"] = f"{path} does not exist; `envbuild audit --json` writes such a file"
        return None
    told: Mapping[str, Any] = answer if isinstance(answer, dict) else {}
    if (told.get("name"), told.get("lock")) != (name, locked.digest):
        unknown["vulnerabilities"] = f"{path} is about another environment or another lock"
        return None
    valid, date = policy.vulnerabilities.answers_valid_days if policy.vulnerabilities else 0, told.get("date")
    if _age(date) > valid:
        unknown["vulnerabilities"] = (
            f"the answer in {path} is of {date or 'an unknown day'}; by the policy, answers count for {valid} days"
        )
        return None
    parts = {field: told[field] for field in Audit.__dataclass_fields__ if field in told}
    return codec.decode(Audit, json.loads(json.dumps(parts)), str(path))


def _licences(tools: Tools, locked: Locked, record: BuildRecord, unknown: dict[str, str]) -> tuple[Licensed, ...] | None:
    from envbuild.pipeline import attestations

    name = locked.lock.environment.name
    found = attestations.stored_licences(tools, name, locked.digest, record.image)
    if found is None:
        engine = tools.engine_or_none()
        if engine is None or engine.image(record.image) is None:
            unknown["licences"] = "no container engine has the image any more, so the licences cannot be read"
            return None
        found = dict(attestations.licences_of(tools, locked.lock, locked.digest, record.image, stores=True) or {})
    if not found:
        unknown["licences"] = "the licences of the packages in the image could not be read"
        return None
    return tuple(Licensed(package=each["name"], licences=tuple(each["licences"])) for each in found["packages"])


def _ends(tools: Tools, environment: Environment) -> Iterator[PartEnd]:
    for each in end_of_life.of_platform(tools.matrix, environment):
        yield PartEnd(what=each.what, date=each.date)
    for what in end_of_life.ended_frameworks(tools.matrix, environment):
        yield PartEnd(what=what, date="", ended=True)


def _proofs(tools: Tools, locked: Locked) -> Iterator[PolicyProof]:
    """Yield the valid proofs of the repository and of this machine, and the accepted smoke reports of other machines."""
    from envbuild.pipeline import gathered_reports

    name = locked.lock.environment.name
    kinds = dict.fromkeys(proof.kind for proof in proofs.held(tools, name).proofs)
    report = _report(tools, name, locked.digest)
    for kind in kinds:
        same = report is not None and evidence.kind_of_smoke(report) == kind
        yield PolicyProof(kind=kind, machines=tuple(machines_of(report)) if report is not None and same else ())
    newest: dict[tuple[str, ...], gathered_reports.AcceptedReport] = {}
    for each in gathered_reports.held(tools, name):
        if each.status != "inconclusive":
            machine = (each.kind, *(each.gpus or (each.processor,)))
            newest[machine] = max(newest.get(machine, each), each, key=lambda one: (one.date, one.status == "fail"))
    for each in newest.values():
        if each.status == "pass":  # the report does not say which of several different GPUs the test used
            machines = (*each.gpus, each.processor) if len(each.gpus) < 2 else ()
            yield PolicyProof(kind=each.kind, machines=tuple(filter(None, machines)))


def _report(tools: Tools, name: str, digest: str) -> Mapping[str, Any] | None:
    """Return the last smoke report of this machine; None if this report is not a pass or is about another lock."""
    path = status.stored_reports(tools, name).get("json")
    report = image_checks.read_report(path) if path is not None else None
    about = report.get("environment") if report is not None else None
    is_ours = isinstance(about, dict) and about.get("lock") == digest
    return report if report is not None and is_ours and report.get("status") == "pass" else None


def machines_of(report: Mapping[str, Any]) -> Iterable[str]:
    """Return the names of the machine's GPU and processor, from the report of a test.

    For a GPU test on a machine with different GPUs, the result is empty: the report does not say which GPU the test used.
    """
    devices = report.get("devices")
    host = report.get("host")
    told = [each.get("name") for each in (devices if isinstance(devices, list) else ()) if isinstance(each, dict)]
    gpus = dict.fromkeys(each for each in told if isinstance(each, str))
    if len(gpus) > 1 and evidence.kind_of_smoke(report) == "smoke-gpu":
        return ()
    names = [*gpus, host.get("cpu_model") if isinstance(host, dict) else None]
    return dict.fromkeys(each for each in names if isinstance(each, str) and each)
