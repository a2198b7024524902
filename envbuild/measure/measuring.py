"""Measure a wheel or a shared library: what it needs, and for which GPUs it has kernels.

A wheel's libraries are unpacked one after another to a temporary file. The file is read in parts, so a library of a gigabyte
takes only a few megabytes of memory.
"""

from __future__ import annotations

import email.parser
import io
import os
import re
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from envbuild.errors import InvalidInputError
from envbuild.files import sha256_of
from envbuild.measure import built_with, elf, gpu_code, processor, record
from envbuild.measure.damage import DamagedError
from envbuild.model.progress import OnProgress, Progress, ignore_progress

# Limits in bytes. The largest library in a wheel so far has 1.3 GB. One byte of deflated data unpacks to at most 1,032 bytes.
_LARGEST_LIBRARY, _ALL_LIBRARIES, _RATIO = 8 * 2**30, 32 * 2**30, 1032
_DIRECTORY_BYTES, _MOST_MEMBERS, _METADATA_BYTES = 32 * 2**20, 200_000, 4 * 2**20
_PIECE = 2**20
_SHARED = re.compile(r"\.so(?:\.[\w.]+)?$")
# The name of a project becomes the name of a file. https://packaging.python.org/en/latest/specifications/name-normalization/
_PROJECT = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?")
_LINUX, _MUSL = re.compile(r"(?:many)?linux\w*_x86_64"), re.compile(r"musllinux\w*_x86_64")
# Matches NVIDIA's own libraries. A wheel may contain them beside the libraries of the framework.
_OF_NVIDIA = re.compile(
    r"lib(?:cu(?:dart|blas|blaslt|dnn\w*|fft\w*|pti|rand|solver\w*|sparse\w*|tensor\w*|file\w*|inj\w*)"
    r"|nccl|nvrtc\S*|nvjitlink|nvtoolsext|nvjpeg|nvshmem\S*|npp\w*|nvblas)[-.]",
    re.IGNORECASE,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredLibrary:
    """One library: its path in the wheel or its file name, what it needs (also from the processor), and its GPU code."""

    path: str
    size: int
    needs: elf.Needs
    code: gpu_code.Reading
    processor: processor.Processor

    @property
    def of_nvidia(self) -> bool:
        """Whether this is one of NVIDIA's own libraries, by its name."""
        return any(_OF_NVIDIA.match(name) for name in (self.needs.soname, PurePosixPath(self.path).name) if name)

    @property
    def hides_code(self) -> bool:
        """Whether envbuild cannot read most of the GPU code in this library, because of its format."""
        return self.of_nvidia and gpu_code.hides_code(self.size, self.needs.fatbins, self.needs.data)


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """A measured file. If it is not a wheel, ``project``, ``version``, ``tags``, ``requires_python``, ``wrong_record`` and
    ``built_with`` are empty."""

    filename: str
    sha256: str
    size: int
    project: str
    version: str
    tags: tuple[str, ...]
    requires_python: str
    libraries: tuple[MeasuredLibrary, ...]
    wrong_record: tuple[record.WrongRow, ...] = ()
    built_with: tuple[built_with.BuiltWith, ...] = ()

    @property
    def lists(self) -> tuple[gpu_code.GpuList, ...]:
        """The lists of GPUs of all libraries. NVIDIA's own libraries are left out, unless no other library has GPU code. Then
        the lists are empty if most kernels of one of them cannot be read: the few other kernels show nothing about it."""
        other = [each for library in self.libraries if not library.of_nvidia for each in library.code.lists]
        if not other and self.hidden:
            return ()
        return gpu_code.merged(other or [each for library in self.libraries for each in library.code.lists])

    @property
    def own(self) -> gpu_code.OwnCode | None:
        """The GPUs for which the framework itself was compiled; None if there is no GPU code."""
        return gpu_code.own_code(self.lists) or (gpu_code.UNREADABLE if self.unread or self.hidden else None)

    @property
    def hidden(self) -> tuple[str, ...]:
        """The libraries of NVIDIA whose kernels cannot be read."""
        return tuple(each.path for each in self.libraries if each.hides_code)

    @property
    def own_of_libraries(self) -> tuple[tuple[str, gpu_code.OwnCode], ...]:
        """For each library with kernels of the framework: its path, and the GPUs for which it was compiled."""
        own = ((each.path, gpu_code.own_lists(each.code.lists)) for each in self.libraries if not each.of_nvidia)
        return tuple((path, found) for path, lists in own if (found := gpu_code.own_code(lists)) is not None)

    @property
    def unread(self) -> tuple[str, ...]:
        """The libraries without a list of sections, whose GPU code and constants could not be read."""
        return tuple(each.path for each in self.libraries if not each.needs.has_sections)

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks about the file, in words."""
        is_for_all = bool(self.tags) and not any(_LINUX.fullmatch(tag.rpartition("-")[2]) for tag in self.tags)
        text = "its name says that it is for every system, but it contains libraries for Linux on x86-64"
        unread = (
            f"{path} has no list of sections. UPX may have packed it. Its GPU code, NCCL and processor are not known"
            for path in self.unread
        )
        hidden = (f"most GPU code of {path} is in a form that cannot be read: its GPUs are not known" for path in self.hidden)
        return ((text,) if is_for_all and self.libraries else ()) + (*unread, *hidden)

    def instruction_sets(self) -> list[str]:
        """The instruction sets that at least one library uses whenever this library is loaded."""
        return sorted({name for library in self.libraries for name in library.processor.certain})

    def highest(self, field: str) -> str:
        """The highest version that any library needs; empty if no library needs one. ``field`` is ``glibc``, ``glibcxx`` or
        ``cxxabi``."""
        found = [text for library in self.libraries if (text := str(getattr(library.needs.symbols, field)))]
        return max(found, key=lambda text: tuple(map(int, text.split("."))), default="")


def measure(path: Path, folder: Path, on_progress: OnProgress = ignore_progress) -> Measured:
    """Measure a file. Temporary files are written to ``folder``.

    Raises :class:`InvalidInputError` (``measure-damaged``) if the file is damaged, or neither a wheel nor a library.
    """
    try:
        with path.open("rb") as stream:
            head = stream.read(64)
        if elf.is_elf(head):
            return _bare(path)
        if head[:2] != b"PK":
            raise DamagedError("is neither a wheel nor a shared library for x86-64")
        with path.open("rb") as stream:
            return measure_wheel(stream, path.name, folder, sha256_of(path), on_progress)
    except DamagedError as error:
        raise damaged(path.name, error) from error


def damaged(name: str, error: DamagedError) -> InvalidInputError:
    """Convert ``error``, which is about the file ``name``, to an error for users."""
    return InvalidInputError(
        f"{name} {error}.", code="measure-damaged", hint="Download the file again, and compare its sha256 with the index's."
    )


def measure_wheel(
    stream: IO[bytes] | io.BufferedIOBase, name: str, folder: Path, sha256: str, on_progress: OnProgress = ignore_progress
) -> Measured:
    """Measure a wheel, which is read from a seekable stream.

    Raises :class:`DamagedError`, or :class:`InvalidInputError` (``measure-platform``) if the wheel is not for Linux on x86-64.
    """
    size = stream.seek(0, io.SEEK_END)
    with opened(stream, name) as archive:
        message = email.parser.Parser().parsestr(_metadata(archive), headersonly=True)
        project, version = str(message.get("Name", "")).strip(), str(message.get("Version", "")).strip()
        tags = _checked_tags(name, project, version)
        libraries = tuple(_libraries(archive, folder, name, on_progress))
        wrong_record, versions = record.wrong_rows(archive), built_with.read(archive)
    return Measured(
        filename=name,
        sha256=sha256,
        size=size,
        project=project,
        version=version,
        tags=tags,
        requires_python=message.get("Requires-Python", "")[:200],
        libraries=libraries,
        wrong_record=wrong_record,
        built_with=versions,
    )


@contextmanager
def opened(stream: IO[bytes] | io.BufferedIOBase, name: str) -> Iterator[zipfile.ZipFile]:
    """Open a wheel, after a check of its directory. Errors of zipfile become :class:`DamagedError`."""
    size = stream.seek(0, io.SEEK_END)
    if not name.endswith(".whl"):
        raise DamagedError("is a zip archive, but no wheel: its name must end with .whl")
    try:
        _check_directory(stream, size)
        with zipfile.ZipFile(stream) as archive:
            _check_members(archive.infolist(), size)
            yield archive
    except DamagedError:
        raise
    except (zipfile.BadZipFile, EOFError, NotImplementedError, ValueError, RuntimeError, zlib.error) as error:
        raise DamagedError(f"is not a readable wheel ({str(error)[:200] or type(error).__name__})") from error


def libraries_in(archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    """The members of a wheel that, by their names, are shared libraries."""
    return [each for each in archive.infolist() if _SHARED.search(each.filename) and not each.is_dir()]


def _bare(path: Path) -> Measured:
    library = _library(path, path.name)
    return Measured(
        filename=path.name,
        sha256=sha256_of(path),
        size=library.size,
        project="",
        version="",
        tags=(),
        requires_python="",
        libraries=(library,),
    )


def _library(path: Path, name: str) -> MeasuredLibrary:
    needs = elf.read(path)
    with path.open("rb") as stream:
        number = stream.fileno()
        code = gpu_code.read_sections(lambda begin, size: os.pread(number, size, begin), needs.fatbins)
        size = os.fstat(number).st_size
        used = processor.read(stream, size) if needs.has_sections else processor.UNKNOWN
        return MeasuredLibrary(path=name, size=size, needs=needs, code=code, processor=used)


def _libraries(archive: zipfile.ZipFile, folder: Path, name: str, on_progress: OnProgress) -> Iterator[MeasuredLibrary]:
    possible = libraries_in(archive)
    total, done = sum(each.file_size for each in possible), 0
    for member in possible:
        on_progress(Progress(stage="measure", message=name, done=done, total=total, unit="bytes"))
        done += member.file_size
        with archive.open(member) as packed:
            head = packed.read(64)
            if not elf.is_elf(head):  # skips linker scripts, and libraries for other systems
                continue
            with _unpacked(packed, head, member, folder) as path:
                try:
                    yield _library(path, member.filename)
                except DamagedError as error:
                    raise DamagedError(f"contains {member.filename}, which {error}") from error


@contextmanager
def _unpacked(packed: IO[bytes], head: bytes, member: zipfile.ZipInfo, folder: Path) -> Iterator[Path]:
    """Yield a temporary file with the content of ``member``. ``head`` is the beginning of the content, which was already
    read."""
    free = shutil.disk_usage(folder).free
    if member.file_size > free - 2**28:
        raise InvalidInputError(
            f"{member.filename} needs {member.file_size >> 20} MB of temporary space, and {free >> 20} MB are free.",
            code="measure-space",
            hint="Free some space in envbuild's cache folder, or set ENVBUILD_HOME to a folder on another disk.",
        )
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".measure-") as out:
        out.write(head)
        while piece := packed.read(_PIECE):
            out.write(piece)
        out.flush()
        yield Path(out.name)


def _check_directory(stream: IO[bytes] | io.BufferedIOBase, size: int) -> None:
    """Refuse an archive without an end record, or with a huge directory, because zipfile loads the whole directory into
    memory."""
    stream.seek(max(0, size - 22 - 65535))
    tail = stream.read(22 + 65535)
    at = tail.rfind(b"PK\5\6")
    if at < 0 or len(tail) - at < 22:
        raise DamagedError("is truncated, or no wheel: the end of its directory is missing")
    length = int.from_bytes(tail[at + 12 : at + 16], "little")
    if tail[max(0, at - 20) : at].startswith(b"PK\6\7"):  # the locator of a zip64 record; zipfile trusts the size in the record
        length = _zip64_length(stream, size - len(tail) + at - 20)
    if length > _DIRECTORY_BYTES:
        raise DamagedError(f"has a directory of {length} bytes; at most {_DIRECTORY_BYTES} are read")
    stream.seek(0)


def _zip64_length(stream: IO[bytes] | io.BufferedIOBase, locator: int) -> int:
    """The size of the directory by the zip64 record, which wheels with more than 65,535 files have. zipfile looks for the
    record directly before its locator."""
    begin = max(0, locator - 56)
    stream.seek(begin)
    record64 = stream.read(76)
    if not record64.startswith(b"PK\6\6") or int.from_bytes(record64[64:72], "little") != begin:
        raise DamagedError("has a zip64 directory at another place than it says")
    return int.from_bytes(record64[40:48], "little")


def _check_members(members: list[zipfile.ZipInfo], size: int) -> None:
    if len(members) > _MOST_MEMBERS:
        raise DamagedError(f"has {len(members)} files; at most {_MOST_MEMBERS} are read")
    for member in members:
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):  # other methods could expand without limit
            raise DamagedError(f"contains {member.filename[:200]!r}, compressed by a method that wheels do not use")
        lies = member.compress_size > size or member.file_size > member.compress_size * _RATIO + 1024
        if not 0 <= member.header_offset < size:
            raise DamagedError(f"has {member.filename[:200]!r} at byte {member.header_offset}, but only {size} bytes")
        if lies or member.file_size > _LARGEST_LIBRARY:
            raise DamagedError(f"says that {member.filename[:200]!r} has {member.file_size} bytes, which is impossible")
    if sum(member.compress_size for member in members) > size:
        raise DamagedError("has files that overlap each other")
    if sum(member.file_size for member in members) > _ALL_LIBRARIES:
        raise DamagedError(f"unpacks to more than {_ALL_LIBRARIES >> 30} GB")


def _metadata(archive: zipfile.ZipFile) -> str:
    found = [
        each for each in archive.infolist() if each.filename.count("/") == 1 and each.filename.endswith(".dist-info/METADATA")
    ]
    if len(found) != 1:
        raise DamagedError(f"has {len(found)} METADATA files instead of one")
    if found[0].file_size > _METADATA_BYTES:
        raise DamagedError(f"has a METADATA file of {found[0].file_size} bytes; the limit is {_METADATA_BYTES}")
    return archive.read(found[0]).decode("utf-8", errors="replace")


def _checked_tags(name: str, project: str, version: str) -> tuple[str, ...]:
    """Return the tags in a wheel's file name. Raises an error if the wheel's METADATA has another project or version, or if
    Linux on x86-64 cannot use the wheel."""
    try:
        named, numbered, _, tags = parse_wheel_filename(name)
        same = _PROJECT.fullmatch(project) and (canonicalize_name(project), Version(version)) == (named, numbered)
    except (InvalidWheelFilename, InvalidVersion) as error:
        raise DamagedError(f"has no proper name or version ({str(error)[:200]})") from error
    if not same:
        raise DamagedError(f"is {project[:80]!r} {version[:40]!r} by its METADATA, which its file name contradicts")
    if not any(tag.platform == "any" or _LINUX.fullmatch(tag.platform) for tag in tags):
        musl = any(_MUSL.fullmatch(tag.platform) for tag in tags)
        raise InvalidInputError(
            f"{name} is for Linux with the C library musl, but images have glibc."
            if musl
            else f"{name} is not for Linux on x86-64.",
            code="measure-platform",
            hint="Give the wheel with `manylinux` and `x86_64` in its name: images are made for these alone.",
        )
    return tuple(sorted(map(str, tags)))
