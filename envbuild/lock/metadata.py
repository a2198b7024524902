"""Read the metadata of published files without running their code. If possible, wheels are not downloaded for this."""

from __future__ import annotations

import contextlib
import email.parser
import hashlib
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from envbuild import files
from envbuild.errors import EnvbuildError
from envbuild.index import remote_file
from envbuild.index.limits import METADATA_S
from envbuild.index.server_errors import FileUnavailableError
from envbuild.lock import archives, sdist
from envbuild.lock.target import read_requirement
from envbuild.model.progress import OnProgress

if TYPE_CHECKING:
    from envbuild.index.client import Index
    from envbuild.index.project_pages import IndexFile

# The directory of a wheel is at its end. One read of this size (bytes) covers it, except in the largest wheels.
_TAIL = 64 * 1024
_BLOCK = 512 * 1024
# Real packages have at most about 500 requirements, including those of extras.
_MOST_REQUIREMENTS = 5_000


class UnusableFileError(Exception):
    """A file cannot be used: its metadata contradicts its name, or can be found only by running its code."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Metadata:
    """The dependencies that a file declares. Their markers are not evaluated. ``build_requires`` is empty for wheels."""

    requires: tuple[Requirement, ...]
    requires_python: str
    build_requires: tuple[Requirement, ...]


class MetadataReader:
    """Reads metadata through an index, and stores it below ``folder`` for later runs."""

    def __init__(self, index: Index, folder: Path, on_progress: OnProgress, *, whole: bool = True) -> None:
        """If a server cannot send parts of files, its wheels are downloaded. If ``whole`` is false, these wheels are unusable
        instead."""
        self._whole = whole
        self._index = index
        self._folder = folder
        self._on_progress = on_progress
        self._known: dict[str, Metadata | UnusableFileError] = {}

    def know(self, sha256: str, requires: Sequence[str]) -> None:
        """Use ``requires`` as the requirements of the file with this hash, without reading the file."""
        self._known[sha256] = Metadata(requires=tuple(map(read_requirement, requires)), requires_python="", build_requires=())

    def read(self, file: IndexFile, version: Version) -> Metadata:
        """Return the metadata of ``file``, which the index offers as this ``version``. Raises :class:`UnusableFileError`."""
        key = file.sha256 or file.url
        if key not in self._known:
            try:
                self._known[key] = self._read(file, version)
            except UnusableFileError as error:
                self._known[key] = error
        known = self._known[key]
        if isinstance(known, UnusableFileError):
            raise known
        return known

    def _read(self, file: IndexFile, version: Version) -> Metadata:
        try:
            return self._read_file(file, version)
        except (UnusableFileError, FileUnavailableError) as error:
            raise UnusableFileError(str(error)) from error
        except EnvbuildError as error:
            if error.code == "hash-differs":  # leave only this file out; another file of the project may be usable
                raise UnusableFileError(error.message) from error
            raise
        except sdist.UnreadableSdistError as error:
            raise UnusableFileError(f"{file.filename}: {error}") from error
        except OSError:
            raise  # an error of the disk; network errors have been converted to other classes before
        except Exception as error:  # the file is untrusted: parsers may raise any error
            raise UnusableFileError(f"{file.filename}: it is malformed ({type(error).__name__}: {str(error)[:200]})") from error

    def _read_file(self, file: IndexFile, version: Version) -> Metadata:
        if file.filename.endswith(".whl"):
            message = email.parser.Parser().parsestr(self._wheel_text(file), headersonly=True)
            _must_agree(file, version, message.get("Name", ""), message.get("Version", ""))
            return Metadata(
                requires=_requirements(message.get_all("Requires-Dist") or (), file),
                requires_python=message.get("Requires-Python") or "",
                build_requires=(),
            )
        path = self._index.download(file, self._folder / (file.sha256 or "unhashed"), self._on_progress)
        found = sdist.read(path)
        _must_agree(file, version, found.name, found.version)
        return Metadata(
            requires=_requirements(found.requires, file),
            requires_python=found.requires_python,
            build_requires=_requirements(found.build_requires, file),
        )

    def _wheel_text(self, file: IndexFile) -> str:
        kept = self._folder / "metadata" / f"{file.sha256}.txt"
        if file.sha256:
            with contextlib.suppress(OSError, UnicodeDecodeError):  # absent or damaged: read the wheel again
                return files.read_text(kept)
        text = self._served_text(file) or self._inner_text(file)
        if file.sha256:
            files.write_atomic(kept, text)
        return text

    def _served_text(self, file: IndexFile) -> str:
        """Return the METADATA that the index serves as a separate file (PEP 658). If there is none, return an empty text."""
        if file.metadata is None:
            return ""
        try:
            content = self._index.fetch_bytes(f"{file.url}.metadata")
        except FileUnavailableError:
            return ""  # the wheel itself also contains its METADATA
        if file.metadata and hashlib.sha256(content).hexdigest() != file.metadata.removeprefix("sha256="):
            return ""
        return content.decode("utf-8", errors="replace")

    def _inner_text(self, file: IndexFile) -> str:
        remote = remote_file.open_remote(self._index, file.url, within_s=METADATA_S, tail=_TAIL, block=_BLOCK)
        if remote is None and not self._whole:
            raise UnusableFileError(f"{file.filename}: its server does not support requests for parts of files")
        source = remote or self._index.download(file, self._folder / (file.sha256 or "unhashed"), self._on_progress)
        try:
            return archives.wheel_metadata(source)
        except KeyError as error:
            raise UnusableFileError(f"{file.filename}: {error.args[0]}") from error
        except (zipfile.BadZipFile, archives.TooLargeError) as error:
            raise UnusableFileError(f"{file.filename}: it is not a readable wheel ({error})") from error


def _must_agree(file: IndexFile, version: Version, name: str, found: str) -> None:
    # pip and uv refuse such a file, too. So they could not install a lock that contains it.
    try:
        same = canonicalize_name(name) == file.project and Version(found) == version
    except ValueError:  # InvalidVersion is a ValueError
        same = False
    if not same:
        raise UnusableFileError(f"{file.filename}: its metadata names {str(name)[:100]} {str(found)[:100]}")


def _requirements(texts: Sequence[str], file: IndexFile) -> tuple[Requirement, ...]:
    requirements = []
    if len(texts) > _MOST_REQUIREMENTS:
        raise UnusableFileError(f"{file.filename}: it has too many requirements ({len(texts)})")
    for text in texts:
        try:
            requirements.append(read_requirement(text))
        except InvalidRequirement as error:
            raise UnusableFileError(f"{file.filename}: its requirement {text[:200]!r} cannot be read") from error
    return tuple(requirements)
