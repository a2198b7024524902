"""Turns the exceptions of a policy into statements of OpenVEX."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from envbuild.policy import judging

if TYPE_CHECKING:
    from envbuild.model.vulnerabilities import Vulnerability
    from envbuild.policy.model import Exempted, Policy


def statement_about(policy: Policy | None, name: str, finding: Vulnerability) -> Mapping[str, str] | None:
    """Return the fields of an OpenVEX statement about the vulnerability ``finding`` in the image of ``name``.

    The fields come from the exception in ``policy`` that accepts this vulnerability. Return None if there is no such exception.
    """
    for each in policy.exceptions if policy is not None else ():
        names = (finding.advisory, *finding.aliases)
        is_about = each.rule == "vulnerabilities" and any(fnmatchcase(one, each.subject) for one in names)
        if is_about and judging.names_package(each, finding.package) and judging.is_about(each, name):
            return _stated(each)
    return None


def _stated(exception: Exempted) -> dict[str, str]:
    notes = f"Accepted by {exception.owner} until {exception.expires}: {exception.reason}"
    found = {"status": exception.status, "status_notes": notes}
    if exception.status == "not_affected":
        found |= {"justification": exception.justification, "impact_statement": exception.reason}
    return found
