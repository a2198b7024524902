"""Known vulnerabilities of an environment's packages. Audits, statements and the catalogue show these values."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

SEVERITIES = ("critical", "high", "medium", "low", "unknown")  # the worst first


@dataclass(frozen=True, kw_only=True, slots=True)
class Vulnerability:
    """One advisory about one package. ``ecosystem`` is in OSV's terms (``PyPI``, ``Debian:12``).

    ``aliases`` are other names of the advisory; ``fixed_in`` lists the fixed versions and is empty if none is known.
    ``severity`` is critical, high, medium, low or unknown. ``published`` is an ISO date; it is empty if the date is unknown.
    """

    package: str
    version: str
    advisory: str
    aliases: tuple[str, ...]
    fixed_in: tuple[str, ...]
    summary: str
    ecosystem: str = "PyPI"
    severity: str = "unknown"
    published: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Audit:
    """The result of comparing ``checked`` packages with ``database``. ``unchecked`` lists the packages or records that were not
    compared, each with the reason."""

    database: str
    checked: int
    findings: tuple[Vulnerability, ...]
    unchecked: tuple[str, ...]

    @property
    def worst_first(self) -> tuple[Vulnerability, ...]:
        """The findings, sorted by severity."""
        return tuple(sorted(self.findings, key=lambda each: SEVERITIES.index(each.severity)))

    @property
    def counts(self) -> dict[str, int]:
        """The number of findings of each severity, the worst first. Severities without findings are left out."""
        found = Counter(each.severity for each in self.findings)
        return {severity: found[severity] for severity in SEVERITIES if found[severity]}

    @property
    def is_clean(self) -> bool:
        """Whether everything was checked and no vulnerability is known."""
        return bool(self.checked) and not self.findings and not self.unchecked
