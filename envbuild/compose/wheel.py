"""Computes which files the installation of a wheel makes, and at which paths. The `installer` library reads the metadata and
finds the path of each file.

Only metadata and scripts are unpacked for this. The library passes streams from a source to a destination without reading them.
Here, each stream only stands for a member of the archive. All installed files have the same bytes as after an installation by
uv 0.13 or pip 20.3. Tests compare them with installations by both programs.
"""

from __future__ import annotations

import configparser
import io
import posixpath
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, cast

from installer import install
from installer.destinations import WheelDestination
from installer.exceptions import InstallerError
from installer.records import RecordEntry
from installer.sources import WheelContentElement, WheelSource
from installer.utils import SCHEME_NAMES, Scheme, canonicalize_name, parse_metadata_file, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from envbuild.compose.installed_record import InstalledRecord
from envbuild.compose.members import Content, InMemory
from envbuild.compose.model import InstallPlace
from envbuild.compose.scripts import PLACEHOLDER, Script, interpreter, is_replaced, rewrite, with_versions
from envbuild.compose.wheel_zip import WheelMember, WheelZip, bad_wheel
from envbuild.files import PLENTY
from envbuild.wrong_records import WrongRecord

if TYPE_CHECKING:
    import os

    from installer.scripts import ScriptSection

LONGEST_SCRIPT = PLENTY


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or folder at an absolute path of the image. The content of a folder is None."""

    path: str
    content: Content | None
    is_executable: bool = False


def read_entries(
    wheel: WheelZip, place: InstallPlace, *, is_requested: bool, wrong_records: Sequence[WrongRecord] = ()
) -> list[Entry]:
    """All files and folders that the installation of ``wheel`` at ``place`` makes, except parent folders. The contents of files
    are checked later, when they are copied.

    ``is_requested`` is true if a user requested the package by name, and false if it is only a dependency. Raises
    :class:`BuildError` (``bad-wheel``) if the wheel cannot be installed.
    """
    interpreter(place)
    try:
        source = _Source(wheel, place, wrong_records)
        destination = _Destination(source, place)
        metadata = {"INSTALLER": b"uv" if place.installer == "uv" else b"pip\n", **({"REQUESTED": b""} if is_requested else {})}
        install(source, destination, metadata)
        if place.installer == "uv":
            destination.add_empty_folders()
    except (InstallerError, configparser.Error, ValueError, AssertionError) as error:  # of the library, or of the checks above
        raise bad_wheel(wheel.file, f"its metadata is invalid ({type(error).__name__}: {error})".rstrip(".")) from error
    return destination.entries()


class _Stream(io.RawIOBase):
    """Stands for the content of a member, and is never read: a file's bytes go directly from the archive into the layer."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.member_name = name


