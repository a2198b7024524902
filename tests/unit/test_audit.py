"""Audits against a local OSV database, by the rules of https://ossf.github.io/osv-schema/#evaluation."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from render_locks import ALL

from envbuild.audit import audit, database
from envbuild.errors import EnvbuildError

LOCK = ALL["cpu"]()
PACKAGE = LOCK.prefixes[0].artifacts[0]


def record(**changes: Any) -> dict[str, Any]:
    affected = {"package": {"ecosystem": "PyPI", "name": PACKAGE.name.upper()}, "versions": [PACKAGE.version]}
    return {"id": "PYSEC-1", "summary": "words", "aliases": ["CVE-2"], "affected": [affected], **changes}


def write(folder: Path, *records: dict[str, Any]) -> Path:
    for number, each in enumerate(records):
        (folder / f"{number}.json").write_text(json.dumps(each))
    return folder


@pytest.mark.parametrize(
    ("events", "inside", "outside"),
    [
        ([{"introduced": "0"}, {"fixed": "2.0"}], ["0.1", "1.9.post1", "2.0rc1"], ["2.0", "2.0.0", "3"]),
        ([{"introduced": "1.0"}, {"last_affected": "1.5"}], ["1.0", "1.5"], ["0.9", "1.5.1", "1.0rc1"]),
        ([{"introduced": "1"}, {"fixed": "1.2"}, {"introduced": "2"}, {"fixed": "2.3"}], ["1.1", "2.2"], ["1.2", "1.9", "2.3"]),
        ([{"fixed": "2.3"}, {"introduced": "2"}], ["2.0", "2.2.1"], ["1.0", "2.3"]),
        ([{"introduced": "1.10"}], ["1.10", "1.11"], ["1.9"]),
    ],
)
def test_ranges(events: list[dict[str, str]], inside: list[str], outside: list[str]) -> None:
    affected = {"ranges": [{"type": "ECOSYSTEM", "events": events}]}
    assert all(database.affects(affected, version) for version in inside)
    assert not any(database.affects(affected, version) for version in outside)


def test_listed_versions_also_of_a_local_build() -> None:
    assert database.affects({"versions": ["2.6.0"]}, "2.6.0+cu126")
    assert database.affects({"versions": ["2.6"]}, "2.6.0")
    assert not database.affects({"versions": ["2.6.1"]}, "2.6.0+cu126")
    assert not database.affects({"ranges": [{"type": "GIT", "events": [{"introduced": "0"}]}]}, "1.0")


@pytest.mark.parametrize("packed", [False, True])
def test_a_finding(tmp_path: Path, packed: bool) -> None:
    place = write(tmp_path, record(), record(id="PYSEC-2", withdrawn="2020-01-01T00:00:00Z"), record(id="X", affected=[]))
    if packed:
        place = tmp_path / "all.zip"
        with zipfile.ZipFile(place, "w") as archive:
            for path in tmp_path.glob("*.json"):
                archive.write(path, path.name)
    found = audit(LOCK, database=place, service="osv")
    (finding,) = found.findings
    assert (finding.package, finding.version, finding.advisory) == (PACKAGE.name, PACKAGE.version, "PYSEC-1")
    assert finding.aliases == ("CVE-2",) and finding.summary == "words"
    assert found.checked == len({(a.name, a.version) for prefix in LOCK.prefixes for a in prefix.artifacts})
    assert found.unchecked, "the base's own packages are not in such a database"


def test_another_ecosystem_is_another_package(tmp_path: Path) -> None:
    affected = {"package": {"ecosystem": "npm", "name": PACKAGE.name}, "versions": [PACKAGE.version]}
    assert audit(LOCK, database=write(tmp_path, record(affected=[affected])), service="osv").findings == ()


@pytest.mark.parametrize(
    ("content", "code"),
    [(None, "bad-database"), ({}, "no-advisories"), ({"a.json": "{"}, "bad-advisory"), ("zip?", "bad-database")],
)
def test_what_is_no_database_is_refused(tmp_path: Path, content: Any, code: str) -> None:
    place = tmp_path / "database"
    if isinstance(content, dict):
        place.mkdir()
        for name, text in content.items():
            (place / name).write_text(text)
    elif content:
        place.write_text(content)
    with pytest.raises(EnvbuildError) as caught:
        audit(LOCK, database=place, service="osv")
    assert caught.value.code == code and caught.value.hint
