"""Search local copies of the OSV database. A copy is a folder or a zip with one JSON record for each advisory.

Format of the records: https://ossf.github.io/osv-schema/
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import Version

from envbuild.audit import records, severity
from envbuild.audit.debian_version import DebianVersion
from envbuild.errors import InvalidInputError
from envbuild.model.vulnerabilities import Audit, Vulnerability

PYPI = "PyPI"
_SHOWN = 20  # maximum number of bad records that are listed by name; further bad records are only counted
_MALFORMED = (ValueError, TypeError, AttributeError, LookupError)


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditedPackage:
    """One installed package as databases identify it. ``ecosystem`` is in OSV's terms (``PyPI``, ``Debian:12``).

    For a package of the distribution, ``name`` and ``version`` are the name and version of its source package.
    """

    ecosystem: str
    name: str
    version: str


def search(places: Sequence[Path], packages: Sequence[AuditedPackage]) -> Audit:
    """Return the advisories about ``packages`` in the databases. Withdrawn advisories are left out.

    Unusable records are skipped and listed as unchecked. If no record is about an ecosystem, the packages of this ecosystem
    are also listed as unchecked. Raises :class:`InvalidInputError` for a database without any record.
    """
    unreadable = [package for package in packages if not _is_readable(package)]
    packages = [package for package in packages if package not in unreadable]
    wanted: dict[tuple[str, str], list[AuditedPackage]] = {}
    for package in packages:
        wanted.setdefault((package.ecosystem, _name(package.ecosystem, package.name)), []).append(package)
    found: dict[tuple[str, ...], Vulnerability] = {}
    bad = _Bad()
    covered: set[str] = set()
    total = 0
    for place in places:
        count = 0
        for each in records.read(place):
            if isinstance(each, records.Bad):
                bad.add(each)
                continue
            name, record = each
            try:
                covered.update(_ecosystems(record))
                for finding in _findings(record, wanted):
                    found[finding.ecosystem, finding.package, finding.version, finding.advisory] = finding
            except _MALFORMED as error:
                bad.add(records.Bad(name=name, why=f"does not have the form of an OSV record: {error}"))
                continue
            count += 1
        if not count:
            raise _empty(place, bad)
        total += count
    odd = (f"{each.name} {each.version!r}, which is not a valid version in {each.ecosystem}" for each in unreadable)
    unchecked = (*bad.told(), *_uncovered(packages, covered), *odd)
    return Audit(
        database=f"{total} OSV record{'' if total == 1 else 's'} in {', '.join(place.name for place in places)}",
        checked=sum(_is_covered(package, covered) for package in packages),
        findings=tuple(found[key] for key in sorted(found)),
        unchecked=unchecked,
    )


class _Bad:
    """Records that could not be used: the first few of them, and the number of all of them."""

    def __init__(self) -> None:
        self.first: list[records.Bad] = []
        self.count = 0

    def add(self, one: records.Bad) -> None:
        self.count += 1
        if len(self.first) < _SHOWN:
            self.first.append(one)

    def told(self) -> Iterator[str]:
        for one in self.first:
            yield f"the record {one.name!r}, which {one.why[:200]}"
        if self.count > len(self.first):
            yield f"{self.count - len(self.first)} more records that cannot be read"


def _empty(place: Path, bad: _Bad) -> InvalidInputError:
    if bad.first:
        return InvalidInputError(
            f"{place} contains no usable OSV record; {bad.first[0].name!r} {bad.first[0].why[:200]}.",
            code="bad-advisory",
            hint="Fetch the database again.",
        )
    return InvalidInputError(
        f"{place} contains no OSV records.",
        code="no-advisories",
        hint="Give a folder of JSON records, or the zip that osv.dev offers for PyPI. An empty database would find nothing.",
    )


def _ecosystems(record: Mapping[str, Any]) -> Iterator[str]:
    for affected in record.get("affected") or ():
        package = affected.get("package") or {}
        yield str(package.get("ecosystem", ""))


def _is_readable(package: AuditedPackage) -> bool:
    try:
        _order_of(package.ecosystem)(package.version)
    except ValueError:
        return False
    return True


def _is_covered(package: AuditedPackage, covered: set[str]) -> bool:
    return any(is_about(ecosystem, package.ecosystem) for ecosystem in covered)


def _uncovered(packages: Sequence[AuditedPackage], covered: set[str]) -> Iterator[str]:
    for ecosystem in sorted({package.ecosystem for package in packages}):
        ours = [package for package in packages if package.ecosystem == ecosystem]
        if not _is_covered(ours[0], covered):
            yield f"{len(ours)} packages were not checked: the database has no records for {ecosystem}"


def is_about(ecosystem: str, ours: str) -> bool:
    """Whether advisories of the ecosystem ``ecosystem`` apply to packages of the ecosystem ``ours``.

    For Ubuntu, the two names may differ, because advisories also name the support plan. For example, advisories of
    ``Ubuntu:22.04:LTS`` and of ``Ubuntu:Pro:22.04:LTS`` apply to packages of ``Ubuntu:22.04``.
    """
    if ecosystem == ours:
        return True
    family, _, version = ours.partition(":")
    return bool(version) and (ecosystem.startswith(f"{ours}:") or ecosystem.startswith(f"{family}:Pro:{version}"))


def _findings(record: Mapping[str, Any], wanted: Mapping[tuple[str, str], Sequence[AuditedPackage]]) -> Iterator[Vulnerability]:
    """Yield the findings of one record. At the end, raise :class:`ValueError` if it is unknown for any package whether the
    record covers this package."""
    if record.get("withdrawn"):
        return
    known = {ecosystem for ecosystem, _ in wanted}
    unknown: ValueError | None = None
    for affected in record.get("affected") or ():
        package = affected.get("package") or {}
        ecosystem, name = str(package.get("ecosystem", "")), str(package.get("name", ""))
        for ours in (one for one in known if is_about(ecosystem, one)):
            for each in wanted.get((ours, _name(ours, name)), ()):
                try:
                    if affects(affected, each.version, ours):
                        yield _finding(record, affected, each)
                except ValueError as error:
                    unknown = error
    if unknown is not None:
        raise unknown


def _name(ecosystem: str, name: str) -> str:
    return str(canonicalize_name(name)) if ecosystem == PYPI else name


def affects(affected: Mapping[str, Any], version: str, ecosystem: str = PYPI) -> bool:
    """Whether an ``affected`` object of a record covers ``version``.

    The object covers a version if its list of versions or one of its ranges contains the version. Ranges are compared in the
    order of the ecosystem's versions. Raises :class:`ValueError` if the answer is unknown. The answer is unknown if
    ``version`` or a bound of a range cannot be parsed. The answer is also unknown if the object has neither versions nor such a
    range, for example if it has only a range of commits.
    """
    order = _order_of(ecosystem)
    listed = affected.get("versions") or ()
    ranges = [each for each in affected.get("ranges") or () if each.get("type") == "ECOSYSTEM"]
    if not listed and not ranges:
        raise ValueError("the advisory has neither versions nor a range of versions")
    if version in listed:
        return True
    ours = order(version)
    if any(_same(ours, other, order) for other in listed):
        return True
    return any(_within(ours, each.get("events") or (), order) for each in ranges)


def _order_of(ecosystem: str) -> Callable[[str], Any]:
    return Version if ecosystem == PYPI else DebianVersion


def _same(ours: Any, listed: str, order: Callable[[str], Any]) -> bool:
    try:
        other = order(listed)
    except ValueError:  # a list has every published version, even a version that PEP 440 does not allow
        return False
    return bool(other == (Version(ours.public) if isinstance(ours, Version) else ours))


def _within(ours: Any, events: Sequence[Mapping[str, str]], order: Callable[[str], Any]) -> bool:
    """Whether the version ``ours`` is in a range. As OSV defines it, the sorted events of a range switch between vulnerable and
    not vulnerable."""
    vulnerable = False
    bounds: list[tuple[Any, str]] = []
    for event in events:
        for kind, text in event.items():
            if kind == "introduced" and text == "0":
                vulnerable = True
            elif kind in ("introduced", "fixed", "last_affected"):
                bounds.append((order(text), kind))
    for bound, kind in sorted(bounds, key=lambda pair: pair[0]):
        if kind == "introduced" and ours >= bound:
            vulnerable = True
        elif (kind == "fixed" and ours >= bound) or (kind == "last_affected" and ours > bound):
            vulnerable = False
    return vulnerable


def _finding(record: Mapping[str, Any], affected: Mapping[str, Any], package: AuditedPackage) -> Vulnerability:
    ranges = [each for each in affected.get("ranges") or () if each.get("type") == "ECOSYSTEM"]
    events = [event for each in ranges for event in each.get("events") or ()]
    text = str(record.get("summary") or record.get("details") or "").strip()
    return Vulnerability(
        package=package.name,
        version=package.version,
        advisory=str(record.get("id", "")),
        aliases=tuple(sorted(map(str, record.get("aliases") or ()))),
        fixed_in=tuple(dict.fromkeys(str(event["fixed"]) for event in events if "fixed" in event)),
        summary=text.splitlines()[0] if text else "",
        ecosystem=package.ecosystem,
        severity=severity.of(record, affected),
        published=_day(record.get("published")),
    )


def _day(text: Any) -> str:
    """The day of a time in RFC 3339 form; empty for any other value."""
    try:
        return datetime.date.fromisoformat(str(text)[:10]).isoformat()
    except ValueError:
        return ""
