"""Measure wheels on the package index. If the server can send parts of files, only parts are read; otherwise, wheels are
downloaded."""

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
_TAIL = 66 * 2**10  # bytes, enough for the end record of a zip with the longest possible comment

if TYPE_CHECKING:
    from envbuild.index.client import Index
    from envbuild.index.project_pages import IndexFile


@contextmanager
def room(downloads: Path) -> Iterator[Path]:
    """Yield a temporary folder in ``downloads``, and remove it afterwards. Also remove temporary folders that killed runs left
    more than a day ago."""
    downloads.mkdir(parents=True, exist_ok=True)
    for path in downloads.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            if path.is_dir() and path.stat().st_mtime < time.time() - 86_400:  # no run takes a day
                shutil.rmtree(path, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=downloads, prefix=_PREFIX) as folder:
        yield Path(folder)


def find(index: Index, text: str) -> IndexFile:
    """Find a wheel by its file name or by ``PROJECT==VERSION``. In the second case, choose the wheel for the newest Python.

    Raises :class:`UnknownNameError` if the index lacks the wheel, and :class:`UsageError` if ``text`` has another form.
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
    """Measure a file on the index. Temporary files are in ``folder`` and are removed afterwards.

    A wheel that consists mostly of libraries is downloaded as a whole: one download is faster than many parts, and its sha256
    can be compared. From other wheels, and if the disk has too little space, only the libraries are fetched. Then the sha256 is
    taken from the index without a comparison, and each library is compared with its checksum in the wheel.
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
    """Yield the file as a stream that fetches parts. Yield None if the index states no sha256, or if the server cannot send
    parts."""
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
    """Whether the libraries of a wheel take less than half of its bytes."""
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
