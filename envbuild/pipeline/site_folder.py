"""Writes the folder of a static site. The site is written to a temporary folder, which then replaces the old folder."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterable
from pathlib import Path

from envbuild import files, guard
from envbuild.errors import UsageError

LIST = "files.txt"  # lists all files of the site, so that a later run knows the files that it may replace
_MARKER = "catalogue.json"
_SHOWN = 5
_AT_FDCWD, _EXCHANGE = -100, 2  # AT_FDCWD and RENAME_EXCHANGE, the constants for renameat2(2)
_NO_EXCHANGE = (errno.ENOSYS, errno.EINVAL, errno.EPERM)


def require_replaceable(folder: Path) -> None:
    """Raise :class:`UsageError` (``not-a-catalogue``) if ``folder`` contains files that envbuild did not write for a site."""
    if not os.path.lexists(folder):
        return
    if folder.is_symlink() or not folder.is_dir():
        raise UsageError(f"{folder} is not a folder.", code="not-a-catalogue", hint="Name a new folder.")
    try:
        found = set(_files_in(folder))
        listed = _listed(folder)
    except OSError as error:
        raise UsageError(
            f"Cannot read {folder}: {error.strerror or error}.", code="not-a-catalogue", hint="Name another folder."
        ) from error
    if not found:
        return
    strange = sorted(found - listed)
    if strange or _MARKER not in found:
        some = ", ".join(strange[:_SHOWN]) + (f" and {len(strange) - _SHOWN} more" if len(strange) > _SHOWN else "")
        raise UsageError(
            f"{folder} contains files that do not belong to a catalogue{f': {some}' if some else ''}.",
            code="not-a-catalogue",
            hint="Name a new folder, or move these files away: envbuild replaces the whole folder.",
        )


def write(folder: Path, contents: Iterable[tuple[str, str]]) -> int:
    """Write the files (path, text) to a temporary folder, and move this folder to ``folder``. Return the number of files.

    If the process is killed at any moment, the folder has either the whole earlier site or the whole new site. Raises the
    errors of :func:`require_replaceable` and :func:`files.write_atomic`.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with guard.temporary_folder(f".{folder.name}.", folder.parent) as new:
            site = new / "site"
            paths = [_write(site, path, text) for path, text in contents]
            _write(site, LIST, "".join(f"{path}\n" for path in sorted([*paths, LIST])))
            _sync(site)
            require_replaceable(folder)
            _put(site, folder)
            _sync(folder.parent)
    except OSError as error:
        raise files.explain_os_error(error, folder) from error
    return len(paths) + 1


def _write(site: Path, path: str, text: str) -> str:
    place = site / path
    place.parent.mkdir(parents=True, exist_ok=True)
    with files.open_new(place) as stream:
        stream.write(text.encode())
        stream.flush()
        os.fsync(stream.fileno())
    return path


def _put(site: Path, folder: Path) -> None:
    """Exchange the two folders. The earlier site is then in the temporary folder, and is removed with it."""
    if not folder.is_dir():
        site.rename(folder)
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(_AT_FDCWD, os.fsencode(site), _AT_FDCWD, os.fsencode(folder), _EXCHANGE) == 0:
        return
    number = ctypes.get_errno()
    if number not in _NO_EXCHANGE:
        raise OSError(number, os.strerror(number), str(folder))
    # This file system cannot exchange folders. For a moment, the site does not exist, but an incomplete site never exists.
    folder.rename(site.parent / "earlier")
    site.rename(folder)


def _sync(folder: Path) -> None:
    """Write the directory entries of a folder to the disk, so that they survive a loss of power."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _files_in(folder: Path) -> Iterable[str]:
    for place, folders, names in os.walk(folder, onerror=_fail):
        links = [name for name in folders if (Path(place) / name).is_symlink()]
        yield from (str((Path(place) / name).relative_to(folder)) for name in (*names, *links))


def _fail(error: OSError) -> None:
    raise error


def _listed(folder: Path) -> set[str]:
    path = folder / LIST
    return set(files.read_text(path).splitlines()) if path.is_file() else set()
