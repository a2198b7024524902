"""Strictly reads the directory of a zip archive.

A program may rely on the central directory of a zip, on its local headers, or on the order of its bytes. If these disagree,
different programs unpack different files. Such an archive is refused. An archive with bytes that belong to no member is
refused, too. APPNOTE 6.3.10 has the numbers and sizes of the fields:
https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT
"""

from __future__ import annotations

import re
import stat
import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

STORED, DEFLATED = 0, 8
Read = Callable[[int, int], bytes]

_END, _END64, _LOCATOR64, _CENTRAL, _LOCAL, _DESCRIPTOR = (
    b"PK\5\6", b"PK\6\6", b"PK\6\7", b"PK\1\2", b"PK\3\4", b"PK\7\x08",
)  # fmt: skip
_MAX16, _MAX32 = 0xFFFF, 0xFFFFFFFF
# Bytes. The directory is held in memory: 32 MiB describe 200,000 files, eight times as many as the largest known wheel has.
_LARGEST_DIRECTORY = 32 * 2**20
_CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f]")
_LONGEST_NAME = 2000  # bytes; Linux allows 4095 for the whole path
_HAS_DESCRIPTOR, _IS_UTF8 = 0x0008, 0x0800
_KNOWN_FLAGS = 0x0006 | _HAS_DESCRIPTOR | _IS_UTF8  # the first two flags state the compression level
_ENCRYPTED_FLAGS = 0x0041 | 0x2000
_EXTRA_ZIP64, _EXTRA_UNICODE_NAME = 0x0001, 0x7075


class ZipError(ValueError):
    """The error for an invalid archive. The message is the end of a sentence."""


class Member(NamedTuple):
    """A file or folder of an archive. ``packed`` is the number of its bytes in the archive, and ``begin`` is the offset of
    these bytes.

    ``mode`` is its Unix mode, 0 if unknown. ``size`` and ``crc`` describe the unpacked content.
    """

    name: str
    method: int
    crc: int
    packed: int
    size: int
    begin: int
    mode: int

    @property
    def is_folder(self) -> bool:
        """Whether the member is a folder: then its name ends with a slash."""
        return self.name.endswith("/")


def read_members(read: Read, length: int) -> list[Member]:
    """The members of an archive of ``length`` bytes, sorted by their offsets in the archive. ``read`` takes an offset and a
    number of bytes.

    Raises :class:`ZipError`.
    """
    begin, end, count = _find_directory(read, length)
    members = []
    flags = []
    for member, its_flags in _parse_directory(read(begin, end - begin), count):
        members.append(member)
        flags.append(its_flags)
    _check_names(members)
    order = sorted(range(count), key=lambda index: members[index].begin)
    offset = 0
    found = []
    for place, index in enumerate(order):
        following = members[order[place + 1]].begin if place + 1 < count else begin
        if members[index].begin != offset:
            kind = "overlaps another member" if members[index].begin < offset else "follows bytes that belong to no member"
            raise ZipError(f"{members[index].name!r} {kind}")
        found.append(_check_local(read, members[index], flags[index], following))
        offset = following
    if offset != begin:
        raise ZipError("it has bytes that belong to no member")
    return found


# --- The end of the archive, which says where the directory is ----------------------------------------------------------------


def _find_directory(read: Read, length: int) -> tuple[int, int, int]:
    """The offsets at which the central directory begins and ends, and the number of its members."""
    tail_begin = max(0, length - 22 - _MAX16)
    tail = read(tail_begin, length - tail_begin)
    at = tail.rfind(_END)
    if at < 0 or len(tail) - at < 22:
        raise ZipError("it is truncated, or not a zip archive: the end of its directory is missing")
    disk, first, here, count, size, offset, comment = struct.unpack("<4H2LH", tail[at + 4 : at + 22])
    if at + 22 + comment != len(tail):
        raise ZipError("it has more bytes after its end")
    end = tail_begin + at
    if end >= 20 and read(end - 20, 4) == _LOCATOR64:
        end, wide = _read_end64(read, end - 20)
        narrow = (disk, first, here, count, size, offset)
        for mine, its, unknown in zip(narrow, wide, (*[_MAX16] * 4, *[_MAX32] * 2), strict=True):
            if mine not in (its, unknown):
                raise ZipError("the two descriptions of its directory disagree")
        disk, first, here, count, size, offset = wide
    if disk or first or here != count:
        raise ZipError("it is one part of a divided archive")
    if offset + size != end:
        raise ZipError("its directory is not at the place that its end record states")
    if size > _LARGEST_DIRECTORY or 46 * count > size:
        raise ZipError(f"its directory claims {count} members in {size} bytes")
    return offset, end, count


