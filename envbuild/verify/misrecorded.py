"""Decides about files that differ from RECORD in a wheel whose RECORD is known to be wrong.

``images/wrong-records.yaml`` has the hash that such a file has in the wheel. A file in the image with this hash is right. The
list of modified files contains no hashes, so these few files of the image are hashed once more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from envbuild.model.lock import Lock, Prefix
from envbuild.verify.findings import Findings
from envbuild.wrong_records import WrongRecord

if TYPE_CHECKING:
    from envbuild.engine.client import Engine
    from envbuild.engine.model import ImageInfo

# Python 2.7 and 3.5 can run this, too. The hashes are printed as in RECORD.
_HASH = """
import base64, hashlib, sys
for path in sys.argv[1:]:
    calculated = hashlib.sha256()
    with open(path, 'rb') as stream:
        for piece in iter(lambda: stream.read(1 << 20), b''):
            calculated.update(piece)
    print('sha256=' + base64.urlsafe_b64encode(calculated.digest()).decode('ascii').rstrip('='))
"""


def accept(
    lock: Lock,
    told: dict[str, Any],
    rows: Sequence[WrongRecord],
    hash_files: Callable[[Sequence[str]], Sequence[str]],
    found: Findings,
) -> None:
    """Remove a file from the modified files in ``told`` if it has the hash in its row in ``rows``, and add a note that says so.

    ``hash_files`` returns the hashes of files in the image, as :func:`hashes` does.
    """
    expected = {path: row for prefix in lock.prefixes for path, row in _expected(prefix, told, rows).items()}
    if not expected:
        return
    for (path, row), calculated in zip(expected.items(), hash_files(list(expected)), strict=False):
        if calculated != row.contained:
            continue
        for about in told["prefixes"].values():
            about["modified"] = [item for item in about["modified"] if item["path"] != path]
        found.notes.append(f"{path} differs from RECORD, because RECORD is wrong: the file is the publisher's")


def hashes(engine: Engine, lock: Lock, info: ImageInfo, paths: Sequence[str]) -> list[str]:
    """Return the hashes of files in an image, written as in RECORD. The list is empty if a file cannot be read."""
    program = ["-S", "-s", "-E", "-B", "-c", _HASH, *paths]
    result = engine.run(info.id, program, entrypoint=[lock.environment.python.executable], user="0:0", network="none")
    return result.output.split() if result.code == 0 else []


def _expected(prefix: Prefix, told: Mapping[str, Any], rows: Sequence[WrongRecord]) -> dict[str, WrongRecord]:
    """The modified files of ``prefix`` that a row describes, by their path in the image."""
    about = told["prefixes"].get(prefix.path) or {}
    modified = {item["path"] for item in about.get("modified", ())}
    locked = {artifact.sha256 for artifact in prefix.artifacts}
    places = ((f"{site}/{row.file}", row) for row in rows if row.wheel in locked for site in about.get("sites", ()))
    return {path: row for path, row in places if path in modified}
