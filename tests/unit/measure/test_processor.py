"""The instruction sets that the initialisers of a library use."""

from __future__ import annotations

import _ctypes
import io
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from envbuild.measure import processor
from envbuild.measure.damage import DamagedError

REAL = Path(_ctypes.__file__).read_bytes()
AVX, AVX512, BRANCH, RETURN = b"\xc5\xf8\x58\xc0", b"\x62\xf1\x7c\x48\x58\xc0", b"\x74\x00", b"\xc3"
CALL, JUMP, TZCNT, LZCNT = b"\xe8\x00\x00\x00\x00", b"\xeb\x00", b"\xf3\x0f\xbc\xc1", b"\xf3\x0f\xbd\xc1"


def first_initialiser() -> int:
    """The place of the first initialiser in the file."""
    stream = io.BytesIO(REAL)
    sections = list(ELFFile(stream).iter_sections())
    (address, *_) = processor.initialisers(stream, sections)
    executable = [each for each in sections if each["sh_flags"] & 4]
    (code,) = [each for each in executable if each["sh_addr"] <= address < each["sh_addr"] + each["sh_size"]]
    return int(code["sh_offset"] + address - code["sh_addr"])


PLACE = first_initialiser()


def read(code: bytes) -> processor.Processor:
    content = REAL[:PLACE] + code + REAL[PLACE + len(code) :]
    return processor.read(io.BytesIO(content), len(content))


@pytest.mark.parametrize(
    ("code", "certain", "likely"),
    [
        (AVX + RETURN, ("avx",), ()),
        (CALL + AVX + RETURN, ("avx",), ()),
        (BRANCH + AVX + RETURN, (), ("avx",)),
        (RETURN + AVX, (), ()),
        (JUMP + AVX + RETURN, ("avx",), ()),
        (b"\xeb\x04" + AVX + RETURN, (), ()),
        # As a constructor that is only `jmp work`, or only calls a function.
        (b"\xe9\x01\x00\x00\x00" + RETURN + AVX + RETURN, ("avx",), ()),
        (b"\xe8\x01\x00\x00\x00" + RETURN + AVX + RETURN, ("avx",), ()),
        (BRANCH + b"\xe8\x01\x00\x00\x00" + RETURN + AVX + RETURN, (), ("avx",)),
        # The branch in a called function ends before the caller goes on.
        (b"\xe8\x05\x00\x00\x00" + AVX + RETURN + BRANCH + AVX512 + RETURN, ("avx",), ("avx512f",)),
        (b"\xeb\xfe", (), ()),
        (TZCNT + LZCNT + RETURN, ("lzcnt",), ()),
        (AVX + BRANCH + AVX + AVX512 + RETURN, ("avx",), ("avx512f",)),
    ],
)
def test_what_runs_before_a_decision_is_certain(code: bytes, certain: tuple[str, ...], likely: tuple[str, ...]):
    found = read(code)
    assert (found.certain, found.likely) == (certain, likely) and found.functions >= 1


def test_an_ordinary_library_needs_no_more_than_x86_64():
    assert read(b"").certain == ()


def test_a_library_that_is_cut_off_is_damaged():
    with pytest.raises(DamagedError):
        processor.read(io.BytesIO(REAL[:-2000]), len(REAL) - 2000)
