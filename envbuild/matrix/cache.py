"""Load the matrix. A compiled copy is used if the same version of the program made the copy from the same files.

The copy records the hashes of the files, and a stamp made from their sizes and times. The files count as unchanged if the stamp
or the hashes are still the same. So a copy that was made for one checkout serves other checkouts with the same files. Each
table of the copy is read on first use, and so are the releases of each framework. Most requests use only a few tables and one
or two frameworks.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envbuild import disk_cache, files
from envbuild.disk_cache import CachedParts
from envbuild.matrix.lazy_rows import Later
from envbuild.workspace import Workspace

if TYPE_CHECKING:
    from envbuild.matrix.types import Matrix

_DAMAGES = (ValueError, LookupError, TypeError, AttributeError)


@functools.cache
def _classes() -> tuple[Any, ...]:
    """The classes of rows, in an order that is fixed for one version of the program."""
    from envbuild.matrix import gpu_rows, platform, types

    return tuple(
        value
        for module in (gpu_rows, platform, types)
        for value in vars(module).values()
        if isinstance(value, type) and value.__module__ == module.__name__
    )


def load(workspace: Workspace, overlays: Sequence[Path] = ()) -> Matrix:
    """Return the matrix of ``workspace``. The overlays of the workspace are applied first, and then ``overlays``. If the cache
    folder cannot be written, no compiled copy is kept, and loading is slower.

    Raises :class:`InvalidInputError` with all problems of all files, including contradictions between overlays and the matrix.
    """
    overlays = [*workspace.overlays, *overlays]
    cache, program = _copy_of(workspace, overlays)

    @functools.cache
    def compiled() -> Matrix:
        from envbuild.matrix.reading.loader import compile_files

        began = time.time_ns()
        found, sources = compile_files(workspace.matrix, overlays)
        _require_sound(found, overlays)
        hashes = {name: _digest(content) for name, content in sources.items()}
        stamp, newest = disk_cache.stamp(_paths(workspace.matrix, sources))
        about = {
            "fingerprint": found.fingerprint,
            "sources": hashes,
            "stamp": stamp if newest < began - disk_cache.SETTLED_NS else None,
        }
        disk_cache.keep(cache, program, _parts(found), about)
        return found

    copy = _believed(cache, workspace.matrix, program, overlays)
    return (_unpacked(copy, compiled) if copy is not None else None) or compiled()


def fingerprint(workspace: Workspace) -> str:
    """Return :attr:`Matrix.fingerprint` of the matrix of ``workspace``. If there is a compiled copy, no rows are read."""
    cache, program = _copy_of(workspace, workspace.overlays)
    copy = _believed(cache, workspace.matrix, program, workspace.overlays)
    return str(copy.about["fingerprint"]) if copy is not None else load(workspace).fingerprint


def _copy_of(workspace: Workspace, overlays: Sequence[Path]) -> tuple[Path, str]:
    """Return the path of the compiled copy, and a digest of the program's own code. A copy that other code made is not used."""
    program = disk_cache.program(Path(__file__).parent, Path(__file__).parent.parent / "yaml_reader.py")
    identity = json.dumps([program, str(workspace.matrix), *(str(path.absolute()) for path in overlays)])
    return workspace.matrix_cache / f"{hashlib.sha256(identity.encode()).hexdigest()[:32]}.json", program


def _require_sound(found: Matrix, overlays: Sequence[Path]) -> None:
    """Refuse overlays whose rows contradict other rows. The matrix's own rows are checked by `matrix check`, not here."""
    if not overlays:
        return
    from envbuild.matrix import checks
    from envbuild.matrix.reading.loader import overlay_name
    from envbuild.yaml_reader import raise_for

    theirs = {overlay_name(path) for path in overlays}
    raise_for([problem for problem in checks.check(found) if problem.where in theirs], "The overlay")


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _parts(matrix: Matrix) -> Iterator[list[Any]]:
    """Yield the packed parts of the matrix: first the matrix without tables and releases, then each table, then the releases of
    each framework."""
    frameworks = tuple(table._replace(releases=()) for table in matrix.frameworks)
    without: dict[str, Any] = dict.fromkeys(_tables(matrix), ())
    yield pack(matrix._replace(frameworks=frameworks, **without))
    for name in _tables(matrix):
        yield pack(tuple(getattr(matrix, name)))
    for table in matrix.frameworks:
        yield pack(tuple(table.releases))