class _Source(WheelSource):
    def __init__(self, wheel: WheelZip, place: InstallPlace, wrong_records: Sequence[WrongRecord]) -> None:
        self.wheel = wheel
        name = parse_wheel_filename(wheel.file.name)
        super().__init__(name.distribution, name.version)
        self.files = {member.name: WheelMember(wheel, member) for member in wheel.members if not member.is_folder}
        self.folders = [member.name for member in wheel.members if member.is_folder]
        folders = {path.partition("/")[0] for path in self.files if "/" in path}
        found = sorted(folder for folder in folders if folder.endswith(".dist-info"))
        if len(found) != 1:
            raise bad_wheel(wheel.file, f"it has {len(found)} folders of metadata (*.dist-info) instead of one")
        self._dist_info = found[0]
        for needed in ("METADATA", "WHEEL", "RECORD"):
            if f"{self._dist_info}/{needed}" not in self.files:
                raise bad_wheel(wheel.file, f"it has no {self._dist_info}/{needed}")
        self._check_name()
        self.record = InstalledRecord(self._dist_info, self.files.values(), place, wrong_records)

    def _check_name(self) -> None:
        metadata = parse_metadata_file(self.read_dist_info("METADATA"))
        name, version = str(metadata["Name"]), str(metadata["Version"])
        if canonicalize_name(name) != canonicalize_name(self.distribution):
            raise bad_wheel(self.wheel.file, f"its metadata names {name!r}")
        try:
            mine, its = Version(self.version.replace("_", "-")), Version(version)
        except InvalidVersion as error:
            raise bad_wheel(self.wheel.file, f"its version cannot be read ({error})") from None
        if its not in (mine, Version(mine.public)):
            raise bad_wheel(self.wheel.file, f"its metadata names version {version}")

    @property
    def dist_info_dir(self) -> str:
        return self._dist_info

    @property
    def data_dir(self) -> str:
        return self._dist_info.removesuffix(".dist-info") + ".data"

    @property
    def dist_info_filenames(self) -> list[str]:
        start = self._dist_info + "/"
        return [name.removeprefix(start) for name in self.files if name.startswith(start)]

    def read_dist_info(self, filename: str) -> str:
        return self.files[f"{self._dist_info}/{filename}"].read().decode("utf-8")

    def get_contents(self) -> Iterator[WheelContentElement]:
        for name in self.files:
            if "__pycache__" not in name.split("/")[:-1]:
                yield (name, "", ""), cast(BinaryIO, _Stream(name)), False

    def placed(self, name: str) -> tuple[Scheme, str]:
        """The kind of folder into which a member is installed, and the path of the member below this folder. The kind is empty
        if the member is the wheel's data folder itself."""
        if not f"{name}/".startswith(self.data_dir + "/"):
            return Scheme("purelib"), name
        scheme, _, path = name.removeprefix(self.data_dir).strip("/").partition("/")
        if scheme not in ("", *SCHEME_NAMES):
            raise bad_wheel(self.wheel.file, f"{name!r} is for an unknown kind of folder")
        return Scheme(scheme), path

    def bytecode(self) -> Iterator[str]:
        """The bytecode files of the wheel. uv and pip install these files, but the library omits them."""
        return (name for name in self.files if "__pycache__" in name.split("/")[:-1])


