"""Reads YAML strictly: every problem of a document is collected with its line, and nothing is guessed.

Duplicate and unknown keys, anchors, tags, and plain scalars that YAML would convert to another value (``12.10`` becomes 12.1)
are problems. A document is composed once into nodes, which keep their positions; :class:`Table` then reads typed values from
the nodes. The methods of :class:`Table` never raise: they note the problem and return an empty value. So one pass finds all
problems, and the caller raises one error for all problems.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Collection, Iterator
from typing import Any, TypeVar

import yaml

from envbuild.errors import InvalidInputError, Problem

T = TypeVar("T")

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG = "tag:yaml.org,2002:"
_KINDS = {
    "str": "text",
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "null": "nothing",
    "timestamp": "a date",
}
_DATE = re.compile(r"\d{4}-\d\d(-\d\d)?")
_INTEGER = re.compile(r"[0-9]{1,18}")  # no number in these files has more digits
_MOST = 1_000_000  # no count in these files is larger
_MAX_DEPTH = 40  # more than any format needs; a deeper hostile document could exhaust the stack


class Table:
    """A mapping of the document. Each method that reads a key marks this key as known; :meth:`finish` reports the keys that no
    method read."""

    def __init__(self, node: yaml.MappingNode, where: str, problems: list[Problem], path: str = "") -> None:
        self.where = where
        self.path = path
        self.line = node.start_mark.line + 1
        self._problems = problems
        self._known: set[str] = set()
        self._items: dict[str, yaml.Node] = {}
        self._lines: dict[str, int] = {}
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                self._items[key.value] = value
                self._lines[key.value] = key.start_mark.line + 1

    def __contains__(self, key: str) -> bool:
        return key in self._items

    def keys(self) -> list[str]:
        """The keys as written, in their order."""
        return list(self._items)

    def line_of(self, key: str) -> int:
        """The line of ``key``, or the line of the table if the table does not have this key."""
        return self._lines.get(key, self.line)

    def problem(self, message: str, key: str = "") -> None:
        """Note a problem of this table, or of one of its keys."""
        place = ".".join(part for part in (self.path, key) if part)
        text = f"{place}: {message}" if place else message
        self._problems.append(Problem(where=self.where, line=self.line_of(key), message=text))

    def text(self, key: str, default: str | None = None, *, choices: Collection[str] = (), pattern: str = "") -> str:
        """Read a text; values that YAML would convert are refused. The key is required if no ``default`` is given. ``pattern``
        must match the whole text."""
        node = self._take(key, required=default is None)
        if node is None:
            return default or ""
        value = self._scalar(node, key)
        if value is None:
            return default or ""
        if not value and not (pattern and re.fullmatch(pattern, "")):
            self.problem("text expected, found nothing", key)
        elif choices and value not in choices:
            self.problem(f"{value!r} is not one of {', '.join(sorted(choices))}", key)
        elif pattern and not re.fullmatch(pattern, value):
            self.problem(f"{value!r} does not have the expected form", key)
        else:
            return value
        return default or ""

    def choice(self, key: str, choices: Collection[str], default: str | None = None) -> Any:
        """Read one of ``choices``. The return type is ``Any``, because callers assign the value to fields of a ``Literal``
        type."""
        return self.text(key, default, choices=choices)

    def date(self, key: str, default: str | None = None) -> str:
        """A date in ISO form, with or without the day. The date may be plain or quoted, because this reader does not convert
        it."""
        node = self._take(key, required=default is None)
        if node is None:
            return default or ""
        value = self._scalar(node, key, also=("timestamp",))
        if value is not None and not _is_date(value):
            self.problem(f"{value!r} is not a date such as 2018-11-05", key)
            return default or ""
        return value or ""

    def schema(self, known: int) -> None:
        """Note a problem if the file's ``schema`` is not ``known``, the version that this program can read."""
        if self.integer("schema") != known:
            self.problem(f"schema must be {known}: this envbuild can read no other schema", "schema")

    def own_name(self, key: str, *, pattern: str, of: str, place: str) -> str:
        """Read the name that a file states for itself. The name must equal ``of``, the name of the file or of its folder.
        ``place`` is the word for messages, ``file`` or ``folder``."""
        name = self.text(key, pattern=pattern)
        if name and name != of:
            self.problem(f"must be {of!r}, the name of the {place}, not {name!r}", key)
        return name

    def integer(self, key: str, default: int | None = None, *, least: int = 0, most: int = _MOST) -> int:
        """A plain integer, from ``least`` to ``most``."""
        value = self._plain(key, ("int",), _INTEGER.fullmatch, required=default is None)
        if value and not least <= int(value) <= most:
            self.problem(f"{value} is not between {least} and {most}", key)
            return default or 0
        return int(value) if value else default or 0

    def integers(self, key: str, *, least: int = 0, most: int = _MOST) -> tuple[int, ...]:
        """A list of plain integers, each from ``least`` to ``most``. No integer may occur twice."""
        node = self._take(key, required=False)
        found: list[int] = []
        for item in self._sequence(node, key) if node is not None else ():
            text = item.value if isinstance(item, yaml.ScalarNode) and item.tag.removeprefix(_TAG) == "int" else ""
            if not _INTEGER.fullmatch(text):
                self.problem(f"integers expected, found {getattr(item, 'value', None)!r}", key)
            elif not least <= int(text) <= most:
                self.problem(f"{text} is not between {least} and {most}", key)
            elif int(text) in found:
                self.problem(f"{text} is listed twice", key)
            else:
                found.append(int(text))
        return tuple(found)

    def number(self, key: str, *, most: float = _MOST) -> float | None:
        """A plain number above 0 and not above ``most``, or None if the key is absent."""
        value = self._plain(key, ("int", "float"), re.compile(r"\d{1,99}(\.\d{1,99})?").fullmatch, required=False)
        if value and not 0 < float(value) <= most:
            self.problem(f"{value} is not above 0 and at most {most:g}", key)
            return None
        return float(value) if value else None

    def boolean(self, key: str, default: bool = False) -> bool:
        """``true`` or ``false``; no other spelling is accepted."""
        value = self._plain(key, ("bool",), {"true", "false"}.__contains__, required=False)
        return value == "true" if value else default

    def texts(self, key: str, *, required: bool = False, pattern: str = "", one: bool = False) -> tuple[str, ...]:
        """A list of texts. With ``one``, a single text is allowed instead of a list with one text."""
        node = self._take(key, required=required)
        if node is None:
            return ()
        if one and isinstance(node, yaml.ScalarNode):
            value = self._scalar(node, key)
            return () if value is None else (value,)
        found: list[str] = []
        for index, item in enumerate(self._sequence(node, key)):
            value = self._scalar(item, f"{key}[{index}]")
            if value == "":
                self.problem("text expected, found nothing", key)
            elif value is not None and pattern and not re.fullmatch(pattern, value):
                self.problem(f"{value!r} does not have the expected form", key)
            elif value is not None:
                if value in found:
                    self.problem(f"{value!r} is listed twice", key)
                found.append(value)
        if (required or one) and isinstance(node, yaml.SequenceNode) and not node.value:
            self.problem("the list is empty; it needs at least one entry", key)
        return tuple(found)

    def table(self, key: str, *, required: bool = False) -> Table | None:
        """The mapping under ``key``, or None if the key is absent."""
        node = self._take(key, required=required)
        return None if node is None else self._mapping(node, key)

    def tables(self, key: str, *, required: bool = False) -> list[Table]:
        """A list of mappings."""
        node = self._take(key, required=required)
        if node is None:
            return []
        found = [self._mapping(item, f"{key}[{index}]") for index, item in enumerate(self._sequence(node, key))]
        return [table for table in found if table is not None]

    def named_tables(self, key: str, *, required: bool = False) -> list[tuple[str, Table]]:
        """A mapping whose keys are any names, and whose values are mappings."""
        names = self.table(key, required=required)
        if names is None:
            return []
        found = [(name, names.table(name, required=True)) for name in names.keys()]  # noqa: SIM118 - not a dict
        return [(name, table) for name, table in found if table is not None]

    def text_map(self, key: str) -> dict[str, str]:
        """A mapping from any names to texts."""
        names = self.table(key)
        return {} if names is None else {name: names.text(name) for name in names.keys()}  # noqa: SIM118 - not a dict

    def mixed(self, key: str, convert_text: Callable[[str], T], convert_table: Callable[[Table], T]) -> tuple[T, ...]:
        """A list whose items are texts or mappings. Each item is converted by the function for its kind."""
        node = self._take(key, required=False)
        if node is None:
            return ()
        found: list[T] = []
        for index, item in enumerate(self._sequence(node, key)):
            if isinstance(item, yaml.MappingNode):
                found.append(convert_table(Table(item, self.where, self._problems, f"{self.path}.{key}[{index}]".lstrip("."))))
            elif (value := self._scalar(item, f"{key}[{index}]")) is not None:
                if not value:
                    self.problem("text expected, found nothing", key)
                found.append(convert_text(value))
        return tuple(found)

    def allow(self, *keys: str) -> None:
        """Mark keys as known, so that :meth:`finish` does not report them: other code reads them, or they are overridden."""
        self._known.update(keys)

    def refuse(self, keys: Collection[str], why: str) -> None:
        """Record the problem ``why`` for each of ``keys`` that this table has. Other tables may have these keys."""
        self.allow(*keys)
        for key in keys:
            if key in self:
                self.problem(why, key)

    def is_text(self, key: str) -> bool:
        """Whether the value under ``key`` is a scalar. Readers of fields with a short form (a scalar) and a long form (a
        mapping) ask this."""
        return isinstance(self._items.get(key), yaml.ScalarNode)

    def value_of(self, key: str) -> str:
        """The scalar under ``key`` as written, for fields that take a number or a word. The result is empty for any other
        value."""
        node = self._items.get(key)
        return str(node.value) if isinstance(node, yaml.ScalarNode) else ""

    def finish(self) -> None:
        """Report every key that no method read, with the most similar known key."""
        for key in self._items.keys() - self._known:
            import difflib

            near = difflib.get_close_matches(key, self._known, n=1)
            self.problem(f"unknown key{f', did you mean {near[0]}?' if near else ''}", key)

    def _take(self, key: str, *, required: bool) -> yaml.Node | None:
        self._known.add(key)
        node = self._items.get(key)
        if node is None and required:
            self.problem(f"{key} is missing")
        return node

    def _scalar(self, node: yaml.Node, key: str, also: tuple[str, ...] = ()) -> str | None:
        if not isinstance(node, yaml.ScalarNode):
            self.problem("text expected, found a list or a mapping", key)
            return None
        kind = node.tag.removeprefix(_TAG)
        if kind == "str" or kind in also:
            return str(node.value)
        if kind == "null":
            self.problem("text expected, found nothing", key)
        else:
            self.problem(f'YAML reads {node.value} as {_KINDS.get(kind, kind)}: quote it, "{node.value}"', key)
        return None

    def _plain(self, key: str, kinds: tuple[str, ...], good: Callable[[str], object], *, required: bool) -> str:
        node = self._take(key, required=required)
        if node is None:
            return ""
        if isinstance(node, yaml.ScalarNode) and node.tag.removeprefix(_TAG) in kinds and good(node.value):
            return str(node.value)
        found = repr(node.value) if isinstance(node, yaml.ScalarNode) else "a list or a mapping"
        self.problem(f"{_KINDS[kinds[-1]]} expected, found {found}", key)
        return ""

    def _sequence(self, node: yaml.Node, key: str) -> list[yaml.Node]:
        if isinstance(node, yaml.SequenceNode):
            return list(node.value)
        self.problem("a list is expected", key)
        return []

    def _mapping(self, node: yaml.Node, key: str) -> Table | None:
        if isinstance(node, yaml.MappingNode):
            return Table(node, self.where, self._problems, f"{self.path}.{key}".lstrip("."))
        self.problem("a mapping is expected", key)
        return None


