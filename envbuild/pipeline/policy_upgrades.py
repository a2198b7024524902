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
_GPU_PROOF = "smoke-gpu"  # the kind of proof that an image for the CPU cannot have
_NOWHERE = "the matrix has no other environment with these releases, or with a newer one, that the policy allows"
# Rule → the reason why no command of envbuild can fix a finding of this rule.
_WHY_NONE: Mapping[str, str] = {
    "site": _NOWHERE,
    "end_of_life": _NOWHERE,
    "bases": _NOWHERE,
    "evidence": "an image for the CPU cannot have this proof; an exception can accept this",
    "licences": "no other version was looked for; leave the package out, or accept its licence with an exception",
    "sizes": "no smaller image was looked for; raise the limit of this environment in `sizes`, or accept it with an exception",
}
_RELEASES = 80  # largest number of newer releases of a framework that are tried


def with_upgrades(tools: Tools, policy: Policy, locked: Locked, judged: Judgement, *, today: str) -> Judgement:
    """Return the judgement. Each finding gets the smallest upgrade that fixes it, or the reason why none is known.

    The judgement gets the smallest change that fixes all findings.

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
    findings = []
    for each in judged.findings:
        found = finder.of(each, fixed)
        findings.append(replace(each, upgrade=found) if found else replace(each, no_upgrade=finder.why_none(each)))
    return replace(judged, findings=tuple(findings), upgrade=finder.of_all(findings))


class _Finder:
    """Finds upgrades for one environment.

    All findings about site rules, end of life and bases share one search for another environment.
    """

    def __init__(self, tools: Tools, policy: Policy, locked: Locked, today: str) -> None:
        self._tools, self._policy, self._locked, self._today = tools, policy, locked, today
        self._environment = locked.lock.environment
        self._elsewhere: str | None = None
        self._moves: dict[str, str] = {}  # the sentence about another environment → the name of this environment
        self._wanted: list[str] = []  # the requirements that fix vulnerabilities of packages

    def of(self, finding: PolicyFinding, fixed: Mapping[str, str]) -> str:
        """Return the smallest change that fixes a finding, as a sentence or a command; empty if no change is known."""
        name = self._tools.cli_name(self._environment.name)
        if finding.rule == "vulnerabilities":
            return fixed[finding.package]
        if finding.rule == "evidence":
            if finding.subject == _GPU_PROOF and self._environment.cuda is None:
                return ""
            return f"`envbuild evidence {name} --prove --kinds {finding.subject}`, on a suitable machine"
        if finding.rule == "lock":
            return f"`envbuild lock {name} --relock`"
        if finding.rule in ("site", "end_of_life", "bases"):
            if self._elsewhere is None:
                self._elsewhere = self._other_environment("")
            return self._elsewhere
        return ""

    def of_all(self, findings: Sequence[PolicyFinding]) -> str:
        """Return the smallest change that fixes all ``findings``, as commands; empty if none is known.

        A changed lock needs all proofs again. Another environment, or a new lock, has to be checked after it was locked: its
        other packages may have vulnerabilities, too.
        """
        if not findings or not all(each.upgrade for each in findings):
            return ""
        moves = {self._moves[each.upgrade] for each in findings if each.upgrade in self._moves}
        if moves:
            return f"`envbuild lock {(other := moves.pop())}`, {_then_check(other)}" if len(moves) == 1 else ""
        name, steps = self._tools.cli_name(self._environment.name), []
        if any(each.rule == "lock" for each in findings):
            return f"`envbuild lock {name} --relock`, {_then_check(name)}"
        if self._wanted:
            if len(self._wanted) > 1 and not self._can_be_locked(self._wanted):
                return ""
            packages = " ".join(f"--package {each}" for each in self._wanted)
            steps.append(f"`envbuild lock {name} --upgrade {packages}`")
        lacking = [each.subject for each in findings if each.rule == "evidence"]
        if kinds := [each.kind for each in self._policy.evidence] if self._wanted else lacking:
            steps.append(f"`envbuild evidence {name} --prove --kinds {','.join(dict.fromkeys(kinds))}`")
        return ", then ".join(steps)

    def why_none(self, finding: PolicyFinding) -> str:
        """Return why no change is known that fixes a finding."""
        if finding.rule == "vulnerabilities":
            if not finding.fixed_in:
                return "no release fixes it"
            fixed = f"fixed in {', '.join(finding.fixed_in)}"
            name = self._tools.cli_name(self._environment.name)
            if self._is_pip_alone(finding.package):
                return f"{fixed}; `envbuild lock {name} --relock` pins the newest pip that this Python allows"
            if not self._is_pinned(finding.package):
                return f"{fixed}; `envbuild lock {name} --upgrade --base-image` pins the system packages of today"
            if self._framework_of(finding.package) is not None:
                return f"{fixed}; {_NOWHERE}"
            if not self._offered(finding.package, [finding]):
                return f"{fixed}; the package index does not have this version, or does not answer"
            return f"{fixed}; no version was found that fits the other packages"
        return _WHY_NONE.get(finding.rule, "")

    def _is_pinned(self, package: str) -> bool:
        pinned = {canonicalize_name(each.name) for prefix in self._locked.lock.prefixes for each in prefix.artifacts}
        return canonicalize_name(package) in pinned

    def _is_pip_alone(self, package: str) -> bool:
        """Whether the package is the pip that the image has for its users, and is not installed with the frameworks."""
        own = {canonicalize_name(each.pip.name) for each in self._locked.lock.prefixes if each.pip is not None}
        return canonicalize_name(package) in own and not self._is_pinned(package)

    def of_package(self, package: str, findings: Sequence[PolicyFinding]) -> str:
        """Return the smallest upgrade of ``package`` that fixes all ``findings`` about it; empty if none is known.

        For the package of a framework, this is another environment. For any other package, it is the lowest version that can
        be locked. The text includes the command for the upgrade.
        """
        if not self._is_pinned(package):
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
            self._wanted.append(wanted)
            return f"{package} {version}: `envbuild lock {name} --upgrade --package {wanted}`"
        return ""

    def _can_be_locked(self, wanted: Sequence[str]) -> bool:
        names = [each.partition("==")[0] for each in wanted]
        try:
            packages = [*wanted, *self._other_pins(*names)]
            upgrading.upgrade_environment(self._tools, self._environment, packages=packages, write=False)
        except EnvbuildError:
            return False
        return True

    def _other_pins(self, *packages: str) -> list[str]:
        """Return requirements that fix all packages except ``packages`` at their locked versions.

        With these requirements, the search changes only these packages and ends soon. Frameworks are left out. A package that
        several prefixes have in different versions is left out, too, so its version stays free.
        """
        held: dict[str, set[str]] = {}
        for prefix in self._locked.lock.prefixes:
            for each in prefix.artifacts:
                held.setdefault(str(canonicalize_name(each.name)), set()).add(each.version)
        frameworks = {canonicalize_name(each.package) for each in self._environment.frameworks}
        changed = {*map(canonicalize_name, packages), *frameworks}
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
                sentence = f"{found.name}: `envbuild lock {found.name}`"
                self._moves[sentence] = found.name
                return sentence
        return ""


def _then_check(name: str) -> str:
    return f"then `envbuild check {name}`, which says what is left to fix"


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
