"""A policy, the facts about an environment that it judges, and the judgement."""

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
SEVERITIES = ("critical", "high", "medium", "low", "unknown")
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
    """The rule about vulnerabilities. ``deadlines`` are the days from publication to the required fix, by severity. None means
    that a severity never has to be fixed.

    The stored result of an audit is used for at most ``answers_valid_days`` days.
    """

    line: int
    deadlines: Mapping[str, int | None]
    answers_valid_days: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Exempted:
    """An exception: findings of ``rule`` about ``subject`` are accepted until ``expires``, in ``environments`` (globs).

    ``packages`` limits an exception about a vulnerability to some packages; if it is empty, the exception is for all packages.
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
    """Globs of the allowed values, and of the values that are ``denied`` even if they are allowed. An empty list of allowed
    globs allows everything."""

    line: int
    allowed: tuple[str, ...]
    denied: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Required:
    """A kind of proof that must exist, and a glob of the device or processor on which the proof must have been made."""

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
    """The maximum size of an image in bytes. Each key is a glob of environment names."""

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
    """The content of a ``policy.yaml``; a rule that the file leaves out is None or empty, and nothing is judged by it.

    ``unchecked_allowed`` are the rules that may remain unchecked.
    """

    where: str
    vulnerabilities: Vulnerabilities | None = None
    exceptions: tuple[Exempted, ...] = ()
    licences: Allowed | None = None
    bases: Allowed | None = None
    registries: Allowed | None = None
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
    """A part of an environment, such as a Python or a system, with its end of life from the matrix. ``date`` is empty if the
    matrix has no date. ``ended`` is true if upstream has ended the part without stating a date."""

    what: str
    date: str
    ended: bool = False


class PolicyProof(NamedTuple):
    """A valid proof; ``machines`` are the devices and processors on which it is known to have been made."""

    kind: str
    machines: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """The known facts about one environment. None stands for an unknown value; ``unknown`` says, for each rule, why it is
    unknown.

    ``partly_unknown`` lists the packages or records that an audit could not compare.
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
    """Something that the policy does not allow. An exception has to name ``subject``, or one of ``aliases``, its other names.

    ``at`` is the place in the policy, as ``file:line``. ``upgrade`` is the smallest change that fixes the finding, or empty.
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Excused:
    """A finding that an exception accepts."""

    finding: PolicyFinding
    exception: Exempted


@dataclass(frozen=True, kw_only=True, slots=True)
class NotChecked:
    """Something that could not be judged, and why. ``is_allowed`` is true if the policy allows that it remains unchecked."""

    rule: Rule
    message: str
    is_allowed: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgement:
    """The judgement of one environment."""

    name: str
    findings: tuple[PolicyFinding, ...]
    excused: tuple[Excused, ...]
    unchecked: tuple[NotChecked, ...]
    warnings: tuple[str, ...]

    @property
    def is_clean(self) -> bool:
        """Whether there are no findings, and everything was checked that the policy requires to be checked."""
        return not self.findings and all(each.is_allowed for each in self.unchecked)
