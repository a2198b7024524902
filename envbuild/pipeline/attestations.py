"""Makes the statements about an image that ``publish`` signs: its contents, how it was built, and how it was tested."""

from __future__ import annotations

import datetime
import json
import zipfile
import zlib
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from envbuild.attest import licences, openvex, provenance, signing
from envbuild.attest.signing import Statement
from envbuild.errors import EnvbuildError, InvalidInputError, VerifyError
from envbuild.lock import archives
from envbuild.model.progress import Progress, counted
from envbuild.model.vulnerabilities import Vulnerability
from envbuild.pipeline import changed_since, image_checks, openvex_exceptions, stage_cache
from envbuild.pipeline.tools import Tools

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from envbuild.build import BuildRecord
    from envbuild.model.lock import Lock
    from envbuild.pipeline.make import Made

_LONGEST_QUESTION_S = 600.0
_FORM = 2  # version of the stored facts about provenance; increase this number when a field is added
_LICENCES_FORM = 2  # the same for stored licences; those of version 1 lack pip


def of_image(tools: Tools, made: Made, *, stores: bool = True, databases: Sequence[Path] = ()) -> list[Statement]:
    """Return the statements about the image of ``made``. With OSV ``databases``, they also cover its known vulnerabilities.

    The same image with the same verdicts gives the same statements. So publishing the image again adds nothing. Facts that are
    read from the image are therefore stored for the next run, unless ``stores`` is false. A pulled image gets no provenance,
    because it is not known here how it was built.
    """
    from envbuild.build import PULLED

    verified = image_checks.verify_image(tools, made.lock, made.digest, made.record.image, replay=True)
    subject = {"image": made.record.image, "lock": made.digest}
    report = {name: value for name, value in verified.report.items() if name != "seconds"}  # differs in each run
    unchecked = sum(text.startswith("not checked") for text in report["notes"])
    licence_list = licences_of(tools, made.lock, made.digest, made.record.image, stores=stores)
    origin = [] if made.record.builder == PULLED else [_origin(tools, made, stores=stores)]
    return [
        Statement(kind=signing.SIGNED, predicate={}),
        Statement(kind=signing.SBOM, predicate=_contents(tools, made, stores=stores)),
        *(Statement(kind=signing.PROVENANCE, predicate=each) for each in origin),
        Statement(kind=signing.VERIFIED, predicate={**subject, "status": "pass", "unchecked": unchecked, "report": report}),
        *(Statement(kind=signing.LICENCES, predicate=each) for each in ([licence_list] if licence_list else [])),
        *(_vulnerabilities(tools, made, databases, stores=stores) if databases else ()),
        signing.smoke(made.record.image, made.digest, made.smoked.status, made.smoked.report),
    ]


def about_manifest(stated: Sequence[Statement], repository: str, digest: str) -> list[Statement]:
    """Return the statements, in which OpenVEX names the image ``digest`` of ``repository`` as its product."""
    return [
        replace(each, predicate=openvex.about_image(each.predicate, repository, digest))
        if each.kind == signing.OPENVEX
        else each
        for each in stated
    ]


def _contents(tools: Tools, made: Made, *, stores: bool) -> Mapping[str, Any]:
    """Return the bill of materials of the image.

    The installed Debian packages are read from the image once, and then stored. If they cannot be read, the bill of materials
    lists the packages of the lock, and is marked as incomplete.
    """
    from envbuild import sbom
    from envbuild.verify import installed

    name, image = made.environment.name, made.record.image
    key = {"image": image, "lock": made.digest}
    known = stage_cache.recall(tools.workspace, name, "packages", key)
    if known is None:
        try:
            known = {"packages": installed.packages(tools.engine, image)}
        except VerifyError:  # the image has no dpkg, or reading failed; nothing is stored, so the next run tries again
            known = {"packages": []}
        if stores and known["packages"]:
            stage_cache.keep(tools.workspace, name, "packages", key, known)
    built = sbom.Built(image=image, packages=[tuple(each) for each in known["packages"]]) if known["packages"] else None
    document: dict[str, Any] = json.loads(sbom.dumps(made.lock, made.digest, built))
    return document if built else {**document, "compositions": [{"aggregate": "incomplete"}]}


def licences_of(tools: Tools, lock: Lock, digest: str, image: str, *, stores: bool) -> Mapping[str, Any] | None:
    """Return the licences of the packages in ``image``, which was built from ``lock`` with this ``digest``.

    The licences are read from the image once, and then stored. The image has the files of pip for its users, but not the
    METADATA, so pip's licence is read from the pinned wheel. The result is None if the licences cannot be read.
    """
    known = stored_licences(tools, lock.environment.name, digest, image)
    if known is None:
        tools.on_progress(Progress(stage="licences", message="reading the licences of the packages in the image"))
        told = tools.engine.run(
            image, ["-c", licences.QUESTION], entrypoint=["/bin/sh"], network="none", timeout_s=_LONGEST_QUESTION_S, user="0"
        )
        if told.code != 0 or not licences.predicate(image, digest, told.output)["packages"]:
            return None  # an incomplete list could be mistaken for a complete one
        try:
            known = dict(licences.predicate(image, digest, told.output, _metadata_of_pips(tools, lock)))
        except EnvbuildError as error:
            words = f"the licences are not listed, because the licence of pip cannot be read. {error.message}"
            tools.on_progress(Progress(stage="licences", message=words, warning=True))
            return None
        if stores:
            stage_cache.keep(tools.workspace, lock.environment.name, "licences", _licences_key(digest, image), known)
    return known


def stored_licences(tools: Tools, name: str, digest: str, image: str) -> dict[str, Any] | None:
    """Return what :func:`licences_of` stored; None if nothing is stored for this image and this lock."""
    return stage_cache.recall(tools.workspace, name, "licences", _licences_key(digest, image))


