"""Looks up the known vulnerabilities of the packages in many locks. Each package is looked up once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from envbuild.model.lock import Artifact, Lock
from envbuild.model.progress import OnProgress, Progress
from envbuild.model.vulnerabilities import Audit, Vulnerability

_AT_ONCE = 200  # packages in one query to a service, so that the service can answer within the limit of ten minutes

_Key = tuple[str, str]  # the name and the public version of a package; the public version of 2.6.0+cu126 is 2.6.0


class Advisories:
    """The advisories about the Python packages of locks. If there are no databases and no service, nothing is looked up."""

    def __init__(self, databases: Sequence[Path], service: str, on_progress: OnProgress) -> None:
        self._databases = databases
        self._service = service
        self._on_progress = on_progress
        self._known: dict[_Key, list[Vulnerability]] = {}
        self.unchecked: dict[str, None] = {}
        self.database = ""

    @property
    def is_asked(self) -> bool:
        """Whether advisories are looked up at all."""
        return bool(self._databases or self._service)

    def look_up(self, locks: Iterable[Lock]) -> None:
        """Look up the packages of ``locks``, each package once. Raises the errors of :func:`envbuild.audit.audit`."""
        new = {_key(each): each for lock in locks for each in _packages(lock)}
        wanted = {key: each for key, each in sorted(new.items()) if key not in self._known}
        if not self.is_asked or not wanted:
            return
        for answer in self._answers(list(wanted.values())):
            self.database = answer.database
            self.unchecked.update(dict.fromkeys(answer.unchecked))
            for finding in answer.findings:
                self._known.setdefault(_key(finding), []).append(finding)
        for key in wanted:
            self._known.setdefault(key, [])

    def of(self, lock: Lock) -> list[Vulnerability]:
        """Return the advisories about the packages of ``lock``, sorted. Call :meth:`look_up` for this lock before."""
        found = {(each.package, each.advisory): each for key in map(_key, _packages(lock)) for each in self._known.get(key, ())}
        return [found[key] for key in sorted(found)]

    def _answers(self, wanted: Sequence[Artifact]) -> Iterator[Audit]:
        from envbuild.audit import database, service

        total = len(wanted)
        if self._databases:
            self._on_progress(Progress(stage="audit", message="reading the database", done=0, total=total, unit="packages"))
            packages = [
                database.AuditedPackage(ecosystem=database.PYPI, name=each.name, version=each.version) for each in wanted
            ]
            yield database.search(self._databases, packages)
            return
        for first in range(0, total, _AT_ONCE):
            message = f"asking {self._service}"
            self._on_progress(Progress(stage="audit", message=message, done=first, total=total, unit="packages"))
            yield service.ask(self._service, wanted[first : first + _AT_ONCE])


def _packages(lock: Lock) -> Iterator[Artifact]:
    for prefix in lock.prefixes:
        yield from prefix.artifacts


def _key(one: Artifact | Vulnerability) -> _Key:
    name = one.name if isinstance(one, Artifact) else one.package
    try:
        return canonicalize_name(name), Version(one.version).public
    except InvalidVersion:
        return canonicalize_name(name), one.version


def least_fixes(findings: Iterable[Vulnerability]) -> dict[str, Version]:
    """Map each package that has a fixed release to the lowest version that fixes its vulnerabilities. Vulnerabilities without a
    fix are ignored."""
    least: dict[str, Version] = {}
    for finding in findings:
        ours = Version(finding.version)
        newer = [version for version in map(_version, finding.fixed_in) if version is not None and version > ours]
        if newer:
            least[finding.package] = max(min(newer), least.get(finding.package, ours))
    return least


def _version(text: str) -> Version | None:
    try:
        return Version(text)
    except InvalidVersion:
        return None
