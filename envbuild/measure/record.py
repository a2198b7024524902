"""Find files that the RECORD of a wheel describes wrongly, because the publisher changed them after RECORD was written."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import zipfile
from typing import NamedTuple

from envbuild.measure.damage import DamagedError

_RECORD_BYTES = 32 * 2**20
_PIECE = 2**20
_EDITED = ("METADATA", "WHEEL", "RECORD")  # `verify` and the composer accept changes of these files


class WrongRow(NamedTuple):
    """A file with another size than in RECORD: its hash in RECORD, and its real hash in the same form."""

    file: str
    recorded: str
    contained: str


def wrong_rows(archive: zipfile.ZipFile) -> tuple[WrongRow, ...]:
    """Return the files whose size differs from RECORD. Only these files are unpacked; a file with the right size and a wrong
    hash is not found. A wheel without a readable RECORD has no such files."""
    members = {each.filename: each for each in archive.infolist()}
    path = next((name for name in members if name.count("/") == 1 and name.endswith(".dist-info/RECORD")), None)
    if path is None:
        return ()
    if members[path].file_size > _RECORD_BYTES:
        raise DamagedError(f"has a RECORD of {members[path].file_size} bytes; the limit is {_RECORD_BYTES}")
    edited = {path.removesuffix("RECORD") + name for name in _EDITED}
    found = []
    try:
        rows = list(csv.reader(io.StringIO(archive.read(path).decode("utf-8", errors="replace"), newline="")))
    except csv.Error:
        return ()
    for row in rows:
        if len(row) != 3 or row[0] in edited or row[0] not in members or not row[1].startswith("sha256="):
            continue
        if row[2].isdecimal() and row[2] != str(members[row[0]].file_size):
            found.append(WrongRow(row[0], row[1], _hash_of(archive, row[0])))
    return tuple(found)


def _hash_of(archive: zipfile.ZipFile, name: str) -> str:
    calculated = hashlib.sha256()
    with archive.open(name) as stream:
        while piece := stream.read(_PIECE):
            calculated.update(piece)
    return "sha256=" + base64.urlsafe_b64encode(calculated.digest()).decode().rstrip("=")
