"""Rows that are read when they are first used."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar, overload

Row = TypeVar("Row")


class Later(Sequence[Row]):
    """The rows that ``read(number)`` returns, read when they are first used."""

    __slots__ = ("_number", "_read", "_rows")

    def __init__(self, read: Callable[[int], tuple[Row, ...]], number: int) -> None:
        self._read, self._number = read, number
        self._rows: tuple[Row, ...] | None = None

    @property
    def rows(self) -> tuple[Row, ...]:
        """All rows."""
        if self._rows is None:
            self._rows = self._read(self._number)
        return self._rows

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Row, ...]: ...
    def __getitem__(self, index: int | slice) -> Row | tuple[Row, ...]:
        return self.rows[index]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __eq__(self, other: object) -> bool:
        return self.rows == (other.rows if isinstance(other, Later) else other)

    def __hash__(self) -> int:
        return hash(self.rows)
