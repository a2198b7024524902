"""Facts are read from the tar file of a layer, and kept."""

from __future__ import annotations

import _ctypes
import io
import re
import struct
import tarfile
from pathlib import Path

import pytest
from linked_trees import RULES

from envbuild.errors import VerifyError
from envbuild.linkcheck import gpus, layer_facts
from envbuild.linkcheck.elf_facts import Wanted
from envbuild.linkcheck.model import LayerFacts

WANTED = Wanted(symbols=re.compile(b"ffi_|PyInit_"), constants=re.compile(rb"ctypes"))
REAL = Path(_ctypes.__file__)
LOADER = Path("/lib64/ld-linux-x86-64.so.2")


def packed(*members: tuple[str, bytes | str, bytes], size: int = 7000) -> list[bytes]:
    """The pieces of a tar file with (name, content or link, kind)."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, content, kind in members:
            info = tarfile.TarInfo(name)
            info.type = kind
            if isinstance(content, str):
                info.linkname = content
                tar.addfile(info)
            else:
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    data = out.getvalue()
    return [data[at : at + size] for at in range(0, len(data), size)]


def read(*members: tuple[str, bytes | str, bytes]) -> LayerFacts:
    return layer_facts.read(packed(*members), WANTED, "layer", lambda _size: None)


def test_a_real_library_is_read_as_the_system_reads_it():
    facts = read(("opt/a.so", REAL.read_bytes(), tarfile.REGTYPE)).objects["/opt/a.so"]
    assert "libc.so.6" in facts.needed and any(each.startswith("GLIBC_2.") for each in facts.versions["libc.so.6"])
    assert facts.offers == ("PyInit__ctypes",) and not facts.damage
    needed = " ".join(facts.needed_symbols["libc.so.6"].values()).split(" ")
    assert "memcpy" in needed and "__cxa_finalize" not in needed  # the second one is a weak symbol
    assert "PyInit__ctypes" in facts.offered_symbols[""].split(" ")


@pytest.mark.skipif(not LOADER.exists(), reason="no loader of glibc")
def test_the_symbols_of_each_version_are_read():
    facts = read(("a.so", LOADER.read_bytes(), tarfile.REGTYPE)).objects["/a.so"]
    assert "__tls_get_addr" in facts.offered_symbols["GLIBC_2.3"].split(" ")
    assert set(facts.offered_symbols) <= set(facts.defines) and facts.soname not in facts.offered_symbols


def test_links_whiteouts_and_texts_are_read():
    found = read(
        ("./a", b"text", tarfile.REGTYPE),
        ("b", "a", tarfile.SYMTYPE),
        ("c", "a", tarfile.LNKTYPE),
        ("d", b"", tarfile.DIRTYPE),
        ("d/.wh.gone", b"", tarfile.REGTYPE),
        ("e/.wh..wh..opq", b"", tarfile.REGTYPE),
        ("etc/ld.so.cache", b"\xff\x00cache", tarfile.REGTYPE),
    )
    assert found.files == ["/a", "/c", "/etc/ld.so.cache"] and found.links == {"/b": "a"} and found.folders == ["/d"]
    assert found.removed == ["/d/gone"] and found.opaque == ["/e"] and found.texts == {"/etc/ld.so.cache": "\xff\x00cache"}


@pytest.mark.parametrize("root", ["", "/", "./", "//"])
def test_a_hard_link_to_a_library_is_a_library(root: str):
    found = read((f"{root}a.so", REAL.read_bytes(), tarfile.REGTYPE), (f"{root}b.so", f"{root}a.so", tarfile.LNKTYPE))
    assert found.objects["/b.so"] == found.objects["/a.so"]


def test_a_name_that_a_layer_has_twice_stands_for_the_second_file():
    found = read(("a.so", REAL.read_bytes(), tarfile.REGTYPE), ("a.so", b"text" * 40, tarfile.REGTYPE))
    assert "/a.so" not in found.objects


def test_libraries_for_other_processors_and_systems_are_no_objects():
    arm, freebsd = bytearray(REAL.read_bytes()), bytearray(REAL.read_bytes())
    arm[18], freebsd[7] = 183, 9
    found = read(("a.so", bytes(arm), tarfile.REGTYPE), ("b.so", bytes(freebsd), tarfile.REGTYPE))
    assert not found.objects and found.other_processors == ["/a.so"]  # at the other one, the loader would stop


def test_a_hard_link_to_a_library_for_another_processor_is_one_too():
    arm = bytearray(REAL.read_bytes())
    arm[18] = 183
    found = read(("b.so", bytes(arm), tarfile.REGTYPE), ("a.so", "b.so", tarfile.LNKTYPE))
    assert sorted(found.other_processors) == ["/a.so", "/b.so"]


@pytest.mark.skipif(not LOADER.exists(), reason="no loader of glibc")
def test_the_default_folders_of_a_real_loader_are_read():
    folders = read(("lib64/ld.so", LOADER.read_bytes(), tarfile.REGTYPE)).objects["/lib64/ld.so"].default_folders
    assert len(folders) > 1 and all(Path(each).is_dir() for each in folders[:2])


@pytest.mark.parametrize("part", [64, 65, 200, 4096])
def test_a_library_that_is_cut_off_is_damaged_and_stops_nothing(part: int):
    content = REAL.read_bytes()
    found = read(("a.so", content[:part], tarfile.REGTYPE), ("b", b"x", tarfile.REGTYPE))
    assert found.objects["/a.so"].damage and found.files == ["/a.so", "/b"]


def test_without_its_list_of_sections_a_library_is_read_by_its_segments():
    content = REAL.read_bytes()
    whole, cut = (read(("a.so", data, tarfile.REGTYPE)).objects["/a.so"] for data in (content, content[:-1]))
    assert (cut.needed, cut.runpath, cut.versions, cut.damage) == (whole.needed, whole.runpath, whole.versions, "")
    assert whole.versions and whole.offers and cut.offers == whole.offers and not cut.hides_symbols
    assert (cut.needed_symbols, cut.offered_symbols) == (whole.needed_symbols, whole.offered_symbols)


def test_the_gpu_code_of_a_library_packed_by_upx_is_not_known():
    content = REAL.read_bytes()
    content = content[:60] + bytes(4) + content[64:]
    plain, packed_by_upx = (
        read(("a.so", data, tarfile.REGTYPE)).objects["/a.so"] for data in (content, content + b"UPX!" + bytes(32))
    )
    assert packed_by_upx.needed == plain.needed != ()
    assert gpus.gpu_code({"/a.so": plain}, RULES) == []
    (code,) = gpus.gpu_code({"/a.so": packed_by_upx}, RULES)
    assert not code["whole"]


@pytest.mark.skipif(not LOADER.exists(), reason="no loader of glibc")
def test_without_sections_the_versions_that_a_library_defines_are_read():
    content = bytearray(LOADER.read_bytes())
    whole = read(("a.so", bytes(content), tarfile.REGTYPE)).objects["/a.so"]
    content[40:48] = bytes(8)
    cut = read(("a.so", bytes(content), tarfile.REGTYPE)).objects["/a.so"]
    assert cut.defines == whole.defines and "GLIBC_2.2.5" in cut.defines


def test_damaged_hash_tables_make_the_symbols_unknown():
    content = bytearray(REAL.read_bytes())
    content[40:48] = bytes(8)
    (place,) = (each.start() for each in re.finditer(re.escape(struct.pack("<q", 0x6FFFFEF5)), content))  # DT_GNU_HASH
    for address in (2**40, len(content) - 8):
        content[place + 8 : place + 16] = struct.pack("<Q", address)
        found = read(("a.so", bytes(content), tarfile.REGTYPE)).objects["/a.so"]
        assert found.needed and not found.damage and not found.offers and found.hides_symbols


def test_changed_bytes_never_stop_the_reading():
    content = REAL.read_bytes()
    table = int.from_bytes(content[40:48], "little")
    for at in [*range(16, 64, 7), *range(table, len(content), 301)]:
        spoilt = content[:at] + b"\xff" + content[at + 1 :]
        assert read(("a.so", spoilt, tarfile.REGTYPE)).files == ["/a.so"]


@pytest.mark.parametrize("data", [b"no tar file" * 100, packed(("a", b"x" * 5000, tarfile.REGTYPE))[0][:3000]])
def test_what_is_no_layer_is_refused(data: bytes):
    with pytest.raises(VerifyError, match="A layer of layer cannot be read"):
        layer_facts.read([data], WANTED, "layer", lambda _size: None)


def test_facts_are_kept_for_these_patterns_and_damage_is_read_as_absent(tmp_path: Path):
    kept = layer_facts.LayerFactStore(tmp_path, WANTED)
    facts = read(("a.so", REAL.read_bytes(), tarfile.REGTYPE), ("b", "a.so", tarfile.SYMTYPE))
    kept.keep("sha256:1", facts)
    assert kept.find("1") == facts
    assert layer_facts.LayerFactStore(tmp_path, Wanted(re.compile(b"x"), WANTED.constants)).find("1") is None
    (file,) = tmp_path.iterdir()
    for content in (b"", b"\x00" * 30, file.read_bytes()[:-9]):
        file.chmod(0o644)
        file.write_bytes(content)
        assert kept.find("1") is None
