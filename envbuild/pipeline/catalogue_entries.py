"""Collects what the catalogue shows about one environment of the checkout."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from envbuild import files
from envbuild.catalogue import model
from envbuild.catalogue.model import (
    CatalogueEntry,
    Choice,
    EndOfSupport,
    File,
    FrameworkEntry,
    InstalledPart,
    Proved,
    Smoke,
    Speed,
)
from envbuild.errors import EnvbuildError
from envbuild.matrix.gpu_code import only_by_ptx
from envbuild.model.environment import Environment
from envbuild.pipeline import end_of_life, evidence, proofs, resolving, status
from envbuild.pipeline.constraints import Constraints
from envbuild.pipeline.stored_locks import Locked
from envbuild.pipeline.tools import Tools
from envbuild.resolve.explain.build_details import details_of

if TYPE_CHECKING:
    from envbuild.model.lock import Artifact, DebianPackage, Lock


def entry_of(tools: Tools, locked: Locked, why: str, *, with_machine: bool) -> CatalogueEntry:
    """Return the catalogue's entry about the environment of a lock, without vulnerabilities.

    With ``with_machine``, the entry includes the proofs and measurements of this machine. ``why`` is the reason for which the
    environment is committed.
    """
    environment = locked.lock.environment
    choices, warnings = _decision(tools, environment)
    code = environment.compute_capability
    return CatalogueEntry(
        name=environment.name,
        why=why,
        frameworks=tuple(_frameworks(tools, environment)),
        python=", ".join(dict.fromkeys(plan.python.version for plan in environment.plans())),
        os=environment.system.name,
        cuda=environment.cuda,
        cudnn=environment.cudnn,
        nccl=environment.nccl,
        driver_min=environment.driver_min,
        sass=code.sass if code else (),
        ptx=code.ptx if code else (),
        only_ptx=only_by_ptx(details_of(tools.matrix, environment)),
        base=environment.base.image,
        base_provider=environment.base.provider,
        base_digest=locked.lock.base.digest or "",
        choices=choices,
        warnings=warnings,
        proofs=tuple(_proofs(tools, environment.name, with_machine=with_machine)),
        ends=tuple(_ends(tools, environment)),
        lock=model.LockEntry(
            sha256=locked.digest,
            missing=tuple(f"{each.what}: {each.why}" for each in locked.lock.missing),
            parts=tuple(part for part in _parts(locked.lock) if part.files),
        ),
        sbom=f"sbom/{environment.name}.cdx.json",
        page=f"environments/{environment.name}.html",
        vulnerabilities=None,
        reports=tuple(_reports(tools, environment.name, locked.digest)) if with_machine else (),
    )


def _decision(tools: Tools, environment: Environment) -> tuple[tuple[Choice, ...], tuple[str, ...]]:
    """Return the reason for each chosen version, and the warnings. Both come from the current matrix; the lock may be older."""
    try:
        found = resolving.resolve_words(tools, [environment.name], Constraints())
    except EnvbuildError as error:
        return (), (f"The current matrix gives no reasons for this environment: {error.message}",)
    if found.environment.name != environment.name:
        return (), (
            f"The current matrix gives no reasons for this environment: it resolves this name to {found.environment.name}.",
        )
    choices = tuple(Choice(what=each.choice, because=each.because, source=each.source) for each in found.reasons)
    return choices, found.warnings


def _frameworks(tools: Tools, environment: Environment) -> Iterator[FrameworkEntry]:
    tables = {table.name: table for table in tools.matrix.frameworks}
    for framework in environment.frameworks:
        table = tables.get(framework.name)
        release = next((each for each in table.releases if each.version == framework.version), None) if table else None
        yield FrameworkEntry(
            name=framework.name,
            title=table.title if table else framework.name,
            version=framework.version,
            package=framework.package,
            released=framework.released,
            source=release.origin.source_of("version") if release else "",
        )


def _proofs(tools: Tools, name: str, *, with_machine: bool) -> Iterator[Proved]:
    recorded = evidence.read(tools.workspace.committed_evidence(name), name)
    subject = proofs.subject_of(tools, name)
    found = evidence.current(recorded, subject).proofs if subject else ()
    for proof in found:
        yield Proved(kind=proof.kind, date=proof.date, engine=proof.engine, where="repository", gpus=proof.gpus)
    known = {proof.kind for proof in found}
    for proof in proofs.held(tools, name).proofs if with_machine else ():
        if proof.kind not in known:
            yield Proved(kind=proof.kind, date=proof.date, engine=proof.engine, where="this machine", gpus=proof.gpus)


def _ends(tools: Tools, environment: Environment) -> Iterator[EndOfSupport]:
    """Yield the end of life of the operating system and of each Python version, if the matrix knows the date."""
    for each in end_of_life.of_platform(tools.matrix, environment):
        if each.date:
            yield EndOfSupport(what=each.what, date=each.date, source=each.source)


def _parts(lock: Lock) -> Iterator[InstalledPart]:
    """Yield the installed parts, in the order of the image's layers. Files that only the build needs are left out."""
    if lock.base.bootstrap is not None:
        yield InstalledPart(
            title=f"{lock.environment.system.name}, the base", files=tuple(map(_deb, lock.base.bootstrap.packages))
        )
    for step in lock.apt.steps if lock.apt else ():
        if not step.build_only:
            yield InstalledPart(title=f"Debian packages: {step.name}", files=tuple(map(_deb, step.packages)))
    base = lock.environment.base
    packages = tuple(
        File(name=each.name, version=each.version, filename="", sha256=each.sha256, size=0, source=each.url or each.repository)
        for each in base.packages
    )
    yield InstalledPart(title="CUDA packages", files=packages)
    fetched = [*base.files, *(file for plan in lock.environment.plans() for file in plan.python.files)]
    remote = (
        File(name=each.url.rpartition("/")[2], version="", filename="", sha256=each.sha256, size=0, source=each.url)
        for each in fetched
    )
    yield InstalledPart(title="archives", files=tuple(remote))
    for prefix in lock.prefixes:
        title = "Python packages" if len(lock.prefixes) == 1 else f"Python packages of {prefix.name}"
        yield InstalledPart(title=title, files=tuple(map(_artifact, prefix.artifacts)))


