"""Measure wheels of the package index: from parts of the file if its server can send parts, otherwise from a download."""

from __future__ import annotations

import io
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from envbuild.errors import UnknownNameError, UsageError
from envbuild.index import remote_file
from envbuild.index.limits import SMALL_FILE_BYTES
from envbuild.matrix.online import published
from envbuild.measure.damage import DamagedError
from envbuild.measure.measuring import Measured, damaged, libraries_in, measure, measure_wheel, opened
from envbuild.model.progress import OnProgress

_PREFIX = ".measure-"
_TAIL = 66 * 2**10  # the end of a zip's directory and its longest comment

if TYPE_CHECKING:
    from envbuild.index.client import Index
    from envbuild.index.project_pages import IndexFile


@contextmanager
def room(downloads: Path) -> Iterator[Path]:
    """Make a temporary folder in ``downloads`` and remove it afterwards, with those that killed runs left a day ago."""
    downloads.mkdir(parents=True, exist_ok=True)
    for path in downloads.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            if path.is_dir() and path.stat().st_mtime < time.time() - 86_400:  # no run takes that long
                shutil.rmtree(path, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=downloads, prefix=_PREFIX) as folder:
        yield Path(folder)


def find(index: Index, text: str) -> IndexFile:
    """Find the wheel with a file name, or a wheel of ``PROJECT==VERSION``: the one for the newest Python.

    Raises :class:`UnknownNameError` if the index lacks it, and :class:`UsageError` for other texts.
    """
    if text.endswith(".whl"):
        return _named(index, text)
    project, separator, number = text.partition("==")
    try:
        version = Version(number)
    except InvalidVersion:
        raise UsageError(
            f"{text!r} is neither a file here, nor PROJECT==VERSION.",
            hint="For example: envbuild matrix measure nvidia-nccl-cu12==2.21.5",
        ) from None
    wheels = published.wheels(index.project_files(project.strip())) if separator else {}
    found = wheels.get(version)
    if found is None or found.file is None:
        raise UnknownNameError(
            f"The package index has no wheel of {project.strip()} {version} for Linux on x86-64.",
            code="no-wheel",
            hint=f"It has: {', '.join(map(str, sorted((v for v in wheels if wheels[v].file), reverse=True)[:8])) or 'none'}.",
        )
    return found.file


def measure_published(index: Index, file: IndexFile, folder: Path, on_progress: OnProgress) -> Measured:
    """Measure a file of the index. Temporary files are in ``folder`` and are removed afterwards.

    A wheel is downloaded whole if it consists mostly of libraries: one download is faster than many parts, and its sha256 can
    be compared. For other wheels, and if the disk has too little room, only the libraries are fetched. In that case the sha256
    is taken from the index without a comparison, and each library is checked by its checksum in the wheel.
    """
    with _open(index, file) as stream:
        if stream is not None and (_mostly_else(stream, file.filename) or _has_no_room(file, folder)):
            return measure_wheel(stream, file.filename, folder, file.sha256, on_progress)
    path = index.download(file, folder, on_progress)
    try:
        return measure(path, folder, on_progress)
    finally:
        path.unlink(missing_ok=True)


@contextmanager
def _open(index: Index, file: IndexFile) -> Iterator[io.BufferedIOBase | None]:
    """The file as a stream of parts; None if the index knows no sha256 or its server cannot send parts."""
    stream = None
    if file.sha256:
        stream = remote_file.open_remote(index, file.url, within_s=None, tail=_TAIL, block=SMALL_FILE_BYTES - 1)
    if stream is None:
        yield None
        return
    try:
        with stream:
            yield stream
    except DamagedError as error:
        raise damaged(file.filename, error) from error


def _mostly_else(stream: io.BufferedIOBase, name: str) -> bool:
    """Whether libraries are less than half of a wheel."""
    size = stream.seek(0, io.SEEK_END)
    with opened(stream, name) as archive:
        return 2 * sum(member.compress_size for member in libraries_in(archive)) < size


def _has_no_room(file: IndexFile, folder: Path) -> bool:
    return 3 * (file.size or 0) > shutil.disk_usage(folder).free


def _named(index: Index, name: str) -> IndexFile:
    try:
        project = parse_wheel_filename(name)[0]
    except InvalidWheelFilename as error:
        raise UsageError(f"{name!r} is neither a file here, nor the name of a wheel.", hint=str(error)[:200]) from None
    files: Sequence[IndexFile] = index.project_files(canonicalize_name(project))
    found = next((file for file in files if file.filename == name), None)
    if found is None:
        raise UnknownNameError(f"The package index has no file {name}.", code="no-wheel", hint=f"Give {project}==VERSION.")
    return found
