"""Audits against a local OSV database, by the rules of https://ossf.github.io/osv-schema/#evaluation."""

from __future__ import annotations

import json
import os
import tracemalloc
import zipfile
from dataclasses import replace
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
    git = {"type": "GIT", "events": [{"introduced": "0"}]}
    assert not database.affects({"ranges": [git], "versions": ["2.0"]}, "1.0")
    for unknown in ({"ranges": [git]}, {}):
        with pytest.raises(ValueError, match="neither versions nor a range"):
            database.affects(unknown, "1.0")


def test_the_pip_in_the_image_is_audited_too(tmp_path: Path) -> None:
    pip = replace(PACKAGE, name="pip", version="20.3.4", filename="pip-20.3.4-py2.py3-none-any.whl")
    lock = replace(LOCK, prefixes=(replace(LOCK.prefixes[0], pip=pip), *LOCK.prefixes[1:]))
    affected = {"package": {"ecosystem": "PyPI", "name": "pip"}, "versions": ["20.3.4"]}
    write(tmp_path, record(affected=[affected]))
    found = audit(lock, databases=[tmp_path], service="")
    assert [(each.package, each.version) for each in found.findings] == [("pip", "20.3.4")]


@pytest.mark.parametrize("packed", [False, True])
def test_a_finding(tmp_path: Path, packed: bool) -> None:
    place = write(tmp_path, record(), record(id="PYSEC-2", withdrawn="2020-01-01T00:00:00Z"), record(id="X", affected=[]))
    if packed:
        place = tmp_path / "all.zip"
        with zipfile.ZipFile(place, "w") as archive:
            for path in tmp_path.glob("*.json"):
                archive.write(path, path.name)
    found = audit(LOCK, databases=[place], service="osv")
    (finding,) = found.findings
    assert (finding.package, finding.version, finding.advisory) == (PACKAGE.name, PACKAGE.version, "PYSEC-1")
    assert finding.aliases == ("CVE-2",) and finding.summary == "words"
    assert found.checked == len({(a.name, a.version) for prefix in LOCK.prefixes for a in prefix.artifacts})
    assert found.unchecked, "the base's own packages are not in such a database"


def test_another_ecosystem_is_another_package(tmp_path: Path) -> None:
    affected = {"package": {"ecosystem": "npm", "name": PACKAGE.name}, "versions": [PACKAGE.version]}
    assert audit(LOCK, databases=[write(tmp_path, record(affected=[affected]))], service="osv").findings == ()


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
        audit(LOCK, databases=[place], service="osv")
    assert caught.value.code == code and caught.value.hint


SYSTEM = LOCK.environment.system
ECOSYSTEM = f"{SYSTEM.family.capitalize()}:{SYSTEM.version}"
SOURCES = [("libssl3", "openssl", "3.0.11-1~deb12u2"), ("openssl", "openssl", "3.0.11-1~deb12u2"), ("tini", "tini", "0.19.0-1")]


def of_the_system(*events: dict[str, str], ecosystem: str = ECOSYSTEM, name: str = "openssl") -> dict[str, Any]:
    ranges = [{"type": "ECOSYSTEM", "events": list(events)}]
    return record(id="DSA-1", affected=[{"package": {"ecosystem": ecosystem, "name": name}, "ranges": ranges}])


def test_packages_of_the_distribution_are_found_by_their_source(tmp_path: Path) -> None:
    place = write(tmp_path, of_the_system({"introduced": "0"}, {"fixed": "3.0.11-1~deb12u3"}))
    found = audit(LOCK, databases=[place], service="osv", sources=SOURCES)
    (finding,) = found.findings
    assert (finding.ecosystem, finding.package, finding.fixed_in) == (ECOSYSTEM, "openssl", ("3.0.11-1~deb12u3",))
    assert found.checked == 2, "each source once"
    assert any("no records for PyPI" in text for text in found.unchecked)


@pytest.mark.parametrize("ecosystem", ["Debian:1", "Debian", f"{ECOSYSTEM}0", "Ubuntu:Pro:99.04:LTS"])
def test_another_release_is_another_ecosystem(tmp_path: Path, ecosystem: str) -> None:
    place = write(tmp_path, of_the_system({"introduced": "0"}, ecosystem=ecosystem), record())
    found = audit(LOCK, databases=[place], service="osv", sources=SOURCES)
    assert {finding.ecosystem for finding in found.findings} == {"PyPI"}
    assert any(f"no records for {ECOSYSTEM}" in text for text in found.unchecked)


def test_support_of_ubuntu_is_in_the_name_of_its_ecosystem() -> None:
    assert database.is_about("Ubuntu:22.04:LTS", "Ubuntu:22.04") and database.is_about("Ubuntu:Pro:22.04:LTS", "Ubuntu:22.04")
    assert not database.is_about("Ubuntu:22.10", "Ubuntu:22.04") and not database.is_about("Debian:12", "Debian:1")


def clean(tmp_path: Path, *more: dict[str, Any]) -> Path:
    other = [{"package": {"ecosystem": "PyPI", "name": "unheard-of"}, "versions": ["1"]}]
    return write(tmp_path, record(affected=other), of_the_system({"introduced": "0"}, name="unheard-of"), *more)


