"""Bodies of requests to a registry. Each body can be sent several times."""

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