def _believed(cache: Path, entry: Path, program: str, overlays: Sequence[Path]) -> CachedParts | None:
    """Return the compiled copy. Return None if there is no copy, or if a file has changed since the copy was made.

    If ``cache`` has no such copy, a copy for another checkout is used if that checkout's files have the same hashes.
    """
    for place in (cache, *(path for path in disk_cache.kept_in(cache.parent) if path != cache)):
        found = disk_cache.recall(place, program)
        try:
            if found is not None and _is_current(found, entry, overlays, stamped=place == cache):
                return found
        except (OSError, LookupError, TypeError, AttributeError):
            continue
    return None


def _is_current(found: CachedParts, entry: Path, overlays: Sequence[Path], *, stamped: bool) -> bool:
    """Whether the copy was made from the files as they are now. If ``stamped``, files with the stamp of the copy count as
    unchanged, and are not read."""
    sources = found.about["sources"]
    paths = _paths(entry, sources)
    if stamped and found.about["stamp"] == disk_cache.stamp(paths)[0]:
        return True
    names = [entry.name, *(str(path.absolute()) for path in overlays)]
    if names != [name for number, name in enumerate(sources) if not number or Path(name).is_absolute()]:
        return False
    return all(_digest(files.read_bytes(path)) == digest for path, digest in zip(paths, sources.values(), strict=True))


def _paths(entry: Path, sources: Iterable[str]) -> list[Path]:
    return [entry.parent / name for name in sources]


def _unpacked(found: CachedParts, compiled: Callable[[], Matrix]) -> Matrix | None:
    """Return the matrix of a copy, or None if the copy is damaged. If only a table in the copy is damaged, the rows of that
    table come from the matrix that ``compiled`` returns."""
    try:
        matrix: Matrix = unpack(found.part(0))
    except _DAMAGES:
        return None

    def rows(number: int) -> tuple[Any, ...]:
        try:
            read: tuple[Any, ...] = unpack(found.part(number))
        except _DAMAGES:
            whole = compiled()
            tables = [*(getattr(whole, name) for name in _tables(whole)), *(table.releases for table in whole.frameworks)]
            read = tuple(tables[number - 1])
        return read

    numbers = itertools.count(1)
    tables: dict[str, Any] = {name: Later(rows, next(numbers)) for name in _tables(matrix)}
    frameworks = tuple(table._replace(releases=Later(rows, next(numbers))) for table in matrix.frameworks)
    return matrix._replace(frameworks=frameworks, **tables)


def _tables(matrix: Matrix) -> list[str]:
    """The names of the tables that are read on first use. The table ``frameworks`` is always read, because every request uses
    the names of the frameworks."""
    return [name for name in matrix._fields if name not in ("fingerprint", "policy", "frameworks", "driver_limit")]


def pack(value: Any) -> list[Any]:
    """Pack a value of the tables into a list that can be written as JSON. The list has one item for each object: the number of
    the object's class, followed by the fields. The last item is the value itself. ``{"": n}`` stands for object n of the list.

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
    """Return the value that :func:`pack` packed. Raises ValueError, LookupError or TypeError if the list is not a packed
    value."""
    built: list[Any] = []

    def restore(item: Any) -> Any:
        if type(item) is dict:
            return built[item[""]]
        return tuple([restore(part) if type(part) in nested else part for part in item])

    nested = {list, dict}
    makers = [kind._make for kind in _classes()]
    *rows, (_, whole) = objects
    for index, *fields in rows:
        built.append(makers[index]([restore(each) if type(each) in nested else each for each in fields]))
    return restore(whole)
