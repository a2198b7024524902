"""Archives with wrong information are refused; unusual but valid archives are accepted."""

from __future__ import annotations

import io
import re
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

import pytest
from wheel_files import FILE, FOLDER, LINK, Part, deflated, make_wheel, metadata, record_of, unpack, zip_file

from envbuild.compose import wheel_layer
from envbuild.compose.model import InstallPlace
from envbuild.errors import BuildError

PLACE = InstallPlace(prefix="/opt/env", python="3.11", installer="uv")
SITE = "opt/env/lib/python3.11/site-packages"
TEXT = b"some text, some text, some text\n" * 50
OTHER = b"other text, this is of no length of note" * 40


def layer_of(data: bytes, folder: Path) -> dict[str, tuple[int, bytes | None]]:
    file = folder / "toy-1.0-py3-none-any.whl"
    file.write_bytes(data)
    stream = io.BytesIO()
    wheel_layer.write(stream, [(file, True)], PLACE, {})
    return unpack(stream.getvalue())


def wheel_of(parts: Sequence[Part], *, is_vague: bool = False, **options: object) -> bytes:
    every = [*parts, *(Part(name=name, content=content) for name, content in metadata().items())]
    return zip_file([*every, record_of(every, is_vague=is_vague)], **options)


@pytest.mark.parametrize("descriptor", ["", "L", "sL", "Q", "sQ"])
@pytest.mark.parametrize("is_wide", [False, True], ids=["narrow", "zip64"])
@pytest.mark.parametrize("method", [0, 8])
def test_unusual_and_right(descriptor: str, is_wide: bool, method: int, tmp_path: Path) -> None:
    part = Part(name="toy/text", content=TEXT, descriptor=descriptor, is_wide=is_wide, method=method)
    found = layer_of(
        wheel_of([part, Part(name="toy/empty", method=method)], is_wide=is_wide, comment=b"made by hand"), tmp_path
    )
    assert found[f"{SITE}/toy/text"] == (0o644, TEXT)
    assert found[f"{SITE}/toy/empty"] == (0o644, b"")


def test_names_that_differ_in_case_alone_are_two_files(tmp_path: Path) -> None:
    """As on Linux. Such a wheel cannot be installed on a Mac, but images are for Linux."""
    found = layer_of(wheel_of([Part(name="toy/a", content=b"1"), Part(name="toy/A", content=b"2")]), tmp_path)
    assert (found[f"{SITE}/toy/a"], found[f"{SITE}/toy/A"]) == ((0o644, b"1"), (0o644, b"2"))


