"""Read the headers of fat binaries. These are the containers in which CUDA's compiler stores kernels for several GPUs.

Only headers are read, never kernels, so compressed kernels need not be unpacked. NVIDIA publishes no specification of the
format. The facts used here were compared with the output of NVIDIA's program cuobjdump (docs/decisions/0031-measuring.md).

A container begins with a header of 16 bytes: the magic number, a version, the size of this header, and the size of everything
after the header. The entries follow the header. Each entry consists of a header (with kind, sizes and architecture) and a
payload.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

from envbuild.measure.damage import DamagedError

Read = Callable[[int, int], bytes]
"""A function that takes an offset and a number of bytes, and returns these bytes. Only at the end of the file, it returns
fewer."""

MAGIC = 0xBA55ED50
PTX, NATIVE = 1, 2
LZ4, ZSTD = 0x2000, 0x8000
# The flags of kernels for one exact GPU (9.0a), for one family of GPUs (10.0f), and for unknown kinds.
_EXACT, _FAMILY, _UNKNOWN = 0x100000, 0x200000, 0xC00000
_CONTAINER = struct.Struct("<IHHQ")
# The fields: kind, -, header size, payload size, compressed size, -, minor and major version, architecture, -, -, flags, -,
# unpacked size. A dash is a field that is not used here.
_ENTRY = struct.Struct("<HHIQIIHHIIIQQQ")
# The largest library measured so far has 1,700 containers. The largest container has 25 entries.
_MOST_CONTAINERS, _MOST_ENTRIES = 200_000, 500
_MOST_PADDING = 2**20  # bytes of zeros between two containers; the linker adds them when it joins parts


class Entry(NamedTuple):
    """One entry of a container, with kernels for one GPU. ``capability`` is, for example, ``8.6`` or ``9.0a``. ``version`` is
    the PTX version; it is empty for native code."""

    kind: int
    capability: str
    version: str
    flags: int
    begin: int
    size: int


class Container(NamedTuple):
    """All entries that were compiled from one source file. ``size`` is the number of bytes of the container."""

    size: int
    entries: tuple[Entry, ...]


def containers(read: Read, begin: int, size: int) -> Iterator[Container]:
    """Yield the containers of a section. Raises :class:`DamagedError`."""
    at, end, count, padding = begin, begin + size, 0, 0
    while at < end:
        head = read(at, min(_CONTAINER.size, end - at))
        if not head:
            raise DamagedError("ends within its GPU code")
        if not any(head[:8]):
            at, padding = at + 8, padding + 8
            if padding > _MOST_PADDING:
                raise DamagedError(f"has more than {_MOST_PADDING} empty bytes between its GPU code")
            continue
        if len(head) < _CONTAINER.size:
            raise DamagedError(f"has GPU code that ends within a header at byte {at}")
        magic, _version, head_size, body = _CONTAINER.unpack(head)
        count += 1
        if magic != MAGIC or head_size < _CONTAINER.size:
            raise DamagedError(f"has no header of GPU code at byte {at}, where one must be")
        if body > end - at - head_size:
            raise DamagedError(f"has GPU code at byte {at} that claims {body} bytes, more than its section has")
        if count > _MOST_CONTAINERS:
            raise DamagedError(f"has more than {_MOST_CONTAINERS} containers of GPU code in a section")
        yield Container(head_size + body, tuple(_entries(read, at + head_size, body)))
        at += (head_size + body + 7) // 8 * 8


def _entries(read: Read, begin: int, size: int) -> Iterator[Entry]:
    at, end, count = begin, begin + size, 0
    while end - at >= _ENTRY.size:
        head = read(at, _ENTRY.size)
        if len(head) < _ENTRY.size:
            raise DamagedError(f"ends within the GPU code at byte {at}")
        kind, _, head_size, payload, packed, _, minor, major, number, _, _, flags, _, _ = _ENTRY.unpack(head)
        if head_size < _ENTRY.size or head_size + payload > end - at:
            raise DamagedError(f"has an entry of GPU code at byte {at} that claims more bytes than its container has")
        count += 1
        if count > _MOST_ENTRIES:
            raise DamagedError(f"has more than {_MOST_ENTRIES} entries in the GPU code at byte {begin}")
        if kind in (PTX, NATIVE):
            version = f"{major}.{minor}" if kind == PTX else ""
            yield Entry(kind, _capability(number, flags), version, flags, at + head_size, min(payload, packed or payload))
        at += head_size + payload


def _capability(number: int, flags: int) -> str:
    if flags & _UNKNOWN or (flags & _EXACT and flags & _FAMILY):
        raise DamagedError(
            f"has GPU code for {number // 10}.{number % 10} with marks that no known compiler makes ({flags:#x})"
        )
    suffix = "a" if flags & _EXACT else "f" if flags & _FAMILY else ""
    return f"{number // 10}.{number % 10}{suffix}"
