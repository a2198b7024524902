"""The severity of an advisory: the worst of the words in the record and of the words for the scores of its CVSS vectors.

See https://ossf.github.io/osv-schema/#severity-field and https://www.first.org/cvss/v3.1/specification-document, section 7.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from envbuild.model.vulnerabilities import SEVERITIES

_ORDER = SEVERITIES[::-1]
_WORDS = {"moderate": "medium"}
_IMPACT = {"H": 0.56, "L": 0.22, "N": 0.0}
_VECTOR = {"N": 0.85, "A": 0.62, "L": 0.55, "P": 0.2}
_COMPLEXITY = {"L": 0.77, "H": 0.44}
_PRIVILEGES = {"U": {"N": 0.85, "L": 0.62, "H": 0.27}, "C": {"N": 0.85, "L": 0.68, "H": 0.5}}
_INTERACTION = {"N": 0.85, "R": 0.62}


def of(record: Mapping[str, Any], affected: Mapping[str, Any]) -> str:
    """Return critical, high, medium, low or unknown: the worst severity that the record states for the affected package."""
    found = [*_words(record, affected), *_scored(record), *_scored(affected)]
    return max(found, key=_ORDER.index, default="unknown")


def _words(record: Mapping[str, Any], affected: Mapping[str, Any]) -> Iterator[str]:
    """Yield the severities that the record states in words. GitHub names the field ``severity``, Debian ``urgency``."""
    for part in (record.get("database_specific"), affected.get("database_specific"), affected.get("ecosystem_specific")):
        for key in ("severity", "urgency"):
            text = str(part.get(key, "")).lower() if isinstance(part, Mapping) else ""
            if _WORDS.get(text, text) in _ORDER:
                yield _WORDS.get(text, text)


def _scored(part: Mapping[str, Any]) -> Iterator[str]:
    listed = part.get("severity")
    for each in listed if isinstance(listed, list) else ():
        score = base_score(str(each.get("score"))) if isinstance(each, Mapping) and each.get("type") == "CVSS_V3" else None
        if score is not None:
            yield rating(score)


def rating(score: float) -> str:
    """Return the word for a CVSS score. A score of 0, which means no impact, counts as low."""
    return "low" if score < 4.0 else "medium" if score < 7.0 else "high" if score < 9.0 else "critical"


def base_score(vector: str) -> float | None:
    """The base score of a CVSS 3.0 or 3.1 vector; None for any other text."""
    prefix, _, rest = vector.partition("/")
    metrics = dict(part.split(":", 1) for part in rest.split("/") if ":" in part)
    if prefix not in ("CVSS:3.0", "CVSS:3.1"):
        return None
    try:
        is_changed = {"C": True, "U": False}[metrics["S"]]
        lost = 1.0
        for name in ("C", "I", "A"):
            lost *= 1 - _IMPACT[metrics[name]]
        ease = 8.22 * _VECTOR[metrics["AV"]] * _COMPLEXITY[metrics["AC"]]
        ease *= _PRIVILEGES[metrics["S"]][metrics["PR"]] * _INTERACTION[metrics["UI"]]
    except KeyError:
        return None
    base = 1 - lost
    impact = 7.52 * (base - 0.029) - 3.25 * (base - 0.02) ** 15 if is_changed else 6.42 * base
    if impact <= 0:
        return 0.0
    return _rounded_up(min((1.08 if is_changed else 1.0) * (impact + ease), 10.0))


def _rounded_up(value: float) -> float:
    """Round up to one decimal, as the specification's appendix A defines it."""
    whole = round(value * 100_000)
    return whole / 100_000.0 if whole % 10_000 == 0 else (whole // 10_000 + 1) / 10.0