def _read_end64(read: Read, locator: int) -> tuple[int, tuple[int, ...]]:
    """Read the zip64 record that gives the place of the directory. Return the record's offset and its fields."""
    disk, at, disks = struct.unpack("<LQL", read(locator + 4, 16))
    if disk or disks > 1:
        raise ZipError("it is one part of a divided archive")
    if at + 56 > locator:
        raise ZipError("the zip64 end record is not at the offset in the zip64 locator")
    signature, size, _, _, *fields = struct.unpack("<4sQ2H2L4Q", read(at, 56))
    if signature != _END64 or at + 12 + size != locator:
        raise ZipError("the zip64 end record is not at the offset in the zip64 locator")
    return at, tuple(fields)


# --- The directory ------------------------------------------------------------------------------------------------------------


def _parse_directory(data: bytes, count: int) -> Iterator[tuple[Member, int]]:
    """Yield the members with their flags. Here, ``begin`` is the offset of the local header, because the offset of the data is
    not yet known."""
    at = 0
    for _ in range(count):
        if data[at : at + 4] != _CENTRAL or len(data) - at < 46:
            raise ZipError("its directory has fewer members than it says")
        fields = struct.unpack("<6H3L5H2L", data[at + 4 : at + 46])
        _, _, flags, method, _, _, crc, packed, size, name_size, extra_size, comment_size, disk, _, attributes, begin = fields
        name = _decode_name(data[at + 46 : at + 46 + name_size], flags)
        at += 46 + name_size
        extra = _read_extra(data[at : at + extra_size], name)
        at += extra_size + comment_size
        if at > len(data):
            raise ZipError("its directory is truncated")
        size, packed, begin, disk = _widen(extra, name, ((size, 8), (packed, 8), (begin, 8), (disk, 4)))
        if disk:
            raise ZipError("it is one part of a divided archive")
        _check_name_again(extra, name)
        _check_kind(name, flags, method, size, packed)
        member = Member(
            name=name, method=method, crc=crc, packed=packed, size=size, begin=begin,
            mode=attributes >> 16,
        )  # fmt: skip
        _check_mode(member)
        yield member, flags
    if at != len(data):
        raise ZipError("its directory has more than the members that it says")


def _decode_name(raw: bytes, flags: int) -> str:
    try:
        return raw.decode("utf-8" if flags & _IS_UTF8 else "ascii")
    except UnicodeDecodeError:
        raise ZipError(f"the name {raw!r} is not ASCII, and not marked as UTF-8 or not valid UTF-8") from None


def _read_extra(data: bytes, name: str) -> dict[int, bytes]:
    extra: dict[int, bytes] = {}
    if not data:
        return extra
    at = 0
    while at + 4 <= len(data):
        kind, size = struct.unpack("<2H", data[at : at + 4])
        if at + 4 + size > len(data) or (kind in extra and kind in (_EXTRA_ZIP64, _EXTRA_UNICODE_NAME)):
            raise ZipError(f"the further fields of {name!r} are damaged")
        extra[kind] = data[at + 4 : at + 4 + size]
        at += 4 + size
    if any(data[at:]):
        raise ZipError(f"the further fields of {name!r} are damaged")
    return extra


def _widen(extra: dict[int, bytes], name: str, fields: tuple[tuple[int, int], ...]) -> list[int]:
    """Return the values of ``fields``, with large values from the zip64 field. ``fields`` has each value and its width in the
    zip64 field, in bytes.

    If a value is the largest number that fits into its field, and there is a zip64 field, the zip64 field has the real value.
    """
    wide = extra.get(_EXTRA_ZIP64)
    if wide is None:
        return [value for value, _ in fields]
    values = []
    for value, width in fields:
        unknown = _MAX32 if width == 8 else _MAX16
        if value != unknown:
            values.append(value)
            continue
        if len(wide) < width:
            raise ZipError(f"the zip64 field of {name!r} is truncated")
        values.append(int.from_bytes(wide[:width], "little"))
        wide = wide[width:]
    return values


def _check_name_again(extra: dict[int, bytes], name: str) -> None:
    """Refuse a second, different name in the extra field for Unicode names. Some programs use the second name if the CRC in
    this extra field is the CRC of the ordinary name."""
    again = extra.get(_EXTRA_UNICODE_NAME, b"")
    if again and again[5:] != name.encode():
        raise ZipError(f"{name!r} has a second, different name")


