"""Load the matrix, from a compiled copy if one exists that the same program made from the same bytes.

The copy is believed only if every source file still has the recorded hash. Each table, and each framework's releases, are read
from it when they are first looked at: most requests look at a few tables and at one or two frameworks, however many there are.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envbuild import disk_cache, files
from envbuild.disk_cache import Kept
from envbuild.matrix.lazy_rows import Later
from envbuild.workspace import Workspace

if TYPE_CHECKING:
    from envbuild.matrix.types import Matrix


@functools.cache
def _classes() -> tuple[Any, ...]:
    """The classes of rows, in an order that is fixed for one version of the program."""
    from envbuild.matrix import platform, types

    return tuple(
        value
        for module in (platform, types)
        for value in vars(module).values()
        if isinstance(value, type) and value.__module__ == module.__name__
    )


def load(workspace: Workspace, overlays: Sequence[Path] = ()) -> Matrix:
    """Return the matrix of ``workspace`` with its overlays and then ``overlays``. Without a writable home this is slower.

    Raises :class:`InvalidInputError` with all problems of all files, also contradictions between overlays and the matrix.
    """
    overlays = [*workspace.overlays, *overlays]
    cache, program = _copy_of(workspace, overlays)
    copy = _believed(cache, workspace.matrix, program)
    found = _unpacked(copy) if copy is not None else None
    if found is None:
        found, sources = _compile(workspace.matrix, overlays)
        _require_sound(found, overlays)
        hashes = {name: _digest(content) for name, content in sources.items()}
        disk_cache.keep(cache, program, _parts(found), {"fingerprint": found.fingerprint, "sources": hashes})
    return found


def fingerprint(workspace: Workspace) -> str:
    """:attr:`Matrix.fingerprint` of the matrix of ``workspace``; its rows are not read if there is a compiled copy."""
    cache, program = _copy_of(workspace, workspace.overlays)
    copy = _believed(cache, workspace.matrix, program)
    return str(copy.about["fingerprint"]) if copy is not None else load(workspace).fingerprint


def _copy_of(workspace: Workspace, overlays: Sequence[Path]) -> tuple[Path, str]:
    """Return the path of the compiled copy, and the digest of the program that must have made it."""
    program = disk_cache.program(Path(__file__).parent, Path(__file__).parent.parent / "yaml_reader.py")
    identity = json.dumps([program, str(workspace.matrix), *(str(path.absolute()) for path in overlays)])
    return workspace.matrix_cache / f"{hashlib.sha256(identity.encode()).hexdigest()[:32]}.json", program


def _require_sound(found: Matrix, overlays: Sequence[Path]) -> None:
    """Refuse overlays whose rows contradict others. `matrix check` has checked the matrix's own rows."""
    if not overlays:
        return
    from envbuild.matrix import checks
    from envbuild.matrix.reading.loader import overlay_name
    from envbuild.yaml_reader import raise_for

    theirs = {overlay_name(path) for path in overlays}
    raise_for([problem for problem in checks.check(found) if problem.where in theirs], "The overlay")


def load_files(entry: Path, overlays: Sequence[Path] = ()) -> Matrix:
    """The matrix of an entry file, read from YAML every time."""
    return _compile(entry, overlays)[0]


def _compile(entry: Path, overlays: Sequence[Path]) -> tuple[Matrix, Mapping[str, bytes]]:
    from envbuild.matrix.reading.loader import compile_matrix, overlay_name, read_sources

    sources = read_sources(entry, overlays)
    return compile_matrix(sources, [overlay_name(path) for path in overlays]), sources


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _parts(matrix: Matrix) -> Iterator[list[Any]]:
    """The matrix with its tables and its frameworks' releases taken out, then those, the tables first."""
    frameworks = tuple(table._replace(releases=()) for table in matrix.frameworks)
    without: dict[str, Any] = dict.fromkeys(_tables(matrix), ())
    yield pack(matrix._replace(frameworks=frameworks, **without))
    for name in _tables(matrix):
        yield pack(tuple(getattr(matrix, name)))
    for table in matrix.frameworks:
        yield pack(tuple(table.releases))


def _believed(cache: Path, entry: Path, program: str) -> Kept | None:
    """Return the compiled copy, or None if there is none for the current sources."""
    found = disk_cache.recall(cache, program)
    if found is None:
        return None
    try:
        sources = found.about["sources"].items()
        is_current = all(_digest(files.read_bytes(entry.parent / name)) == digest for name, digest in sources)
    except (OSError, LookupError, TypeError, AttributeError):
        return None
    return found if is_current else None


def _unpacked(found: Kept) -> Matrix | None:
    """Return the matrix of a compiled copy, or None if the copy is damaged."""
    try:
        matrix: Matrix = unpack(found.part(0))
    except (ValueError, LookupError, TypeError, AttributeError):
        return None

    def rows(number: int) -> tuple[Any, ...]:
        read: tuple[Any, ...] = unpack(found.part(number))
        return read

    numbers = itertools.count(1)
    tables: dict[str, Any] = {name: Later(rows, next(numbers)) for name in _tables(matrix)}
    frameworks = tuple(table._replace(releases=Later(rows, next(numbers))) for table in matrix.frameworks)
    return matrix._replace(frameworks=frameworks, **tables)


def _tables(matrix: Matrix) -> list[str]:
    """The tables that are read when they are first looked at. Every request looks at the names of all frameworks."""
    return [name for name in matrix._fields if name not in ("fingerprint", "policy", "frameworks")]


def pack(value: Any) -> list[Any]:
    """A value of the tables as JSON: objects (class, fields), then the value; later ones refer to earlier by ``{"": n}``.

    Equal objects are written once.
    """
    objects: list[Any] = []
    seen: dict[tuple[type, Any], int] = {}
    classes = {kind: number for number, kind in enumerate(_classes())}

    def place(item: Any) -> Any:
        kind = type(item)
        if kind is tuple:
            return [place(part) for part in item]
        if kind not in classes:
            return item
        if (kind, item) not in seen:
            objects.append([classes[kind], *map(place, item)])
            seen[kind, item] = len(objects) - 1
        return {"": seen[kind, item]}

    objects.append([-1, place(value)])
    return objects


def unpack(objects: list[Any]) -> Any:
    """The value that :func:`pack` was given. Raises one of the usual errors of Python if the list is not such a value."""
    built: list[Any] = []

    def restore(item: Any) -> Any:
        if type(item) is list:
            return tuple([restore(part) for part in item])
        return built[item[""]] if type(item) is dict else item

    makers = [kind._make for kind in _classes()]
    *rows, (_, whole) = objects
    for index, *fields in rows:
        built.append(makers[index]([restore(each) if type(each) in (list, dict) else each for each in fields]))
    return restore(whole)
