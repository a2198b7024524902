"""The types for a policy, for the facts about an environment, and for the policy's judgement of these facts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from envbuild.model.vulnerabilities import Vulnerability

Rule = Literal[
    "vulnerabilities", "licences", "bases", "registries", "evidence", "end_of_life", "sizes", "site", "exceptions", "lock"
]
# The rules that an exception can name. A policy can also allow that these rules remain unchecked.
RULES: tuple[Rule, ...] = ("vulnerabilities", "licences", "bases", "registries", "evidence", "end_of_life", "sizes", "site")
# The statuses of OpenVEX, without `fixed`: https://github.com/openvex/spec/blob/main/OPENVEX-SPEC.md#status-labels
STATUSES = ("affected", "not_affected", "under_investigation")
JUSTIFICATIONS = (
    "component_not_present",
    "vulnerable_code_not_present",
    "vulnerable_code_not_in_execute_path",
    "vulnerable_code_cannot_be_controlled_by_adversary",
    "inline_mitigations_already_exist",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Vulnerabilities:
    """The rule about vulnerabilities.

    ``deadlines`` maps a severity to the number of days within which a vulnerability must be fixed after its publication. None
    means that vulnerabilities of this severity never have to be fixed.

    The stored result of an audit is used for at most ``answers_valid_days`` days.
    """

    line: int
    deadlines: Mapping[str, int | None]
    answers_valid_days: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Exempted:
    """An exception: until ``expires``, findings of ``rule`` about ``subject`` are accepted.

    ``environments`` are globs of environment names; if it is empty, the exception is for all environments. ``packages`` limits
    an exception about a vulnerability or a licence to some packages; if it is empty, the exception is for all packages.
    """

    line: int
    rule: Rule
    subject: str
    packages: tuple[str, ...]
    environments: tuple[str, ...]
    status: str
    justification: str
    reason: str
    owner: str
    expires: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Allowed:
    """Which values a rule allows.

    A value is refused if it matches one of the globs in ``denied``. Any other value is allowed if it matches one of the globs
    in ``allowed``, or if ``allowed`` is empty.
    """

    line: int
    allowed: tuple[str, ...]
    denied: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Signer:
    """Whose signatures of images count until ``expires``. ``key`` is the file of the public key, as the policy names it: the
    path is relative to the folder of the policy. ``owner`` may be empty."""

    line: int
    key: str
    expires: str
    owner: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Required:
    """A kind of proof that must exist. ``machine`` is a glob of the device or processor on which the proof must have been made;
    it may be empty."""

    line: int
    kind: str
    machine: str


@dataclass(frozen=True, kw_only=True, slots=True)
class EndOfLife:
    """Whether parts that have reached their end of life are refused, and how many days before the end of life the warnings
    begin."""

    line: int
    refuse: bool
    warn_days: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Sizes:
    """The maximum sizes of images, in bytes.

    ``per_environment`` has pairs: a glob of environment names and their maximum size. The first glob that matches counts.
    ``image`` is the maximum size for all other environments. 0 means that there is no maximum.
    """

    line: int
    image: int
    per_environment: tuple[tuple[str, int], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class SiteRule:
    """A rule about the matrix: the site does not use these systems, Pythons, CUDA versions and framework releases.

    ``frameworks`` are pairs (name, condition). ``driver`` is the newest driver of the site's machines.
    """

    at: str
    systems: tuple[str, ...]
    pythons: tuple[str, ...]
    cuda: tuple[str, ...]
    frameworks: tuple[tuple[str, str], ...]
    driver: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    """The content of a ``policy.yaml``. A rule that the file leaves out is None or empty, and nothing is judged by this rule.

    ``unchecked_allowed`` are the rules that may remain unchecked.
    """

    where: str
    vulnerabilities: Vulnerabilities | None = None
    exceptions: tuple[Exempted, ...] = ()
    licences: Allowed | None = None
    bases: Allowed | None = None
    registries: Allowed | None = None
    signers: tuple[Signer, ...] = ()
    evidence: tuple[Required, ...] = ()
    end_of_life: EndOfLife | None = None
    sizes: Sizes | None = None
    site: tuple[SiteRule, ...] = ()
    unchecked_allowed: tuple[Rule, ...] = ()


class Licensed(NamedTuple):
    """A package of the image, with the licences that its metadata states. ``licences`` is empty if the metadata states none."""

    package: str
    licences: tuple[str, ...]


class PartEnd(NamedTuple):
    """The end of life of a part of an environment, such as Python or the system, according to the matrix.

    ``date`` is empty if the matrix has no date. ``ended`` is true if upstream has ended its support without stating a date.
    """

    what: str
    date: str
    ended: bool = False


class PolicyProof(NamedTuple):
    """A valid proof. ``machines`` are the known devices and processors on which the proof was made."""

    kind: str
    machines: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """The known facts about one environment.

    None stands for an unknown value; ``unknown`` maps a rule to the reason why the values for this rule are unknown.
    ``partly_unknown`` lists the packages or records that an audit could not compare. ``against`` has the reasons why site rules
    exclude the environment. ``stale`` has the reasons why its lock is stale.
    """

    name: str
    base: str
    advisories: tuple[Vulnerability, ...] | None = None
    partly_unknown: tuple[str, ...] = ()
    licences: tuple[Licensed, ...] | None = None
    size: int | None = None
    ends: tuple[PartEnd, ...] = ()
    proofs: tuple[PolicyProof, ...] = ()
    against: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()
    repository: str = ""
    unknown: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicyFinding:
    """Something that the policy does not allow. ``aliases`` are other names of ``subject``; an exception can name any of them.

    ``at`` is the line of the policy, as ``file:line``. ``upgrade`` is the smallest change that fixes the finding,
    as a sentence or a command, such as a newer version of a package; it is empty if no such change is known. ``no_upgrade``
    then says why, if a change was looked for.
    """

    rule: Rule
    subject: str
    message: str
    at: str
    package: str = ""
    version: str = ""
    aliases: tuple[str, ...] = ()
    fixed_in: tuple[str, ...] = ()
    upgrade: str = ""
    no_upgrade: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Excused:
    """A finding that an exception accepts."""

    finding: PolicyFinding
    exception: Exempted


@dataclass(frozen=True, kw_only=True, slots=True)
class NotChecked:
    """Something that could not be judged by ``rule``, and why. If ``is_allowed`` is true, the policy accepts this, so the check
    still passes. ``package`` is a package without a stated licence."""

    rule: Rule
    message: str
    is_allowed: bool
    package: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgement:
    """The judgement of one environment. ``upgrade`` is the smallest change that fixes all findings; empty if none is known."""

    name: str
    findings: tuple[PolicyFinding, ...]
    excused: tuple[Excused, ...]
    unchecked: tuple[NotChecked, ...]
    warnings: tuple[str, ...]
    upgrade: str = ""

    @property
    def is_clean(self) -> bool:
        """Whether there are no findings, and everything was checked that the policy requires to be checked."""
        return not self.findings and all(each.is_allowed for each in self.unchecked)

    @property
    def is_checked(self) -> bool:
        """Whether there is a lock that can be read. Without one, nothing about the environment was judged."""
        return all(each.rule != "lock" for each in self.unchecked)