def _check_kind(name: str, flags: int, method: int, size: int, packed: int) -> None:
    if flags & _ENCRYPTED_FLAGS:
        raise ZipError(f"{name!r} is encrypted")
    if flags & ~_KNOWN_FLAGS:
        raise ZipError(f"{name!r} uses an unknown feature of zip (flags {flags:#06x})")
    if method not in (STORED, DEFLATED):
        raise ZipError(f"{name!r} is compressed with method {method}; envbuild supports only deflate (8) and none (0)")
    if method == STORED and size != packed:
        raise ZipError(f"{name!r} is stored in {packed} bytes, but should have {size}")
    if name.endswith("/") and size:
        raise ZipError(f"the folder {name!r} has content")


def _check_mode(member: Member) -> None:
    kind = stat.S_IFMT(member.mode)
    if kind not in (0, stat.S_IFDIR if member.is_folder else stat.S_IFREG):
        what = {stat.S_IFLNK: "a symbolic link", stat.S_IFDIR: "a folder by its mode and a file by its name"}
        raise ZipError(f"{member.name!r} is {what.get(kind, 'no plain file')}")


def _check_names(members: list[Member]) -> None:
    """Refuse a name that leads out of the archive, that occurs twice, or that names both a file and a folder.

    Names that differ only in case are allowed, because Linux and the installers distinguish them.
    """
    seen: set[str] = set()
    for member in members:
        name = member.name.removesuffix("/")
        if not name or "\\" in name or any(part in ("", ".", "..") for part in name.split("/")):
            raise ZipError(f"{member.name!r} is not a path inside of a folder")
        if _CONTROL_CHARACTER.search(name) or len(name.encode()) > _LONGEST_NAME:
            raise ZipError(f"the name {member.name[:80]!r} is too long or has control characters")
        if member.name in seen:
            raise ZipError(f"{member.name!r} is listed twice")
        seen.add(member.name)
    for member in members:
        for name in _folders_above(member.name):
            if name in seen:
                raise ZipError(f"{name!r} is both a file and a folder")


def _folders_above(name: str) -> Iterator[str]:
    at = name.find("/")
    while at >= 0:
        yield name[:at]
        at = name.find("/", at + 1)


# --- Local headers ------------------------------------------------------------------------------------------------------------


def _check_local(read: Read, member: Member, flags: int, following: int) -> Member:
    """Compare a member with its local header. Return the member with ``begin`` set to the offset of its data.

    ``following`` is the offset of the next member. For the last member, it is the offset of the directory.
    """
    # Most headers have no extra fields, so this one read is usually enough.
    head = read(member.begin, max(30, min(30 + len(member.name.encode()), following - member.begin)))
    if len(head) < 30 or head[:4] != _LOCAL:
        raise ZipError(f"{member.name!r} is not at the place that the directory states")
    _, its_flags, method, _, _, crc, packed, size, name_size, extra_size = struct.unpack("<5H3L2H", head[4:30])
    rest = head[30 : 30 + name_size + extra_size]
    if len(rest) < name_size + extra_size:
        rest += read(member.begin + 30 + len(rest), name_size + extra_size - len(rest))
    try:
        name = rest[:name_size].decode("utf-8")
    except UnicodeDecodeError:
        name = ""
    compared = _ENCRYPTED_FLAGS | _HAS_DESCRIPTOR
    if (name, method, its_flags & compared) != (member.name, member.method, flags & compared):
        what = "has another name, compression method or flag in its own header than in the directory of the ZIP file"
        raise ZipError(f"{member.name!r} {what}")
    extra = _read_extra(rest[name_size:], name)
    _check_name_again(extra, name)
    size, packed = _widen(extra, name, ((size, 8), (packed, 8)))
    begin = member.begin + 30 + name_size + extra_size
    end = begin + member.packed
    wanted = (member.crc, member.packed, member.size)
    if (crc, packed, size) != wanted and not (flags & _HAS_DESCRIPTOR and (crc, packed, size) == (0, 0, 0)):
        raise ZipError(f"{member.name!r} has a different size or CRC in its own header than in the directory")
    if flags & _HAS_DESCRIPTOR:
        if following < end or read(end, following - end) not in _possible_descriptors(*wanted):
            raise ZipError(f"the sizes and CRC after {member.name!r} differ from the directory")
    elif end != following:
        kind = "overlaps what follows it" if end > following else "is followed by bytes that belong to no member"
        raise ZipError(f"{member.name!r} {kind}")
    return member._replace(begin=begin)


def _possible_descriptors(crc: int, packed: int, size: int) -> Iterator[bytes]:
    """Yield all forms of a data descriptor: with and without a signature, with 32-bit or 64-bit numbers. The archive does not
    say which form it uses."""
    for form in ("<LQQ",) if max(packed, size) > _MAX32 else ("<LLL", "<LQQ"):
        numbers = struct.pack(form, crc, packed, size)
        yield numbers
        yield _DESCRIPTOR + numbers
