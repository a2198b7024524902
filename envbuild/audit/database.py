"""A local copy of the OSV database: https://ossf.github.io/osv-schema/, one JSON record per advisory, in a folder or a zip."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from envbuild.audit.findings import Answer, Finding
from envbuild.errors import InvalidInputError, UsageError
from envbuild.model import Artifact

_ECOSYSTEM = "PyPI"


def search(place: Path, packages: Sequence[Artifact]) -> Answer:
    """What the database knows of ``packages``; withdrawn advisories do not count."""
    wanted: dict[str, list[Artifact]] = {}
    for artifact in packages:
        wanted.setdefault(canonicalize_name(artifact.name), []).append(artifact)
    found: dict[tuple[str, str, str], Finding] = {}
    records = 0
    for record in _records(place):
        records += 1
        if record.get("withdrawn"):
            continue
        for affected in record.get("affected", ()):
            package = affected.get("package", {})
            if package.get("ecosystem") != _ECOSYSTEM:
                continue
            for artifact in wanted.get(canonicalize_name(str(package.get("name", ""))), ()):
                if affects(affected, artifact.version):
                    finding = _finding(record, affected, artifact)
                    found[finding.package, finding.version, finding.advisory] = finding
    if not records:
        raise InvalidInputError(
            f"{place} holds no OSV records.",
            code="no-advisories",
            hint="Give a folder of JSON records, or the zip that osv.dev offers for PyPI. An empty one finds nothing anywhere.",
        )
    findings = [found[key] for key in sorted(found)]
    return Answer(database=f"{records} OSV records in {place.name}", findings=findings, unchecked=())


def affects(affected: dict[str, Any], version: str) -> bool:
    """Whether an ``affected`` object names ``version``, by its list or by a range in the order of PEP 440."""
    try:
        ours = Version(version)
    except InvalidVersion:
        return version in affected.get("versions", ())
    if any(_same(ours, listed) for listed in affected.get("versions", ())):
        return True
    ranges = [each for each in affected.get("ranges", ()) if each.get("type") == "ECOSYSTEM"]
    return any(_within(ours, each.get("events", ())) for each in ranges)


def _same(ours: Version, listed: str) -> bool:
    try:
        return Version(ours.public) == Version(listed)
    except InvalidVersion:
        return False


def _within(ours: Version, events: Sequence[dict[str, str]]) -> bool:
    """OSV's own evaluation: sorted events switch the state on and off."""
    vulnerable = False
    order = []
    for event in events:
        for kind, text in event.items():
            if kind in ("introduced", "fixed", "last_affected"):
                order.append((Version("0.dev0") if text == "0" else Version(text), kind))
    for bound, kind in sorted(order, key=lambda pair: pair[0]):
        if kind == "introduced" and ours >= bound:
            vulnerable = True
        elif (kind == "fixed" and ours >= bound) or (kind == "last_affected" and ours > bound):
            vulnerable = False
    return vulnerable


def _finding(record: dict[str, Any], affected: dict[str, Any], artifact: Artifact) -> Finding:
    ranges = [each for each in affected.get("ranges", ()) if each.get("type") == "ECOSYSTEM"]
    events = [event for each in ranges for event in each.get("events", ())]
    text = str(record.get("summary") or record.get("details") or "").strip()
    return Finding(
        package=artifact.name,
        version=artifact.version,
        advisory=str(record.get("id", "")),
        aliases=tuple(sorted(map(str, record.get("aliases", ())))),
        fixed_in=tuple(dict.fromkeys(event["fixed"] for event in events if "fixed" in event)),
        summary=text.splitlines()[0] if text else "",
    )


def _records(place: Path) -> Iterator[dict[str, Any]]:
    for name, content in _files(place):
        try:
            record = json.loads(content)
        except ValueError as error:
            raise InvalidInputError(
                f"{name} in {place} is no OSV record: {error}.", code="bad-advisory", hint="Fetch the database again."
            ) from error
        if isinstance(record, dict) and "affected" in record:
            yield record


def _files(place: Path) -> Iterator[tuple[str, bytes]]:
    try:
        if place.is_dir():
            for path in sorted(place.rglob("*.json")):
                yield str(path.relative_to(place)), path.read_bytes()
            return
        with zipfile.ZipFile(place) as archive:
            for name in sorted(archive.namelist()):
                if name.endswith(".json"):
                    yield name, archive.read(name)
    except (OSError, zipfile.BadZipFile) as error:
        raise UsageError(
            f"{place} cannot be read as an OSV database: {error}.",
            code="bad-database",
            hint="Give a folder of JSON records, or the zip that osv.dev offers for PyPI.",
        ) from error
