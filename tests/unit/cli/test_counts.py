"""Sentences with a count are right for one thing, too."""

from __future__ import annotations

import pytest

from envbuild.cli import audit, lock_check
from envbuild.model.vulnerabilities import Audit, Vulnerability


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 locks exist, and the matrix accepts them"),
        (1, "1 lock exists, and the matrix accepts it"),
        (2, "2 locks exist, and the matrix accepts them"),
    ],
)
def test_accepted_locks(count: int, text: str) -> None:
    assert lock_check.accepted_text(count) == text


@pytest.mark.parametrize(
    ("advisories", "checked", "text"),
    [
        (1, 1, "x: 1 advisory about 1 of 1 package, by 2 OSV records in db"),
        (2, 30, "x: 2 advisories about 1 of 30 packages, by 2 OSV records in db"),
    ],
)
def test_advisories(advisories: int, checked: int, text: str) -> None:
    found = Vulnerability(package="pillow", version="9.0", advisory="CVE-1", aliases=(), fixed_in=(), summary="")
    audited = Audit(database="2 OSV records in db", checked=checked, findings=(found,) * advisories, unchecked=())
    assert audit.audit_text("x", audited).splitlines()[0] == text
