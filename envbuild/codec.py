"""Convert frozen dataclasses to JSON values and back, strictly: each unknown or missing key is an error that names the path of
the key."""

from __future__ import annotations

import dataclasses
import functools
import json
import types
import typing
from typing import Any, TypeVar

from envbuild.errors import InvalidInputError, Problem

T = TypeVar("T")
_MOST_PROBLEMS = 50  # maximum number of problems to show; a damaged file can have a million
_SHOWN = 80  # maximum characters of a wrong value to show


def encode(value: Any) -> Any:
    """Convert dataclasses, named tuples, tuples and dicts to JSON values; keys keep their declared order.

    A field with ``left_out_if_default`` in its metadata is left out if it has its default value, so that a new field does not
    change old files. A value whose class has ``to_line`` and ``from_line`` becomes one line of text, unless ``to_line`` returns
    None.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        line = value.to_line() if hasattr(value, "to_line") else None
        if line is not None:
            return line
        return {
            field.name: encode(found)
            for field in dataclasses.fields(value)
            if (found := getattr(value, field.name)) != field.default or "left_out_if_default" not in field.metadata
        }
    if hasattr(value, "_asdict"):
        return encode(value._asdict())
    if isinstance(value, tuple | list):
        return [encode(item) for item in value]
    if isinstance(value, dict):
        return {key: encode(item) for key, item in value.items()}
    return value


def dumps(value: Any) -> str:
    """Return the JSON text of committed files. It has an indent of two spaces, keys in the declared order, and a final
    newline."""
    return json.dumps(encode(value), indent=2, ensure_ascii=False) + "\n"


def loads(text: str | bytes) -> Any:
    """Parse JSON strictly. Raises ValueError with a readable message.

    In contrast to Python's parser it refuses NaN, infinite numbers, duplicate keys, and values nested so deeply that parsing
    raises RecursionError.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8")  # json would guess the encoding and also accept UTF-16 and UTF-32
    try:
        return json.loads(text, parse_constant=_no_number, parse_float=_finite, object_pairs_hook=_distinct)
    except RecursionError:
        raise ValueError("its values are nested too deeply") from None


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError(f"the number {text[:40]} is too large")
    return number


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"an object has the key {key[:_SHOWN]!r} twice")
        found[key] = value
    return found


def decode(kind: type[T], data: Any, where: str) -> T:
    """Convert ``data`` to the type ``kind``.

    Raises :class:`InvalidInputError`, which lists every problem with its path inside the file ``where``.
    """
    problems: list[Problem] = []
    value = _read(kind, data, where, problems)
    if problems:
        raise InvalidInputError(
            f"{where} does not have the expected form.",
            hint="envbuild writes this file: generate it again instead of editing it.",
            problems=problems[:_MOST_PROBLEMS],
        )
    return typing.cast(T, value)


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _read(kind: Any, data: Any, where: str, problems: list[Problem]) -> Any:  # noqa: PLR0911 - one case per kind
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        return _read_dataclass(typing.cast(type, kind), data, where, problems)
    if origin in (typing.Union, types.UnionType):
        if data is None and type(None) in args:
            return None
        return _read(next(a for a in args if a is not type(None)), data, where, problems)
    if origin is tuple:
        if not isinstance(data, list):
            return _wrong(where, "a list", data, problems)
        return tuple(_read(args[0], item, f"{where}[{i}]", problems) for i, item in enumerate(data))
    if origin is dict:
        if not isinstance(data, dict):
            return _wrong(where, "an object", data, problems)
        return {key: _read(args[1], item, f"{where}.{key}", problems) for key, item in data.items()}
    if origin is typing.Literal:
        return data if data in args else _wrong(where, f"one of {', '.join(map(str, args))}", data, problems)
    if kind is Any or (isinstance(data, kind) and not (kind is int and isinstance(data, bool))):
        return data
    return _wrong(where, f"a {kind.__name__}", data, problems)


def _read_dataclass(kind: type, data: Any, where: str, problems: list[Problem]) -> Any:
    if isinstance(data, str) and hasattr(kind, "from_line"):
        try:
            return kind.from_line(data)
        except ValueError as error:
            return _wrong(where, str(error), data, problems)
    if not isinstance(data, dict):
        return _wrong(where, "an object", data, problems)
    hints = _hints(kind)
    fields = {f.name: f for f in dataclasses.fields(kind)}
    problems.extend(Problem(where=f"{where}.{key}", line=0, message="unknown key") for key in data.keys() - fields.keys())
    values: dict[str, Any] = {}
    for name, field in fields.items():
        if name in data:
            values[name] = _read(hints[name], data[name], f"{where}.{name}", problems)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            problems.append(Problem(where=f"{where}.{name}", line=0, message="missing"))
    return None if problems else kind(**values)


def _wrong(where: str, expected: str, data: Any, problems: list[Problem]) -> None:
    shown = repr(data)
    shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"
    problems.append(Problem(where=where[:200], line=0, message=f"expected {expected}, found {shown}"))
