"""Cache answers between runs. Also compute stamps: values that change if a file changes.

Each answer is one file with several JSON texts, because reading JSON cannot execute code. The first line names the program, and
the length and hash of each part of the answer; it can also have additional data. The parts follow. Each part is checked and
decoded when it is read. A file with a wrong length, or from another program, counts as absent.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from envbuild import files
from envbuild.errors import EnvbuildError

FORMAT = 4
# Two changes within one tick of a file system's clock get the same time. So a stamp is reliable only if its newest change is
# more than these nanoseconds ago.
SETTLED_NS = 2 * 10**9
_LARGEST = 256 * 2**20  # bytes; for comparison, the compiled matrix has 5 MB
_KEPT = 16  # number of answers to keep, because each checkout and overlay has its own; older answers are removed


class CachedParts:
    """The parts of a cached answer, by number; :attr:`about` is additional data."""

    def __init__(self, about: Any, content: bytes, places: Sequence[tuple[int, int, str]]) -> None:
        self.about = about
        self._content = content
        self._places = places

    def __len__(self) -> int:
        return len(self._places)

    def part(self, number: int) -> Any:
        """Decode one part. Raises ValueError if the part is damaged."""
        begin, end, digest = self._places[number]
        part = self._content[begin:end]
        if hashlib.sha256(part).hexdigest() != digest:
            raise ValueError("the cached answer is damaged")
        return json.loads(part)


def program(*sources: Path) -> str:
    """Return a digest of envbuild's own code in ``sources``, computed from the sizes and times of the ``.py`` files.

    A cached answer is valid only for the code that computed it.
    """
    stamps = sorted((path, found.st_size, found.st_mtime_ns) for path, found in _files(sources) if path.endswith(".py"))
    return hashlib.sha256(json.dumps([FORMAT, stamps]).encode()).hexdigest()


def recall(path: Path, made_by: str) -> CachedParts | None:
    """Return what :func:`keep` wrote to ``path`` for the same ``made_by``, or None if there is no intact answer."""
    try:
        content = files.read_bytes(path, _LARGEST)
        begin = content.index(b"\n")
        header = json.loads(content[:begin])
        places = []
        for length, digest in header["parts"]:
            places.append((begin + 1, begin + 1 + length, digest))
            begin += 1 + length
        return CachedParts(header["about"], content, places) if header["made_by"] == made_by and begin == len(content) else None
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None


def keep(path: Path, made_by: str, answer: Iterable[Any], about: Any = None) -> None:
    """Write the parts of an answer atomically; ignore errors, such as a cache folder that is not writable."""
    payload = [json.dumps(part, separators=(",", ":")).encode() for part in answer]
    parts = [(len(part), hashlib.sha256(part).hexdigest()) for part in payload]
    header = {"made_by": made_by, "about": about, "parts": parts}
    try:
        files.write_atomic(path, b"\n".join([json.dumps(header).encode(), *payload]))
        for old in kept_in(path.parent)[_KEPT:]:
            old.unlink(missing_ok=True)
    except (EnvbuildError, OSError):
        return


def kept_in(folder: Path) -> list[Path]:
    """The files of all answers that :func:`keep` wrote to ``folder``, the newest first. Empty if it cannot be read."""
    try:
        return sorted(folder.glob("*.json"), key=lambda each: each.stat().st_mtime_ns, reverse=True)
    except OSError:
        return []


def stamp(places: Iterable[Path]) -> tuple[str, int]:
    """Return a digest that changes when any file below ``places`` changes, and the time of the newest change. No file is read.

    Like git's index, the digest uses paths, sizes, inodes, modification times and status-change times. Programs cannot set the
    status-change time.
    """
    found = sorted((path, each.st_size, each.st_ino, each.st_mtime_ns, each.st_ctime_ns) for path, each in _files(places))
    newest = max((max(each[3:]) for each in found), default=0)
    return hashlib.sha256(json.dumps(found).encode()).hexdigest(), newest


def _files(places: Iterable[Path]) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the path and the status of each file at or below ``places``, in any order, without compiled Python files."""
    paths = [str(place) for place in places]
    while paths:
        path = paths.pop()
        try:
            status = os.stat(path)  # noqa: PTH116 - making a thousand Paths would take most of the time
            if stat.S_ISDIR(status.st_mode):
                paths += [entry.path for entry in os.scandir(path) if entry.name != "__pycache__"]
                continue
        except OSError:
            continue
        yield path, status
