"""Severities of OSV records. The scores are examples of https://www.first.org/cvss/v3.1/examples and of public advisories."""

from __future__ import annotations

from typing import Any

import pytest

from envbuild.audit import severity


@pytest.mark.parametrize(
    ("vector", "score"),
    [
        ("CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H", 9.8),
        ("CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:C/C:H/I:H/A:H", 10.0),
        ("CVSS:3.1/AV:N/AC:L/PR:N/UI:R/S:C/C:L/I:L/A:N", 6.1),
        ("CVSS:3.1/AV:N/AC:H/PR:N/UI:R/S:U/C:L/I:N/A:N", 3.1),
        ("CVSS:3.1/AV:L/AC:L/PR:L/UI:N/S:U/C:H/I:H/A:H", 7.8),
        ("CVSS:3.1/AV:N/AC:L/PR:L/UI:N/S:C/C:L/I:L/A:N", 6.4),
        ("CVSS:3.0/AV:P/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H", 6.8),
        ("CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:N/I:N/A:N", 0.0),
        ("CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H", None),
        ("CVSS:3.1/AV:X/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H", None),
        ("CVSS:4.0/AV:N/AC:L/AT:N/PR:N/UI:N/VC:H/VI:H/VA:H/SC:N/SI:N/SA:N", None),
        ("", None),
        ("9.8", None),
    ],
)
def test_base_scores(vector: str, score: float | None) -> None:
    assert severity.base_score(vector) == score


@pytest.mark.parametrize(
    ("record", "word"),
    [
        ({"database_specific": {"severity": "MODERATE"}}, "medium"),
        ({"severity": [{"type": "CVSS_V3", "score": "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H"}]}, "critical"),
        ({"database_specific": {"severity": "LOW"}, "severity": [{"type": "CVSS_V4", "score": "CVSS:4.0/AV:N"}]}, "low"),
        ({"severity": "high"}, "unknown"),
        ({"severity": [None, 3, {"type": "CVSS_V3"}]}, "unknown"),
        ({"database_specific": ["severity"]}, "unknown"),
        ({}, "unknown"),
    ],
)
def test_the_severity_of_a_record(record: dict[str, Any], word: str) -> None:
    assert severity.of(record, {}) == word


def test_debian_tells_the_urgency_beside_the_package() -> None:
    assert severity.of({}, {"ecosystem_specific": {"urgency": "high"}}) == "high"
    assert severity.of({}, {"ecosystem_specific": {"urgency": "not yet assigned"}}) == "unknown"
