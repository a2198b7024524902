"""Read ``/etc/ld.so.cache``, in which the dynamic loader looks up the paths of libraries.

The format: https://sourceware.org/git/?p=glibc.git;a=blob;f=sysdeps/generic/dl-cache.h;hb=glibc-2.36
"""

from __future__ import annotations

import struct

_OLD, _NEW = b"ld.so-1.7.0", b"glibc-ld.so.cache1.1"
_ENTRY = struct.Struct("<iIIIQ")
_OLD_ENTRY = 12
_X86_64 = 0x0303  # FLAG_X8664_LIB64 | FLAG_ELF_LIBC6, in glibc's dl-cache.h
_MOST = 200_000


def read(content: bytes) -> dict[str, str] | None:
    """Return a mapping from library names to paths, from all cache entries for x86-64. Return None if the file is damaged.

    Entries that are only for newer processors are left out, so that the check does not depend on the processor.
    """
    begin = 0
    if content.startswith(_OLD):  # the file may begin with an old table, before the new one
        count = int.from_bytes(content[12:16], "little")
        begin = content.find(_NEW, 16 + count * _OLD_ENTRY)
    if begin < 0 or not content.startswith(_NEW, begin) or len(content) < begin + 48:
        return None
    count = int.from_bytes(content[begin + 20 : begin + 24], "little")
    if count > _MOST or begin + 48 + count * _ENTRY.size > len(content):
        return None
    found: dict[str, str] = {}
    for at in range(begin + 48, begin + 48 + count * _ENTRY.size, _ENTRY.size):
        flags, key, value, _, hwcap = _ENTRY.unpack_from(content, at)
        if flags & 0xFFFF == _X86_64 and not hwcap:
            found.setdefault(_text(content, begin + key), _text(content, begin + value))
    return found


def _text(content: bytes, at: int) -> str:
    end = content.find(b"\0", at)
    return content[at:end].decode("utf-8", "surrogateescape") if 0 <= at <= end else ""
