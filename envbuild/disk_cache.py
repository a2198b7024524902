"""Answers cached between runs, and stamps of files. An answer is used only if its checksum proves it intact.

They are JSON, which cannot execute anything, in one file each: a line that says what made them, then the answer in parts, each
read when it is asked for. A file that is damaged, or made by another program, counts as absent.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from envbuild import files
from envbuild.errors import EnvbuildError

FORMAT = 2
_LARGEST = 256 * 2**20  # the compiled matrix has 5 MB
_KEPT = 16  # those of other checkouts and overlays; older ones are removed


class Kept:
    """The parts of a kept answer, by number; :attr:`about` is what was noted beside them."""

    def __init__(self, about: Any, parts: Sequence[bytes]) -> None:
        self.about = about
        self._parts = parts

    def __len__(self) -> int:
        return len(self._parts)

    def part(self, number: int) -> Any:
        """One part, decoded now."""
        return json.loads(self._parts[number])


def program(*sources: Path) -> str:
    """What an answer depends on beside its input: the program, by size and time of the ``.py`` files in folders and files."""
    stamps: list[list[Any]] = [[FORMAT]]
    for source in sources:
        for path in sorted(source.rglob("*.py")) if source.is_dir() else [source]:
            try:
                status = path.stat()
            except OSError:
                continue
            stamps.append([str(path), status.st_size, status.st_mtime_ns])
    return hashlib.sha256(json.dumps(stamps).encode()).hexdigest()


def recall(path: Path, made_by: str) -> Kept | None:
    """What :func:`keep` wrote to ``path`` for the same ``made_by``; None where there is nothing that can be believed."""
    try:
        head, _, payload = files.read_bytes(path, _LARGEST).partition(b"\n")
        header = json.loads(head)
        if header["made_by"] != made_by or header["payload"] != hashlib.sha256(payload).hexdigest():
            return None
        return Kept(header["about"], payload.splitlines())
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None


def keep(path: Path, made_by: str, parts: Iterable[Any], about: Any = None) -> None:
    """Write an answer, whole or not at all; a home that cannot be written is no reason to fail."""
    payload = b"\n".join(json.dumps(part, separators=(",", ":")).encode() for part in parts)
    header = {"made_by": made_by, "payload": hashlib.sha256(payload).hexdigest(), "about": about}
    try:
        files.write_atomic(path, json.dumps(header).encode() + b"\n" + payload)
        others = sorted(path.parent.glob("*.json"), key=lambda each: each.stat().st_mtime_ns, reverse=True)
        for old in others[_KEPT:]:
            old.unlink(missing_ok=True)
    except (EnvbuildError, OSError):
        return


def stamp(places: Iterable[Path]) -> tuple[str, int]:
    """A digest that changes when any file at or below ``places`` changes, and the time of the newest change. It reads no file.

    Like git's index, it uses paths, sizes, inodes and both times: no program can set the time of the last status change.
    """
    found: list[tuple[str, int, int, int, int]] = []
    open_folders = [str(place) for place in places]
    while open_folders:
        path = open_folders.pop()
        try:
            status = os.stat(path)  # noqa: PTH116 - a Path for each of a thousand files would take most of the time
            if stat.S_ISDIR(status.st_mode):
                open_folders += [entry.path for entry in os.scandir(path) if entry.name != "__pycache__"]
                continue
        except OSError:
            continue
        found.append((path, status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns))
    newest = max((max(each[3:]) for each in found), default=0)
    return hashlib.sha256(json.dumps(sorted(found)).encode()).hexdigest(), newest
