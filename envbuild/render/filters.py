"""Filters that make values safe for their place in a Dockerfile. Every value that a template prints must pass through a filter.

A filter returns :class:`markupsafe.Markup`, and the Jinja environment refuses to print anything else. So a template without
a filter fails at once, and no value is printed unchecked.
"""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

from markupsafe import Markup

from envbuild.errors import InvalidInputError

# A text that is one word for both a Dockerfile and a shell: neither of them expands, splits or ends the text, removes quotes
# from it, or reads it as an option.
_WORD = re.compile(r"[A-Za-z0-9/._][A-Za-z0-9/._:@+=~%,-]*")
_CONTROL = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]")


def word(value: object) -> Markup:
    """Return ``value`` unchanged if it is one plain word; else raise an error."""
    text = str(value)
    if not _WORD.fullmatch(text):
        raise _refused(text, "a plain word (letters, digits and / . _ : @ + = ~ % , -)")
    return Markup(text)  # noqa: S704 - checked above


def comment(value: object) -> Markup:
    """Return ``value`` for use in a comment. ``value`` may be any text of one line."""
    return Markup(_one_line(value))  # noqa: S704 - a comment is never executed


def sh(value: object) -> Markup:
    """Return ``value`` as one quoted word of a shell command. Text that opens a here-document is refused, because only newer
    Dockerfile frontends have here-documents."""
    text = _one_line(value)
    if "<<" in text or text.endswith("\\"):
        raise _refused(text, "text for a shell command")
    return Markup(shlex.quote(text))  # noqa: S704 - quoted


def quoted(value: object) -> Markup:
    """Return ``value`` as a double-quoted value of ENV, ARG or LABEL, in which nothing is expanded."""
    text = _one_line(value).replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$")
    return Markup(f'"{text}"')  # noqa: S704 - quoted


def as_json(value: object) -> Markup:
    """Return ``value`` as a JSON string, for the exec form of instructions such as CMD."""
    return Markup(json.dumps(_one_line(value)))  # noqa: S704 - quoted


def only_filtered(value: Any) -> Any:
    """The ``finalize`` function of the Jinja environment. A value that passed no filter is a bug in a template, so the function
    raises an error that is not meant for users."""
    if not isinstance(value, Markup):
        raise TypeError(f"a template prints {value!r} without a filter that checks and quotes it")
    return value


def _one_line(value: object) -> str:
    text = str(value)
    if _CONTROL.search(text):
        raise _refused(text, "one line without control characters")
    return text


def _refused(text: str, expected: str) -> InvalidInputError:
    return InvalidInputError(
        f"{text!r} cannot be written into a Dockerfile: {expected} is expected here.",
        code="unsafe-value",
        hint="Correct the matrix row, the recipe or the lock that contains this text.",
    )
