"""Parts of requests to a registry: bodies that can be sent several times, and the address that finishes an upload."""

from __future__ import annotations

from collections.abc import Callable, Iterator


class Body:
    """A request body whose length is known before it is sent."""

    def __init__(self, size: int, read: Callable[[], Iterator[bytes]]) -> None:
        self._size = size
        self._read = read

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[bytes]:
        return self._read()


class Unsized:
    """A request body whose length is not known before it is sent."""

    def __init__(self, read: Callable[[], Iterator[bytes]]) -> None:
        self._read = read

    def __iter__(self) -> Iterator[bytes]:
        return self._read()


def with_digest(location: str, digest: str) -> str:
    """The address of the request that finishes the upload at ``location``."""
    return f"{location}{'&' if '?' in location else '?'}digest=sha256:{digest}"
