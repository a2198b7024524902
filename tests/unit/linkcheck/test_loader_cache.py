"""The loader's cache is read as ``ldconfig`` writes it."""

from __future__ import annotations

import struct

from envbuild.linkcheck import loader_cache

HEAD = b"glibc-ld.so.cache1.1"


def cache(*entries: tuple[str, str, int, int]) -> bytes:
    """A cache of (library, path, flags, hardware) in the new format."""
    strings, records, begin = b"", b"", 48 + 24 * len(entries)
    for name, path, flags, hardware in entries:
        key, value = begin + len(strings), begin + len(strings) + len(name) + 1
        strings += name.encode() + b"\0" + path.encode() + b"\0"
        records += struct.pack("<iIIIQ", flags, key, value, 0, hardware)
    return HEAD + struct.pack("<II", len(entries), len(strings)) + bytes(20) + records + strings


GOOD = cache(
    ("liba.so.1", "/fast/liba.so.1", 0x0303, 2),
    ("liba.so.1", "/lib/liba.so.1", 0x0303, 0),
    ("libb.so.1", "/lib32/libb.so.1", 0x0003, 0),
)


def test_entries_for_this_kind_of_system_are_found():
    assert loader_cache.read(GOOD) == {"liba.so.1": "/lib/liba.so.1"}


def test_an_old_table_before_the_new_one_is_passed_over():
    assert loader_cache.read(b"ld.so-1.7.0\0" + struct.pack("<I", 1) + bytes(12) + GOOD) is not None


def test_damaged_caches_are_no_caches():
    for content in (b"", b"x" * 100, GOOD[:50], HEAD + b"\xff" * 60, b"ld.so-1.7.0\0" + b"\xff" * 8):
        assert loader_cache.read(content) is None