def test_only_what_was_checked_entirely_is_clean(tmp_path: Path) -> None:
    assert audit(LOCK, databases=[clean(tmp_path)], service="osv", sources=SOURCES).is_clean
    unread = audit(LOCK, databases=[clean(tmp_path)], service="osv", why_no_sources="the disk is full")
    assert unread.unchecked[0] == f"the packages of {SYSTEM.name}: the disk is full" and not unread.is_clean
    assert not audit(LOCK, databases=[clean(tmp_path)], service="osv", sources=[]).is_clean, "it has no dpkg"


MALFORMED: list[Any] = [
    "{",
    "[" * 100_000,
    "[]",
    "{}",
    '{"id": 5}',
    '{"id": "A", "affected": 5}',
    '{"id": "A", "affected": [5]}',
    '{"id": "A", "affected": [{"package": "text"}]}',
    json.dumps(record(affected=[{"package": {"ecosystem": "PyPI", "name": PACKAGE.name}, "ranges": 5}])),
    json.dumps(
        record(
            affected=[
                {"package": {"ecosystem": "PyPI", "name": PACKAGE.name}, "ranges": [{"type": "ECOSYSTEM", "events": [5]}]}
            ]
        )
    ),
    json.dumps(
        record(
            affected=[
                {
                    "package": {"ecosystem": "PyPI", "name": PACKAGE.name},
                    "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "not a version"}]}],
                }
            ]
        )
    ),
    json.dumps(of_the_system({"introduced": "not a version"})),
    "\0\0",
    " " * ((16 << 20) + 1),
]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("text", MALFORMED, ids=range(len(MALFORMED)))
def test_a_bad_record_is_named_and_skipped_and_not_clean(tmp_path: Path, text: str, packed: bool) -> None:
    place = clean(tmp_path, of_the_system({"introduced": "3"}))
    (place / "odd.json").write_text(text)
    if packed:
        place = tmp_path / "all.zip"
        with zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in tmp_path.glob("*.json"):
                archive.write(path, path.name)
    found = audit(LOCK, databases=[place], service="osv", sources=SOURCES)
    assert [finding.package for finding in found.findings] == ["openssl"], "the records beside it count"
    (unchecked,) = found.unchecked
    assert "'odd.json'" in unchecked and not found.is_clean


def test_what_is_no_regular_file_is_named_and_nothing_waits(tmp_path: Path) -> None:
    place = clean(tmp_path)
    os.mkfifo(place / "pipe.json")
    (place / "zero.json").symlink_to("/dev/zero")
    (place / "loop").symlink_to(place)
    (place / "gone.json").symlink_to(place / "nowhere")
    found = audit(LOCK, databases=[place], service="osv", sources=SOURCES)
    assert sorted(text.split("'")[1] for text in found.unchecked) == ["gone.json", "pipe.json", "zero.json"]
    with pytest.raises(EnvbuildError) as caught:
        audit(LOCK, databases=[Path("/dev/zero")], service="osv")
    assert caught.value.code == "bad-database"


def test_a_zip_with_a_damaged_entry_is_read_to_its_end(tmp_path: Path) -> None:
    folder = clean(tmp_path, of_the_system({"introduced": "3"}))
    place = tmp_path / "all.zip"
    with zipfile.ZipFile(place, "w") as archive:
        archive.writestr("broken.json", json.dumps({"id": "here is a text to damage"}))
        for path in folder.glob("*.json"):
            archive.write(path, path.name)
    place.write_bytes(place.read_bytes().replace(b"a text to damage", b"a text is damage", 1))
    found = audit(LOCK, databases=[place], service="osv", sources=SOURCES)
    assert len(found.findings) == 1 and "broken.json" in found.unchecked[0]


def test_a_zip_that_lists_too_much_is_refused_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "all.zip"
    with zipfile.ZipFile(place, "w") as archive:
        for number in range(100):
            archive.writestr(f"{number}.json", json.dumps(record(id=f"A-{number}")))
    assert audit(LOCK, databases=[place], service="osv").findings
    monkeypatch.setattr(database.records, "LARGEST_DIRECTORY", 1000)
    monkeypatch.setattr(zipfile, "ZipFile", lambda *_: pytest.fail("it was opened"))
    with pytest.raises(EnvbuildError, match="contains too many files"):
        audit(LOCK, databases=[place], service="osv")


def test_the_memory_for_a_large_database_is_that_for_a_small_one(tmp_path: Path) -> None:
    padding = "x" * 200_000
    for number in range(300):
        (tmp_path / f"{number}.json").write_text(json.dumps(record(id=f"A-{number}", details=padding, affected=[])))
    tracemalloc.start()
    try:
        assert "300 OSV records" in audit(LOCK, databases=[tmp_path], service="osv").database
        assert tracemalloc.get_traced_memory()[1] < 20_000_000, "60 MB were read, with room for one record"
    finally:
        tracemalloc.stop()


def test_many_bad_records_are_counted(tmp_path: Path) -> None:
    place = clean(tmp_path)
    for number in range(50):
        (place / f"odd-{number}.json").write_text("{")
    unchecked = audit(LOCK, databases=[place], service="osv", sources=SOURCES).unchecked
    assert len(unchecked) == 21 and unchecked[-1] == "30 more records that cannot be read"
