"""The instruction sets that the initialisers of a library use."""

from __future__ import annotations

import _ctypes
import io
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from envbuild.matrix.types import Matrix
from envbuild.measure import comparison, processor
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
        (JUMP + AVX, (), ()),
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


def test_avx_is_compared_with_the_rows(monkeypatch: pytest.MonkeyPatch):
    class Origin:
        at = "x.yaml:1"

    class Variant:
        name, origin, cpu_features = "cpu", Origin, ("avx",)

    class Release:
        version = "1.0"

    monkeypatch.setattr(comparison, "rows", lambda *_: iter([("widget", Release, Variant)]))
    measured = {"project": "widget", "version": "1.0"}
    compare = comparison.compare_processor
    facts: Matrix = None  # type: ignore[assignment]  # `rows` is replaced
    assert [each.verdict for each in compare(facts, measured, ["avx", "sse3"])] == ["agrees"]
    assert [each.verdict for each in compare(facts, measured, ["avx", "avx2"])] == ["differs"]
    assert compare(facts, measured, ["sse3"]) == []
    monkeypatch.setattr(Variant, "cpu_features", ())
    assert [each.verdict for each in compare(facts, measured, ["avx"])] == ["silent"]
