"""Check the user's files that are copied into an image: their sources, their targets, and the contents of folders."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

from envbuild import yaml_reader
from envbuild.model.custom import CopiedFile

# Files that tools write into the user's folder, and that must not be copied.
_LEFT_OUT = {".git", ".envbuild", "__pycache__", ".ipynb_checkpoints"}
_TARGET = re.compile(r"/[A-Za-z0-9._+@-]+(/[A-Za-z0-9._+@-]+)*/?")
# Folders of the image to which no user's file may be copied: folders of envbuild, whose files the lock lists one by one,
# folders of the kernel, and folders for files that exist only at run time.
_TAKEN = ("/opt/env", "/opt/envs", "/opt/envbuild", "/proc", "/sys", "/dev", "/run", "/tmp")  # noqa: S108 - in the image


def copied_file(table: yaml_reader.Table, folder: Path) -> CopiedFile | None:
    """Read one entry of the key ``files``. If the file cannot be copied, add a problem to ``table`` and return None."""
    source, target = table.text("source"), table.text("target")
    table.finish()
    if not source or not target:
        return None
    found = inside(table, "source", source, folder)
    whole = target + Path(source).name if target.endswith("/") and found and not found.is_dir() else target.rstrip("/")
    if not _TARGET.fullmatch(target) or posixpath.normpath(whole) != whole:
        table.problem(f"{target!r} is not an absolute path in the image, of letters, digits and . _ + @ -", "target")
    elif taken := next((place for place in _TAKEN if whole == place or whole.startswith(f"{place}/")), None):
        table.problem(f"{taken} is reserved: choose another target, such as /workspace/", "target")
    elif found is not None and _readable(table, found, folder):
        ending = "/" if found.is_dir() else ""
        return CopiedFile(source=posixpath.normpath(source) + ending, target=whole + ending)
    return None


def inside(table: yaml_reader.Table, key: str, text: str, folder: Path) -> Path | None:
    """Return the path of the file or folder ``text`` in ``folder``.

    If nothing has this path, or the path is outside ``folder``, add a problem to ``table`` and return None.
    """
    path = folder / text
    if Path(text).is_absolute() or not _within(path, folder):
        table.problem(f"{text} is outside the folder of this file; only files in that folder or below can be copied", key)
    elif not path.exists():
        table.problem(f"{text} does not exist", key)
    else:
        return path
    return None


def contents(folder: Path, copied: CopiedFile) -> Iterator[tuple[str, Path]]:
    """Yield pairs (path below the target, file to copy), sorted by name. The path is empty if ``copied`` is a single file.

    Links are followed; :func:`copied_file` has checked that they do not lead out of ``folder``.
    """
    start = folder / copied.source
    if not copied.source.endswith("/"):
        yield "", start
        return
    for path in _walk(start):
        yield path.relative_to(start).as_posix(), path


def _walk(start: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(start):
        folders[:] = sorted(name for name in folders if name not in _LEFT_OUT)
        links = [name for name in folders if Path(parent, name).is_symlink()]  # os.walk does not follow links: report them
        yield from (Path(parent, name) for name in sorted([*names, *links]))


def _readable(table: yaml_reader.Table, found: Path, folder: Path) -> bool:
    """Whether ``found``, and every file below it, can be copied and is inside the user's folder."""
    below = list(_walk(found)) if found.is_dir() else [found]
    if not below:
        table.problem(f"{found.relative_to(folder)} contains no files", "source")
    for path in below:
        if not _within(path, folder):
            table.problem(f"{path.relative_to(folder)} is a link that leads outside the folder of this file", "source")
        elif not path.is_file():
            table.problem(
                f"{path.relative_to(folder)} is not a file, or is a link to a folder: name the folder itself", "source"
            )
        elif not os.access(path, os.R_OK):
            table.problem(f"{path.relative_to(folder)} cannot be read", "source")
        else:
            continue
        return False
    return bool(below)


def _within(path: Path, folder: Path) -> bool:
    try:
        return path.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError, ValueError):  # a loop of links, or an invalid file name
        return False