def _licences_key(digest: str, image: str) -> dict[str, Any]:
    return {"image": image, "lock": digest, "form": _LICENCES_FORM}


def _metadata_of_pips(tools: Tools, lock: Lock) -> Iterator[str]:
    for pip in {prefix.pip.sha256: prefix.pip for prefix in lock.prefixes if prefix.pip is not None}.values():
        wheel = tools.index.fetch_artifact(pip, tools.workspace.downloads, tools.on_progress)
        try:
            yield archives.wheel_metadata(wheel)
        except (zipfile.BadZipFile, zlib.error, KeyError, NotImplementedError, RuntimeError, archives.TooLargeError) as error:
            why = error.args[0] if error.args else error
            raise InvalidInputError(f"The METADATA in {wheel.name} cannot be read: {why}.", code="broken-tool") from error


def _vulnerabilities(tools: Tools, made: Made, databases: Sequence[Path], *, stores: bool) -> list[Statement]:
    """Return the report of an audit, and its findings as OpenVEX. An image is compared only once with the same databases."""
    from envbuild import disk_cache

    name, image = made.environment.name, made.record.image
    key = {"image": image, "lock": made.digest, "databases": disk_cache.stamp([*databases])[0]}
    known = stage_cache.recall(tools.workspace, name, "audit", key)
    if known is None or not (known.get("asked_image", True) or tools.engine_or_none() is None):
        fresh = _audited(tools, made, databases)
        # An equal result keeps its old date, so that the statement stays the same and is not published again.
        if known is None or known["audit"] != fresh["audit"]:
            known = fresh
        if stores:
            stage_cache.keep(tools.workspace, name, "audit", key, known)
    told = {**known["audit"], "database": ", ".join(path.name for path in databases)}
    how = f"envbuild compared {counted(told['checked'], 'package')} with {told['database']}"
    how += f". Not checked: {'; '.join(told['unchecked'])}" if told["unchecked"] else ""
    findings = [Vulnerability(**{part: _frozen(value) for part, value in each.items()}) for each in told["findings"]]
    accepted = partial(openvex_exceptions.statement_about, tools.policy, name)
    vex = openvex.document(name, findings, how, known["date"], accepted)
    report = {"image": image, "lock": made.digest, "date": known["date"], **told}
    stated = [Statement(kind=signing.AUDIT, predicate=report)]
    return [*stated, *([Statement(kind=signing.OPENVEX, predicate=vex)] if vex else [])]


def _audited(tools: Tools, made: Made, databases: Sequence[Path]) -> dict[str, Any]:
    """Run an audit now, and return its report. If the image's packages could not be read, a later run tries that again."""
    from envbuild import codec
    from envbuild.audit import audit

    sources, why = image_checks.sources_of_image(tools, made.environment.name, made.digest)
    found = audit(made.lock, databases=databases, service="osv", sources=sources, why_no_sources=why)
    report = json.loads(json.dumps({**codec.encode(found), "clean": found.is_clean}))
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return {"audit": report, "date": now, "asked_image": bool(sources)}


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _origin(tools: Tools, made: Made, *, stores: bool) -> Mapping[str, Any]:
    """Return the provenance of the image. It names the commit at which the image was published for the first time.

    Later commits that give the image the same inputs do not change the provenance. If git does not read the checkout, the
    provenance says so, until git reads it. Then only the commit changes. The versions of envbuild and of the engine are those
    of the first publication, too.
    """
    import envbuild

    record = made.record
    key = {"image": record.image, "inputs": record.inputs, "form": _FORM}
    stored = stage_cache.recall(tools.workspace, record.name, "origin", key)
    known = stored or {
        "commit": "", "is_modified": False, "version": envbuild.__version__, "engine": _engine(tools, record),
    }  # fmt: skip
    why_no_commit = ""
    if not known["commit"]:  # an earlier run could not read it, and git may read it now
        commit, is_modified = changed_since.head(tools.workspace)
        known = {**known, "commit": commit, "is_modified": is_modified}
        why_no_commit = "" if commit else _why_no_commit(tools, record.name)
    if stores and known != stored:
        stage_cache.keep(tools.workspace, record.name, "origin", key, known)
    build = provenance.BuildFacts(
        name=record.name,
        lock=record.lock,
        inputs=record.inputs,
        rendering=record.rendering,
        guest=record.guest,
        builder=record.builder,
        built_at=record.built_at,
        why_no_commit=why_no_commit,
        **known,
    )
    return provenance.predicate(made.lock, build)


def _why_no_commit(tools: Tools, name: str) -> str:
    """Return why the provenance of ``name`` names no commit, and warn. Empty if there is no checkout that git could read.

    The statement is public. So it leaves out the folder, which may contain the name of a user.
    """
    refused = changed_since.refusal_to_read(tools.workspace, "The commit")
    if refused is None:
        return ""
    words = f"the provenance of {name} says that the commit is unknown. {refused.message} {refused.hint}"
    tools.on_progress(Progress(stage="publish", message=words, warning=True))
    if refused.code == "unsafe-checkout":
        return "git does not read the checkout, because it belongs to another user"
    if refused.code == "missing-program":
        return "git is not installed"
    return "git cannot read the checkout"


def _engine(tools: Tools, record: BuildRecord) -> str:
    """Return product and version of the engine that built the image; empty if another engine or none is used now.

    The statement is public. So it leaves out the engine's address, which may contain the name of a user or of a machine.
    """
    if tools.engine_or_none() is None or tools.engine_name != record.engine:
        return ""
    return f"{tools.engine.product} {tools.engine.info.version}"