@pytest.mark.parametrize("size", [2**18, 2**20 - 1, 2**20, 2**20 + 1, 2**21])
def test_content_that_fills_whole_pieces(size: int, tmp_path: Path) -> None:
    for content in (bytes(size), b"".join(b"%07d\n" % number for number in range(size // 8 + 1))[:size]):
        for method in (0, 8):
            assert layer_of(wheel_of([Part(name="a", content=content, method=method)]), tmp_path)[f"{SITE}/a"] == (
                0o644,
                content,
            )


LYING = {
    "overlap": (
        "overlaps what follows it",
        [Part(name="a", content=TEXT), Part(name="b", content=TEXT, central={"offset": 0})],
    ),
    "a gap": (
        "is followed by bytes that belong to no member",
        [Part(name="a", content=TEXT), Part(name="b", content=TEXT, before=b"gap")],
    ),
    "a gap behind": ("is followed by bytes that belong to no member", [Part(name="a", content=TEXT, behind=b"gap")]),
    "a name in front that differs": (
        "has another name, compression method or flag in its own header",
        [Part(name="a", local={"name": b"b"})],
    ),
    "a method in front that differs": (
        "has another name, compression method or flag in its own header",
        [Part(name="a", content=TEXT, local={"method": 0})],
    ),
    "a size in front that differs": (
        "has a different size or CRC in its own header",
        [Part(name="a", content=TEXT, local={"size": 3})],
    ),
    "a packed size in front that differs": (
        "has a different size or CRC in its own header",
        [Part(name="a", content=TEXT, local={"packed": 3})],
    ),
    "a crc in front that differs": (
        "has a different size or CRC in its own header",
        [Part(name="a", content=TEXT, local={"crc": 3})],
    ),
    "a wrong crc": (
        "do not have the CRC in the archive",
        [Part(name="a", content=TEXT, local={"crc": 3}, central={"crc": 3})],
    ),
    "a wrong crc, stored": (
        "do not have the CRC in the archive",
        [Part(name="a", content=TEXT, method=0, local={"crc": 3}, central={"crc": 3})],
    ),
    "too small a size": ("has more than the", [Part(name="a", content=TEXT, local={"size": 3}, central={"size": 3})]),
    "too large a size": (
        "but the archive says 9999",
        [Part(name="a", content=TEXT, local={"size": 9999}, central={"size": 9999})],
    ),
    "no size": ("has more than the", [Part(name="a", content=TEXT, local={"size": 0}, central={"size": 0})]),
    "a descriptor that differs": ("sizes and CRC after", [Part(name="a", content=TEXT, descriptor="sL", central={"crc": 5})]),
    "a descriptor that is missing": ("sizes and CRC after", [Part(name="a", content=TEXT, flags=8)]),
    "encrypted": ("is encrypted", [Part(name="a", content=TEXT, flags=1)]),
    "strongly encrypted": ("is encrypted", [Part(name="a", content=TEXT, flags=0x41)]),
    "encrypted in front": (
        "has another name, compression method or flag in its own header",
        [Part(name="a", content=TEXT, local={"flags": 1})],
    ),
    "a masked directory": ("is encrypted", [Part(name="a", content=TEXT, flags=0x2000)]),
    "a patch": ("an unknown feature of zip", [Part(name="a", content=TEXT, flags=0x20)]),
    "bzip2": ("is compressed with method", [Part(name="a", content=TEXT, method=12)]),
    "deflate64": ("is compressed with method", [Part(name="a", content=TEXT, method=9)]),
    "the folder above": ("is not a path inside of a folder", [Part(name="../a")]),
    "a folder above inside": ("is not a path inside of a folder", [Part(name="toy/../../a")]),
    "a dot": ("is not a path inside of a folder", [Part(name="toy/./a")]),
    "an empty part": ("is not a path inside of a folder", [Part(name="toy//a")]),
    "absolute": ("is not a path inside of a folder", [Part(name="/etc/passwd")]),
    "a backslash": ("is not a path inside of a folder", [Part(name="toy\\a")]),
    "a backslash above": ("is not a path inside of a folder", [Part(name="..\\a")]),
    "no name": ("is not a path inside of a folder", [Part(name="")]),
    "a null byte": ("is too long or has control", [Part(name="a\0b")]),
    "a line break": ("is too long or has control", [Part(name="a\nb")]),
    "a name too long": ("is too long or has control", [Part(name="a" * 2001)]),
    "no UTF-8": (
        "is not ASCII, and not marked",
        [Part(name="a", flags=0x800, local={"name": b"\xff"}, central={"name": b"\xff"})],
    ),
    "UTF-8 that is not said": (
        "is not ASCII, and not marked",
        [Part(name="a", local={"name": b"\xc3\xa4"}, central={"name": b"\xc3\xa4"})],
    ),
    "a second name": (
        "has a second, different name",
        [Part(name="a", extra=struct.pack("<2HBL", 0x7075, 6, 1, zlib.crc32(b"a")) + b"b")],
    ),
    "a truncated field": ("further fields of", [Part(name="a", extra=b"\1\0\x10\0")]),
    "a symbolic link": ("is a symbolic link", [Part(name="a", content=b"/etc/passwd", mode=LINK | 0o777)]),
    "a device": ("is no plain file", [Part(name="a", mode=0o020644)]),
    "a folder by its mode": ("is a folder by its mode", [Part(name="a", mode=FOLDER | 0o755)]),
    "a file by its mode": ("is no plain file", [Part(name="a/", method=0, mode=FILE | 0o644)]),
    "a folder with content": ("has content", [Part(name="a/", content=TEXT, mode=FOLDER | 0o755)]),
    "twice": ("is listed twice", [Part(name="a", content=TEXT), Part(name="a", content=OTHER)]),
    "twice the same": ("is listed twice", [Part(name="a", content=TEXT), Part(name="a", content=TEXT)]),
    "a file and a folder": ("is both a file and a folder", [Part(name="a", content=TEXT), Part(name="a/b")]),
    "a file and a folder by name": (
        "is both a file and a folder",
        [Part(name="a", content=TEXT), Part(name="a/", method=0, mode=FOLDER | 0o755)],
    ),
    "a bomb": ("has more than the", [Part(name="a", content=TEXT, packed=deflated(bytes(50 * 2**20)))]),
    "bytes behind the compressed content": (
        "has bytes behind its compressed",
        [Part(name="a", content=TEXT, packed=deflated(TEXT) + b"x")],
    ),
    "many bytes behind the compressed content": (
        "has bytes behind its compressed",
        [Part(name="a", content=TEXT, packed=deflated(TEXT) + bytes(2**19))],
    ),
    "truncated compressed content": ("is truncated", [Part(name="a", content=TEXT, packed=deflated(TEXT)[:-3])]),
    "no compressed content": ("is truncated", [Part(name="a", content=TEXT, packed=b"")]),
    "damaged compressed content": ("is damaged", [Part(name="a", content=TEXT, packed=b"\7" + deflated(TEXT)[1:])]),
    "stored with two sizes": ("but should have", [Part(name="a", content=TEXT, method=0, packed=TEXT + b"x")]),
    "zip64 without its numbers": (
        "4294967295",
        [Part(name="a", content=TEXT, local={"size": 0xFFFFFFFF}, central={"size": 0xFFFFFFFF})],
    ),
    "on another disk": ("one part of a divided", [Part(name="a", content=TEXT, central={"disk": 1})]),
    "on another disk by zip64": (
        "one part of a divided",
        [Part(name="a", content=TEXT, extra=b"\1\0\4\0\1\0\0\0", central={"disk": 0xFFFF})],
    ),
}


@pytest.mark.parametrize(("reason", "parts"), LYING.values(), ids=LYING)
def test_an_archive_that_lies_is_refused(reason: str, parts: list[Part], tmp_path: Path) -> None:
    """RECORD has no sizes and hashes here, so the archive alone must show the fault."""
    with pytest.raises(BuildError, match=re.escape(reason)) as caught:
        layer_of(wheel_of(parts, is_vague=True), tmp_path)
    assert caught.value.code == "bad-wheel"
    assert "toy-1.0-py3-none-any.whl" in caught.value.message
    assert caught.value.hint


ENDS = {
    "fewer members": ("has more than the", {"here": 2, "count": 2}),
    "more members": ("claims 9 members", {"here": 9, "count": 9}),
    "two numbers of members": ("one part of a divided", {"here": 3}),
    "another disk": ("one part of a divided", {"disk": 1}),
    "a directory elsewhere": ("is not at the place that its end record states", {"offset": 5}),
    "another size": ("is not at the place that its end record states", {"size": 5}),
    "a directory beyond the end": ("is not at the place that its end record states", {"size": 0xFFFFFFF0}),
}


@pytest.mark.parametrize(("reason", "end"), ENDS.values(), ids=ENDS)
def test_an_end_that_lies_is_refused(reason: str, end: dict[str, int], tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=re.escape(reason)) as caught:
        layer_of(wheel_of([Part(name="a")], end=end), tmp_path)
    assert caught.value.code == "bad-wheel"


def test_every_truncation_and_every_addition_is_refused(tmp_path: Path) -> None:
    whole = wheel_of([Part(name="a", content=b"abc")])
    layer_of(whole, tmp_path)
    for damaged in (*(whole[:size] for size in range(len(whole))), whole + b"\0", b"\0" + whole, whole + whole):
        with pytest.raises(BuildError) as caught:
            layer_of(damaged, tmp_path)
        assert caught.value.code == "bad-wheel"


def test_every_changed_byte_is_refused_or_gives_the_same_files(tmp_path: Path) -> None:
    """Fields such as times or the zip version may change. Content, names and RECORD must not change."""
    parts = [
        Part(name="toy/a", content=b"abc" * 9), Part(name="toy/b", content=b"b", method=0), Part(name="ä", descriptor="sL"),
    ]  # fmt: skip
    whole = wheel_of(parts)
    wanted = layer_of(whole, tmp_path)
    refused = 0
    for at in range(len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << at % 8
        try:
            found = layer_of(bytes(damaged), tmp_path)
        except BuildError as error:
            assert error.code == "bad-wheel"
            refused += 1
        else:
            # Modes are not compared, because only the central directory has them.
            assert {path: content for path, (_, content) in found.items()} == {p: c for p, (_, c) in wanted.items()}
    assert refused > len(whole) // 2


def test_a_missing_file_is_no_bad_wheel(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        wheel_layer.write(io.BytesIO(), [(tmp_path / "toy-1.0-py3-none-any.whl", True)], PLACE, {})


def test_make_wheel_is_right(tmp_path: Path) -> None:
    """The wheel that the other tests damage is valid."""
    stream = io.BytesIO()
    wheel_layer.write(stream, [(make_wheel(tmp_path, [Part(name="toy.py", content=b"pass")]), True)], PLACE, {})
    assert unpack(stream.getvalue())[f"{SITE}/toy.py"] == (0o644, b"pass")