class _Destination(WheelDestination):
    def __init__(self, source: _Source, place: InstallPlace) -> None:
        self._source = source
        self._place = place
        self._site = f"{place.prefix}/lib/python{place.python}/site-packages"
        name = canonicalize_name(source.distribution)
        self._folders = {
            "purelib": self._site,
            "platlib": self._site,
            "headers": f"{place.prefix}/include/site/python{place.python}/{name}",
            "scripts": f"{place.prefix}/bin",
            "data": place.prefix,
        }
        self._scripts: list[Script] = []
        self._found: dict[str, tuple[int, Entry]] = {}

    def entries(self) -> list[Entry]:
        return [entry for _, entry in self._found.values()]

    def write_script(self, name: str, module: str, attr: str, section: ScriptSection) -> RecordEntry:
        self._scripts.append(Script(name=name, module=module, function=attr, is_gui=section == "gui"))
        return RecordEntry(name, None, None)

    def write_file(self, scheme: Scheme, path: str | os.PathLike[str], stream: BinaryIO, is_executable: bool) -> RecordEntry:
        path = str(path)
        if isinstance(stream, _Stream):
            self._install(stream.member_name, scheme, path)
        else:
            self._make(f"{self._site}/{path}", stream.read(), is_executable=is_executable, rank=3)
        return RecordEntry(path, None, None)

    def finalize_installation(
        self,
        scheme: Scheme,  # noqa: ARG002 # the library requires this name
        record_file_path: str,
        records: Iterable[tuple[Scheme, RecordEntry]],  # noqa: ARG002
    ) -> None:
        for name in self._source.bytecode():
            self._install(name, *self._source.placed(name))
        names = set()
        for script in with_versions(self._scripts, self._place):
            if script.name in names or not _is_program_name(script.name):
                raise bad_wheel(self._source.wheel.file, f"its entry points cannot be named {script.name!r}")
            names.add(script.name)
            path = f"{self._folders['scripts']}/{script.name}"
            self._make(path, script.text(self._place), is_executable=True, rank=1 if self._is_uv else 2)
        content = self._source.record.text()
        mode = self._source.files[record_file_path].member.mode
        is_executable = self._is_uv and bool(mode & 0o111)  # uv keeps the mode of the unpacked file; pip writes a new file
        self._put(f"{self._site}/{record_file_path}", InMemory(content), is_executable=is_executable, rank=3)

    def add_empty_folders(self) -> None:
        """Add the folders that are members of the wheel, as uv does. pip adds no empty folders."""
        for name in self._source.folders:
            scheme, path = self._source.placed(name)
            if scheme == "scripts" and path:
                raise bad_wheel(self._source.wheel.file, f"{name!r} is a folder among its scripts")
            if scheme and scheme != "scripts":
                target = self._real(f"{self._folders[scheme]}/{path}".rstrip("/"))
                self._found.setdefault(f"{target}/", (0, Entry(target, None)))

    @property
    def _is_uv(self) -> bool:
        return self._place.installer == "uv"

    def _install(self, name: str, scheme: str, path: str) -> None:
        content = self._source.record.content(name)
        mode = self._source.files[name].member.mode
        is_executable = bool(mode & 0o111) and (self._is_uv or stat.S_ISREG(mode))
        if scheme == "scripts":
            if self._is_uv and "/" in path:
                raise bad_wheel(self._source.wheel.file, f"{name!r} is in a folder among its scripts")
            scripts = with_versions(self._scripts, self._place) if self._is_uv else self._scripts
            if is_replaced(posixpath.basename(path), scripts, self._place):
                return
            is_executable = is_executable or self._is_uv
            content = self._rewritten(name, content)
        target = f"{self._folders[scheme]}/{path}"
        is_data = name.startswith(self._source.data_dir + "/")
        if is_data and self._is_uv and not self._source.record.lists(name):
            raise bad_wheel(self._source.wheel.file, f"its RECORD does not list {name!r}")
        self._source.record.install(name, posixpath.relpath(target, self._site) if is_data else name)
        self._put(target, content, is_executable=is_executable, rank=(2 if self._is_uv else 1) if is_data else 0)

    def _rewritten(self, name: str, content: Content) -> Content:
        """Return the installed content of the script ``name``. If its first line is the placeholder, replace this line with one
        that names the interpreter. In this case, the hash of the old content is checked here."""
        member = self._source.files[name]
        if not next(member.pieces(), b"").startswith(PLACEHOLDER):
            return content
        whole = bytearray()
        if content.size > LONGEST_SCRIPT:
            raise bad_wheel(self._source.wheel.file, f"the script {name!r} has {content.size} bytes")
        content.copy(lambda _: None, whole.extend)
        script = rewrite(bytes(whole), self._place)
        if self._is_uv:  # pip 20.3 keeps the hash of the old content in RECORD
            self._source.record.change(name, script)
        return InMemory(script)

    def _make(self, path: str, content: bytes, *, is_executable: bool, rank: int) -> None:
        self._source.record.add(posixpath.relpath(path, self._site), content)
        self._put(path, InMemory(content), is_executable=is_executable, rank=rank)

    def _put(self, path: str, content: Content, *, is_executable: bool, rank: int) -> None:
        """Install a file. If two files have the same path, the file with the higher ``rank`` stays, because the installer
        writes it later."""
        path = self._real(path)
        before = self._found.get(path)
        if before is not None and before[0] == rank:
            raise bad_wheel(self._source.wheel.file, f"it has two files for {path}")
        if before is None or before[0] < rank:
            self._found[path] = (rank, Entry(path, content, is_executable))

    def _real(self, path: str) -> str:
        """The path with symbolic links resolved: the `venv` module makes ``lib64`` a link to ``lib``."""
        top, _, rest = path.removeprefix(f"{self._place.prefix}/").partition("/")
        if self._is_uv and top == "lib64":
            return f"{self._place.prefix}/lib/{rest}".rstrip("/")
        if not self._is_uv and top in ("lib64", "local"):
            # The virtualenv versions for old Pythons make these folders links on some systems only.
            raise bad_wheel(self._source.wheel.file, f"it has files for {self._place.prefix}/{top}, which may be a link")
        return path


def _is_program_name(name: str) -> bool:
    """Whether a script has a plain name that is not a name of the interpreter."""
    is_plain = name not in ("", ".", "..") and "/" not in name and name.isprintable()
    return is_plain and not re.fullmatch(r"python(w|3|3[.][0-9]+)?", name)
