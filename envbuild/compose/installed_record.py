"""Checks the file RECORD of a wheel, which lists the files of the wheel. Writes the RECORD of the installed package with the
same bytes as uv 0.13 or pip 20.3."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import posixpath
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from envbuild.compose.members import Content, Sink
from envbuild.compose.model import InstallPlace
from envbuild.compose.wheel_zip import WheelMember, bad_wheel
from envbuild.wrong_records import WrongRecord

_ALGORITHMS = ("md5", "sha1", "sha224", "sha256", "sha384", "sha512")
_EDITED = ("METADATA", "WHEEL")  # some publishers change the version in these files after the build, without changing RECORD
_SIGNATURES = ("RECORD.jws", "RECORD.p7s")  # these sign RECORD, so RECORD cannot contain their hashes


@dataclass(slots=True)
class _Row:
    path: str
    hash: str
    size: str

    @property
    def is_folder(self) -> bool:
        """Whether the row names a folder. The specification forbids such rows, but some wheels have them. uv omits these rows;
        pip keeps them."""
        return self.path.endswith("/")

    def key(self) -> str:
        return posixpath.normpath(self.path.lstrip("/"))


@dataclass(frozen=True, slots=True)
class CheckedMember:
    """The content of a member of a wheel. This content must have ``hash``, the hash in RECORD (in the form
    ``algorithm=base64``), or the hash ``instead``: a wheel has such a wrong record, but another wheel with the same record may
    be right."""

    member: WheelMember
    hash: str
    instead: str = ""

    @property
    def size(self) -> int:
        """The number of unpacked bytes."""
        return self.member.size

    @property
    def sha256(self) -> str:
        """The SHA-256 of the content (hex); empty if ``hash`` is of another kind, or malformed, or if there are two hashes."""
        algorithm, _, wanted = self.hash.partition("=")
        if algorithm != "sha256" or self.instead:
            return ""
        try:
            raw = bytes.fromhex(wanted) if len(wanted) == 64 else base64.urlsafe_b64decode(wanted.rstrip("=") + "=")
        except ValueError:
            return ""
        return raw.hex() if len(raw) == 32 else ""

    def copy(self, packed: Sink, unpacked: Sink | None) -> None:
        """Write the content. After the last byte, raise an error if the hash differs."""
        if unpacked is None:
            self.member.copy(packed, None)
            return
        algorithm, _, wanted = self.hash.partition("=")
        allowed = (wanted.rstrip("="), self.instead.partition("=")[2])
        digest = hashlib.new(algorithm)

        def both(piece: bytes | bytearray | memoryview) -> None:
            digest.update(piece)
            unpacked(piece)

        self.member.copy(packed, both)
        if _encode(digest.digest()) not in allowed and digest.hexdigest() not in allowed:  # some tools write hexadecimal hashes
            name = self.member.member.name
            raise bad_wheel(self.member.archive.file, f"the contents of {name!r} do not have the {algorithm} in its RECORD")


def _encode(digest: bytes) -> str:
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


class InstalledRecord:
    """The rows of a wheel's RECORD. This class turns them into the RECORD of the installed package.

    Raises :class:`BuildError` (``bad-wheel``) if the rows are malformed or contradict the archive, unless ``wrong_records``
    lists the contradiction.
    """

    def __init__(
        self, folder: str, members: Collection[WheelMember], place: InstallPlace, wrong_records: Sequence[WrongRecord]
    ) -> None:
        self._wrong = {(each.file, each.recorded): each for each in wrong_records}
        self._is_uv = place.installer == "uv"
        self._path = f"{folder}/RECORD"
        self._signatures = {f"{folder}/{name}" for name in _SIGNATURES}
        self._edited = {f"{folder}/{name}" for name in ("RECORD", *_EDITED)}
        self._members = {member.member.name: member for member in members}
        own = self._members[self._path]
        self._file = own.archive.file
        try:
            text = own.read().decode("utf-8")
            self._rows = list(self._parse(text))
        except (UnicodeDecodeError, csv.Error) as error:
            raise bad_wheel(self._file, f"{self._path} cannot be read ({error})") from None
        self._installed = {self._path: self._path}
        self._at: dict[str, _Row] = {}
        if self._is_uv:
            self._rows = [row for row in self._rows if not row.is_folder]
        for row in self._rows:
            self._at.setdefault(row.key(), row)
        self._check()

    def content(self, name: str) -> Content:
        """The content of the member ``name``. Copying this content compares its hash with the hash in RECORD. If this is the
        wrong record of any wheel, the content may have the hash that this wheel contains.

        Members without a hash, RECORD itself and the files in ``_EDITED`` are not compared.
        """
        member = self._members[name]
        row = self._at.get(name)
        if row is None or not row.hash or name in self._edited:
            return member
        wrong = self._wrong.get((name, row.hash))
        return CheckedMember(member, row.hash, wrong.contained if wrong else "")

    def lists(self, name: str) -> bool:
        """Whether RECORD has a row for the member ``name``."""
        return name in self._at

    def install(self, name: str, path: str) -> None:
        """Record that the member ``name`` is installed at ``path``, relative to site-packages."""
        self._installed[name] = path

    def change(self, name: str, content: bytes) -> None:
        """Record that the member ``name`` is installed with changed content."""
        row = self._at[name]
        row.hash, row.size = f"sha256={_encode(hashlib.sha256(content).digest())}", str(len(content))

    def add(self, path: str, content: bytes) -> None:
        """Record that the installer made a file at ``path``, relative to site-packages."""
        self._rows.append(_Row(path, f"sha256={_encode(hashlib.sha256(content).digest())}", str(len(content))))

    def text(self) -> bytes:
        """The RECORD of the installed package."""
        if self._is_uv:
            self._move_as_uv()
            self._rows.sort(key=lambda row: (row.path, row.hash, int(row.size or -1)))
        else:
            self._move_as_pip()
            self._rows.sort(key=lambda row: (row.path, row.hash, row.size))
        stream = io.StringIO(newline="")
        writer = csv.writer(stream, lineterminator="\n" if self._is_uv else "\r\n")
        writer.writerows((row.path, row.hash, row.size) for row in self._rows)
        return stream.getvalue().encode()

    def _move_as_uv(self) -> None:
        """Write the installed paths into the rows, as uv does. uv normalises the paths of rows and members before it compares
        them."""
        for name, path in self._installed.items():
            row = self._at.get(name)
            if row is None and name not in self._signatures:
                self._rows.append(_Row(name, "", str(self._members[name].size)))
            elif row is not None and path != name:
                row.path = path

    def _move_as_pip(self) -> None:
        """Write the installed paths into the rows, as pip does. pip compares paths as they are written, and adds missing rows
        without a hash."""
        left = dict(self._installed)
        for row in self._rows:
            row.path = left.pop(row.path, row.path)
        self._rows += [_Row(path, "", "") for path in left.values()]

    def _parse(self, text: str) -> Iterator[_Row]:
        seen = set()
        for fields in csv.reader(io.StringIO(text, newline="")):
            if not fields:
                continue
            if len(fields) != 3:
                raise bad_wheel(self._file, f"{self._path} has a line of {len(fields)} fields instead of 3")
            path, its_hash, size = fields
            if size and not (size.isascii() and size.isdigit()):
                raise bad_wheel(self._file, f"{self._path} gives {path!r} the size {size!r}")
            algorithm, equals, value = its_hash.partition("=")
            if its_hash and (algorithm not in _ALGORITHMS or not equals or not value):
                raise bad_wheel(self._file, f"{self._path} gives {path!r} the hash {its_hash!r}, whose kind is unknown")
            row = (path.lstrip("/"), its_hash, size and str(int(size))) if self._is_uv else (path, its_hash, size)
            if row not in seen or not self._is_uv:
                seen.add(row)
                yield _Row(*row)

    def _check(self) -> None:
        """Compare each row with its member. A member without a row is allowed, because some publishers forget rows. The CRC of
        such a member is checked anyway."""
        for row in self._rows:
            if row.is_folder:
                continue
            member = self._members.get(row.key())
            if member is None:
                raise bad_wheel(self._file, f"{self._path} lists {row.path!r}, which is not in the wheel")
            is_known = row.key() in self._edited or (row.key(), row.hash) in self._wrong
            if row.size and int(row.size) != member.size and not is_known:
                raise bad_wheel(self._file, f"{row.path!r} has {member.size} bytes, but {self._path} says {row.size}")
            if row.hash != self._at[row.key()].hash:
                raise bad_wheel(self._file, f"{self._path} gives {row.path!r} two hashes")
