"""Compares the licences that a package states with the licences that a policy allows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

from envbuild.policy.model import Allowed

_WORDS = re.compile(r"\(|\)|[^()\s]+")


def problem(stated: Sequence[str], rule: Allowed) -> str:
    """Return the reason why one of the licences in ``stated`` is not allowed; empty if all of them are allowed.

    A licence that has the form of an SPDX expression is evaluated: in ``A OR B`` one of the licences must be allowed, and in
    ``A AND B`` both. Any other text is compared as a whole. Upper and lower case make no difference, also for ``or`` and
    ``and``, as Debian's copyright files have them.
    """
    return next((why for each in stated if (why := _of_one(each, rule))), "")


def _of_one(text: str, rule: Allowed) -> str:
    words = _WORDS.findall(text)
    if {"AND", "OR", "WITH"} & {word.upper() for word in words}:
        try:
            reader = _Reader(words, rule)
            why = reader.either()
        except (IndexError, RecursionError):
            return _of_name(text, rule)
        return why if reader.is_finished else _of_name(text, rule)
    return _of_name(text, rule)


def _of_name(name: str, rule: Allowed) -> str:
    lower = name.lower()
    if any(fnmatchcase(lower, each.lower()) for each in rule.denied):
        return f"the licence {name!r} is denied"
    if rule.allowed and not any(fnmatchcase(lower, each.lower()) for each in rule.allowed):
        return f"the licence {name!r} is not allowed"
    return ""


class _Reader:
    """Evaluates an SPDX expression, in which AND has precedence over OR."""

    def __init__(self, words: list[str], rule: Allowed) -> None:
        self._words, self._at, self._rule = words, 0, rule

    @property
    def is_finished(self) -> bool:
        return self._at == len(self._words)

    def _next_is(self, word: str) -> bool:
        found = not self.is_finished and self._words[self._at].upper() == word
        self._at += found
        return found

    def either(self) -> str:
        """Return the reasons why no alternative of an OR is allowed. The text is empty if an alternative is allowed."""
        reasons = [self._all()]
        while self._next_is("OR"):
            reasons.append(self._all())
        return "" if "" in reasons else " and ".join(dict.fromkeys(reasons))

    def _all(self) -> str:
        reasons = [self._one()]
        while self._next_is("AND"):
            reasons.append(self._one())
        return next(filter(None, reasons), "")

    def _one(self) -> str:
        if self._next_is("("):
            why = self.either()
            if not self._next_is(")"):
                raise IndexError
            return why
        name = self._words[self._at]
        if name.upper() in ("AND", "OR", "WITH", ")"):
            raise IndexError
        self._at += 1
        if self._next_is("WITH"):
            name = f"{name} WITH {self._words[self._at]}"
            self._at += 1
        return _of_name(name, self._rule)
