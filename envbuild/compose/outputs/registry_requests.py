"""Parts of requests to a registry: bodies that can be sent several times, the address that finishes an upload, and how long to
wait for an answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator

_SILENCE_S = 60
_LAYER_SILENCE_S = 300  # after a layer was sent: a registry reads the whole layer again before it answers
_FIRST_SILENCE_S = 30  # for the first answer of a host


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


def patience(method: str, url: str, *, is_first: bool) -> float:
    """For how many seconds a registry may be silent before it answers a request. ``is_first`` is true if it never answered."""
    if is_first:
        return _FIRST_SILENCE_S
    return _LAYER_SILENCE_S if method in ("PUT", "PATCH") and "/manifests/" not in url else _SILENCE_S