def _is_date(text: str) -> bool:
    try:
        return bool(_DATE.fullmatch(text) and datetime.date.fromisoformat(text if len(text) > len("2018-11") else f"{text}-01"))
    except ValueError:
        return False


def load(content: bytes | str, where: str, problems: list[Problem]) -> Table | None:
    """The document's top mapping, or None if the document is too broken to read further. Problems are added to the list."""
    try:
        text = content.decode() if isinstance(content, bytes) else content
        _refuse_depth(text)
        node = yaml.compose(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        message = " ".join(part for part in (error.context, error.problem) if part)
        line = min(mark.line + 1, len(f"{text} ".splitlines())) if mark else 0  # the position may be beyond the last line
        problems.append(Problem(where=where, line=line, message=f"not YAML: {message}"))
        return None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        problems.append(Problem(where=where, line=line, message=f"not UTF-8: {error.reason}"))
        return None
    except yaml.reader.ReaderError as error:
        line = text.encode()[: error.position].count(b"\n") + 1
        problems.append(Problem(where=where, line=line, message=f"not YAML: {error.reason}"))
        return None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        problems.append(Problem(where=where, line=0, message=f"not YAML: {str(error).splitlines()[0]}"))
        return None
    if not isinstance(node, yaml.MappingNode):
        problems.append(Problem(where=where, line=1, message="the document must be a mapping"))
        return None
    problems.extend(_structure(node, where))
    return Table(node, where, problems)


def raise_for(problems: list[Problem], what: str, then: str = "", *, is_plural: bool = False) -> None:
    """Raise one :class:`InvalidInputError` with all problems, in the order of files and lines, if there are any.

    ``what`` is the subject of the error's sentence; ``is_plural`` says whether ``what`` is plural. ``then`` is the end of the
    hint: it says what will be checked after these problems are solved.
    """
    if not problems:
        return
    unique = sorted(set(problems), key=lambda problem: (problem.where, problem.line, problem.message))
    count = f"{len(unique)} problems; the first" if len(unique) > 1 else "a problem"
    raise InvalidInputError(
        f"{what} {'have' if is_plural else 'has'} {count}: {unique[0]}",
        hint=f"Correct the named lines, and run the command again{then}.",
        problems=unique,
    )


def _refuse_depth(text: str) -> None:
    """Refuse text that is nested too deeply. This check comes before composing: composing recurses in C, so a document of many
    brackets would crash the process."""
    depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > _MAX_DEPTH:
                mark: Any = event.start_mark
                raise yaml.MarkedYAMLError(problem=f"nested deeper than {_MAX_DEPTH} levels", problem_mark=mark)
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _structure(root: yaml.Node, where: str) -> Iterator[Problem]:
    """Find problems that the methods of :class:`Table` would not see: repeated keys, keys that are not text, anchors, tags."""
    seen: set[int] = set()
    stack: list[yaml.Node] = [root]
    while stack:
        node = stack.pop()
        line = node.start_mark.line + 1
        if id(node) in seen:
            yield Problem(
                where=where, line=line, message="anchors and aliases are not supported here: repeat the value instead"
            )
            continue
        seen.add(id(node))
        if node.tag.removeprefix(_TAG) not in (*_KINDS, "map", "seq"):
            yield Problem(where=where, line=line, message=f"the tag or key {node.tag.removeprefix(_TAG)} is not supported here")
        if isinstance(node, yaml.SequenceNode):
            stack.extend(node.value)
        elif isinstance(node, yaml.MappingNode):
            yield from _keys(node, where)
            stack.extend(value for _, value in node.value)


def _keys(node: yaml.MappingNode, where: str) -> Iterator[Problem]:
    first: dict[str, int] = {}
    for key, _ in node.value:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode) or key.tag != f"{_TAG}str":
            remedy = f"put {key.value} in quotes" if isinstance(key, yaml.ScalarNode) else "it is a list or a mapping"
            yield Problem(where=where, line=line, message=f"this key must be text: {remedy}")
        elif key.value in first:
            yield Problem(where=where, line=line, message=f"{key.value} is repeated; first on line {first[key.value]}")
        else:
            first[key.value] = line