def _artifact(artifact: Artifact) -> File:
    return File(
        name=artifact.name,
        version=artifact.version,
        filename=artifact.filename,
        sha256=artifact.sha256,
        size=artifact.size or 0,
        source="PyPI" if artifact.index == "default" else artifact.index,
    )


def _deb(package: DebianPackage) -> File:
    return File(
        name=package.name,
        version=package.version,
        filename=package.filename,
        sha256=package.sha256,
        size=package.size,
        source=package.path.partition("/")[0],
    )


def _reports(tools: Tools, name: str, digest: str) -> Iterator[Smoke]:
    """Yield the last smoke report of this machine, if it is about the lock with this ``digest``."""
    path = status.stored_reports(tools, name).get("json")
    if path is None:
        return
    from envbuild import smoketest

    report, problems = smoketest.read_report(files.read_bytes(path))
    if report is not None and not problems and report["environment"].get("lock") == digest:
        yield smoke_of(report)


def smoke_of(report: Mapping[str, Any]) -> Smoke:
    """Return the verdict, the machine and the speed from a smoke report, and the hash of the report."""
    from envbuild.report.view import sentence, speedup, view

    seen = view(report)
    rows = tuple(
        Speed(
            workload=group.title,
            workers=row.workers,
            images_per_s=row.images_per_s,
            speedup=speedup(row) if row.workers > 1 else "",
            efficiency=row.efficiency if row.workers > 1 else None,
            accuracy=row.accuracy,
            verdict=row.verdict,
        )
        for group in seen.groups
        for row in group.rows
    )
    plain = json.dumps(report, sort_keys=True, separators=(",", ":"))
    return Smoke(
        verdict=seen.verdict,
        sentence=sentence(seen),
        started=seen.started,
        machine=_machine(report),
        rows=rows,
        sha256=hashlib.sha256(plain.encode()).hexdigest(),
    )


def _machine(report: Mapping[str, Any]) -> str:
    """Describe the machine by its GPUs, processor and driver. The name of the host is never included."""
    from collections import Counter

    from envbuild.report.values import mapping, mappings, text

    devices = Counter(text(device.get("name")) for device in mappings(report.get("devices")))
    host = mapping(report.get("host"))
    parts = [f"{count} × {name}" for name, count in devices.items() if name]  # noqa: RUF001
    cores = text(host.get("cores_usable"))
    parts += [f"{text(host.get('cpu_model')) or 'processor unknown'}, {cores} cores" if cores else text(host.get("cpu_model"))]
    parts += [f"driver {text(host.get('driver'))}" if text(host.get("driver")) else ""]
    return "; ".join(filter(None, parts))
