"""Finds the smallest change that fixes a finding of a policy. Only changes that can be resolved are named."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from envbuild.errors import EnvbuildError, PublishError
from envbuild.pipeline import upgrading
from envbuild.pipeline.stored_locks import Locked
from envbuild.pipeline.tools import Tools
from envbuild.policy import site_rules
from envbuild.policy.model import Judgement, Policy, PolicyFinding, SiteRule

if TYPE_CHECKING:
    from envbuild.matrix.types import FrameworkTable, Matrix
    from envbuild.model.environment import Environment

_TRIED = 3  # largest number of versions of one package that are tried
_RELEASES = 80  # largest number of newer releases of a framework that are tried


def with_upgrades(tools: Tools, policy: Policy, locked: Locked, judged: Judgement, *, today: str) -> Judgement:
    """Return the judgement. Each finding gets the smallest upgrade that fixes it, if one is known.

    The package index is asked for newer versions of packages.
    """
    if not judged.findings:
        return judged
    finder = _Finder(tools, policy, locked, today)
    by_package: dict[str, list[PolicyFinding]] = {}
    for each in judged.findings:
        if each.rule == "vulnerabilities":
            by_package.setdefault(each.package, []).append(each)
    fixed = {package: finder.of_package(package, found) for package, found in by_package.items()}
    findings = tuple(replace(each, upgrade=finder.of(each, fixed)) for each in judged.findings)
    return replace(judged, findings=findings)


class _Finder:
    """Finds upgrades for one environment.

    All findings about site rules, end of life and bases share one search for another environment.
    """

    def __init__(self, tools: Tools, policy: Policy, locked: Locked, today: str) -> None:
        self._tools, self._policy, self._locked, self._today = tools, policy, locked, today
        self._environment = locked.lock.environment
        self._elsewhere: str | None = None

    def of(self, finding: PolicyFinding, fixed: Mapping[str, str]) -> str:
        """Return the smallest change that fixes a finding, as a sentence or a command; empty if no change is known."""
        name = self._tools.cli_name(self._environment.name)
        if finding.rule == "vulnerabilities":
            return fixed[finding.package]
        if finding.rule == "evidence":
            return f"`envbuild evidence {name} --prove --kinds {finding.subject}`, on a suitable machine"
        if finding.rule == "lock":
            return f"`envbuild lock {name} --relock`"
        if finding.rule in ("site", "end_of_life", "bases"):
            if self._elsewhere is None:
                self._elsewhere = self._other_environment("")
            return self._elsewhere
        return ""

    def of_package(self, package: str, findings: Sequence[PolicyFinding]) -> str:
        """Return the smallest upgrade of ``package`` that fixes all ``findings`` about it; empty if none is known.

        For the package of a framework, this is another environment. For any other package, it is the lowest version that can
        be locked. The text includes the command for the upgrade.
        """
        pinned = {canonicalize_name(each.name) for prefix in self._locked.lock.prefixes for each in prefix.artifacts}
        if canonicalize_name(package) not in pinned:
            return ""
        own = self._framework_of(package)
        if own is not None:
            listed = least_versions(findings)
            return self._other_environment(listed[0], own) if listed else ""
        name = self._tools.cli_name(self._environment.name)
        others = self._other_pins(package)
        for version in self._offered(package, findings)[:_TRIED]:
            wanted = f"{package}=={version}"
            try:
                upgrading.upgrade_environment(self._tools, self._environment, packages=[wanted, *others], write=False)
            except PublishError:
                return ""
            except EnvbuildError:
                continue  # the version is not on the index, or does not fit the other packages
            return f"{package} {version}: `envbuild lock {name} --upgrade --package {wanted}`"
        return ""

    def _other_pins(self, package: str) -> list[str]:
        """Return requirements that fix all other packages at their locked versions.

        With these requirements, the search changes only one package and ends soon. Frameworks are left out. A package that
        several prefixes have in different versions is left out, too, so its version stays free.
        """
        held: dict[str, set[str]] = {}
        for prefix in self._locked.lock.prefixes:
            for each in prefix.artifacts:
                held.setdefault(str(canonicalize_name(each.name)), set()).add(each.version)
        frameworks = {canonicalize_name(each.package) for each in self._environment.frameworks}
        changed = {canonicalize_name(package), *frameworks}
        return [f"{name}=={min(versions)}" for name, versions in held.items() if len(versions) == 1 and name not in changed]

    def _offered(self, package: str, findings: Sequence[PolicyFinding]) -> list[str]:
        """Return the versions on the index that fix all ``findings`` about a package, lowest first.

        Yanked versions and pre-releases are left out.
        """
        from envbuild.lock.available_versions import version_of

        project = str(canonicalize_name(package))
        try:
            files = self._tools.index.project_files(project)
        except EnvbuildError:
            return []  # the index does not answer, or does not have the project
        found = {version_of(each.filename, project) for each in files if not each.yanked}
        return least_versions(findings, [each for each in found if each is not None and not each.is_prerelease])

    def _framework_of(self, package: str) -> str | None:
        wanted = canonicalize_name(package)
        return next((each.name for each in self._environment.frameworks if canonicalize_name(each.package) == wanted), None)

    def _other_environment(self, least: str, framework: str = "") -> str:
        """Return the nearest environment that the policy allows.

        It has the same framework releases with another system, Python or CUDA, or else the next newer release of a framework.
        With ``least``, the release of ``framework`` must be at least this version.
        """
        from envbuild.resolve.request.parser import parse
        from envbuild.resolve.resolution import resolve

        matrix = allowed_matrix(self._tools, self._policy, self._today)
        for text in _requests(matrix, self._environment, least, framework):
            try:
                found = resolve(matrix, parse([text], matrix=matrix)).environment
            except EnvbuildError:
                continue
            if found.name != self._environment.name and bool(found.cuda) == bool(self._environment.cuda):
                return f"{found.name}: `envbuild lock {found.name}`"
        return ""


def allowed_matrix(tools: Tools, policy: Policy, today: str) -> Matrix:
    """Return the matrix without the systems and Pythons that the policy excludes: by site rules, end of life, or base image."""
    rules = list(policy.site)
    if policy.end_of_life is not None and policy.end_of_life.refuse:
        systems = tuple(row.name for row in tools.matrix.systems if _has_ended(row.end_of_life, today))
        pythons = tuple(f"=={row.version}" for row in tools.matrix.pythons if _has_ended(row.end_of_life, today))
        rules.append(_rule(systems, pythons, "it has reached its end of life"))
    if policy.bases is not None:
        from fnmatch import fnmatchcase

        bases = policy.bases
        refused = tuple(
            row.name
            for row in tools.matrix.systems
            if any(fnmatchcase(row.image, each) for each in bases.denied)
            or (bases.allowed and not any(fnmatchcase(row.image, each) for each in bases.allowed))
        )
        rules.append(_rule(refused, (), "its base image is not allowed"))
    return site_rules.apply(tools.matrix_without_site, rules)


def _has_ended(date: str, today: str) -> bool:
    return bool(date) and date < today[: len(date)]


def _rule(systems: tuple[str, ...], pythons: tuple[str, ...], reason: str) -> SiteRule:
    return SiteRule(at="policy:0", systems=systems, pythons=pythons, cuda=(), frameworks=(), driver="", reason=reason)


def _requests(matrix: Matrix, environment: Environment, least: str, framework: str) -> Iterator[str]:
    """Yield requests for environments, nearest first: with the same releases, then with newer releases of ``framework``."""
    tables = {table.name: table for table in matrix.frameworks}
    held = {each.name: each.version for each in environment.frameworks}
    if not held.keys() <= tables.keys():
        return
    changed = framework or environment.frameworks[0].name
    newer = [version for version in _ascending(tables[changed]) if _at_least(version, held[changed], least)]
    versions = [*([held[changed]] if not least else []), *(each for each in newer if each != held[changed])]
    device = f"-cuda{environment.cuda}" if environment.cuda else "-cpu"
    devices = (device, "") if environment.cuda else (device,)  # for GPUs, builds for other CUDA versions come next
    for version, end in itertools.product(versions[: _RELEASES + 1], devices):
        words = (f"{tables[name].short}-{version if name == changed else own}" for name, own in held.items())
        yield "+".join(words) + end


def _ascending(table: FrameworkTable) -> list[str]:
    return list(reversed([release.version for release in table.releases]))


def _at_least(version: str, held: str, least: str) -> bool:
    try:
        return Version(version) >= max(Version(held), Version(least or held))
    except InvalidVersion:
        return False


def least_versions(findings: Sequence[PolicyFinding], offered: Sequence[Version] | None = None) -> list[str]:
    """Return the versions that fix all ``findings`` about one package, lowest first.

    The candidates are the versions in ``offered`` or, without this argument, the versions that the advisories name. An advisory
    may name several fixed versions, one for each major version. A candidate counts as fixed if it is at least the fixed version
    with the same major version, or at least the newest fixed version.
    """
    read = [_versions(each.fixed_in) for each in findings]
    if not all(read):
        return []
    held = max(_versions([each.version for each in findings]), default=None)
    listed = offered if offered is not None else [version for fixed in read for version in fixed]
    every = sorted({version for version in listed if held is None or version > held})
    return [str(version) for version in every if all(_mends(version, fixed) for fixed in read)]


def _mends(version: Version, fixed: Sequence[Version]) -> bool:
    same = [each for each in fixed if each.release[:1] == version.release[:1]]
    return version >= max(fixed) or any(version >= each for each in same)


def _versions(texts: Sequence[str]) -> list[Version]:
    found = []
    for text in texts:
        try:
            found.append(Version(text))
        except InvalidVersion:
            continue
    return found
