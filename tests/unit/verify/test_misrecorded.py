"""Files that differ from RECORD because RECORD is wrong."""

from __future__ import annotations

from typing import Any

import pytest
from verify_locks import lock as make_lock
from verify_locks import told

from envbuild.verify import misrecorded
from envbuild.verify.findings import Findings
from envbuild.wrong_records import WrongRecord

LOCK = make_lock()
SITE = "/opt/env/lib/python3.5/site-packages"
PATH = f"{SITE}/toy/lib.so"
REAL = "sha256=" + "A" * 43


def row(wheel: str = next(each.sha256 for each in LOCK.prefixes[0].artifacts), file: str = "toy/lib.so") -> WrongRecord:
    return WrongRecord(wheel=wheel, file=file, recorded="sha256=" + "B" * 43, contained=REAL)


def story(*paths: str) -> dict[str, Any]:
    found = told()
    found["prefixes"]["/opt/env"] |= {"sites": [SITE], "modified": [{"path": path, "of": "toy"} for path in paths]}
    return found


def left(found: dict[str, Any]) -> list[str]:
    return [item["path"] for item in found["prefixes"]["/opt/env"]["modified"]]


def test_a_file_with_the_hash_of_the_publishers_file_is_accepted_with_a_note() -> None:
    contents, found = story(PATH, "/opt/env/other"), Findings()
    misrecorded.accept(LOCK, contents, [row()], lambda paths: [REAL for _ in paths], found)
    assert left(contents) == ["/opt/env/other"]
    assert found.notes == [f"{PATH} differs from RECORD, because RECORD is wrong: the file is the publisher's"]


@pytest.mark.parametrize("hashes", [["sha256=" + "C" * 43], []], ids=["another hash", "the file cannot be read"])
def test_any_other_content_stays_a_difference(hashes: list[str]) -> None:
    contents, found = story(PATH), Findings()
    misrecorded.accept(LOCK, contents, [row()], lambda _paths: hashes, found)
    assert left(contents) == [PATH] and not found.notes


@pytest.mark.parametrize(
    "other", [row(wheel="f" * 64), row(file="toy/other.so")], ids=["a row of another wheel", "a row of another file"]
)
def test_no_other_row_applies_and_then_nothing_is_hashed(other: WrongRecord) -> None:
    contents, found = story(PATH), Findings()
    misrecorded.accept(LOCK, contents, [other], lambda _paths: pytest.fail("nothing needs a hash"), found)
    assert left(contents) == [PATH]
