"""Compares Debian package versions as dpkg does: https://www.debian.org/doc/debian-policy/ch-controlfields.html#version.

python-debian has the same comparison; with this module, envbuild does not depend on python-debian. Tests compare the results of
this module with the results of dpkg.
"""

from __future__ import annotations

import functools
import re
from itertools import zip_longest

_FORM = re.compile(r"(?:(?P<epoch>\d+):)?(?P<upstream>[A-Za-z0-9.+:~-]*?)(?:-(?P<revision>[A-Za-z0-9.+~]*))?")
_PIECES = re.compile(r"(?P<words>\D*)(?P<number>\d*)")

_LONGEST = 500  # no real version has more than about 60 characters


class BadVersionError(ValueError):
    """The text is not a valid version of a Debian package."""


@functools.total_ordering
class DebianVersion:
    """A version that sorts as in dpkg. Raises :class:`BadVersionError` for a text that is not a version."""

    def __init__(self, text: str) -> None:
        match = _FORM.fullmatch(text.strip()) if len(text) <= _LONGEST else None
        if match is None or not match["upstream"] or match["revision"] == "" or (match["epoch"] is None and ":" in text):
            raise BadVersionError(f"{text[:60]!r} is not the version of a Debian package")
        self._key = (int(match["epoch"] or 0), _parts(match["upstream"]), _parts(match["revision"] or ""))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DebianVersion) and not self < other and not other < self

    def __lt__(self, other: DebianVersion) -> bool:
        if self._key[0] != other._key[0]:
            return self._key[0] < other._key[0]
        return (_compare(self._key[1], other._key[1]) or _compare(self._key[2], other._key[2])) < 0

    __hash__ = None  # type: ignore[assignment] # 1.0 and 1.00 are equal


def _parts(text: str) -> tuple[tuple[str, int], ...]:
    """Split ``text`` into alternating words and numbers; a missing number counts as 0."""
    found = ((match["words"], int(match["number"] or 0)) for match in _PIECES.finditer(text) if match[0])
    return tuple(found)


def _compare(ours: tuple[tuple[str, int], ...], theirs: tuple[tuple[str, int], ...]) -> int:
    for (word, number), (other_word, other_number) in zip_longest(ours, theirs, fillvalue=("", 0)):
        order, other_order = _order(word), _order(other_word)
        if order != other_order:
            return -1 if order < other_order else 1
        if number != other_number:
            return -1 if number < other_number else 1
    return 0


def _order(word: str) -> tuple[int, ...]:
    """Return sort keys for the characters of ``word`` and for its end.

    ``~`` sorts before the end, the end before letters, and letters before all other characters.
    """
    return (*(-1 if sign == "~" else ord(sign) if sign.isalpha() else ord(sign) + 256 for sign in word), 0)
