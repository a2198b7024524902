"""Files of wheels whose hash in RECORD is known to be wrong. People write them in ``images/wrong-records.yaml``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from envbuild import rule_files, yaml_reader
from envbuild.workspace import WRONG_RECORDS

_SHA256 = r"[0-9a-f]{64}"
_HASH = r"sha256=[A-Za-z0-9_-]{43}"


@dataclass(frozen=True, kw_only=True, slots=True)
class WrongRecord:
    """A file of a wheel that RECORD describes wrongly.

    ``wheel`` is the sha256 (hex) of the wheel, and ``file`` the path in it. ``recorded`` is the hash in RECORD. The wheel
    really contains a file with the hash ``contained``. Both hashes are written as in RECORD: `sha256=` and
    URL-safe base64 without padding.
    """

    wheel: str
    file: str
    recorded: str
    contained: str


def load(images: Path) -> tuple[WrongRecord, ...]:
    """Read ``images/wrong-records.yaml``. Raises :class:`InvalidInputError` with all problems of the file."""
    return rule_files.load(images, WRONG_RECORDS, "The rows about wrong records", _wheels)


def _wheels(table: yaml_reader.Table, sources: set[str]) -> tuple[WrongRecord, ...]:
    return tuple(record for each in table.tables("wheels", required=True) for record in _wheel(each, sources))


def _wheel(table: yaml_reader.Table, sources: set[str]) -> list[WrongRecord]:
    table.text("filename", pattern=r"\S+\.whl")  # for people; the hash identifies the wheel
    table.text("source", choices=sources)
    sha256 = table.text("sha256", pattern=_SHA256)
    found = [_file(each, sha256) for each in table.tables("files", required=True)]
    table.finish()
    return found


def _file(table: yaml_reader.Table, wheel: str) -> WrongRecord:
    found = WrongRecord(
        wheel=wheel,
        file=table.text("file"),
        recorded=table.text("recorded", pattern=_HASH),
        contained=table.text("contained", pattern=_HASH),
    )
    table.finish()
    return found
