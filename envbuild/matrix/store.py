"""Loads the matrix, through a compiled copy where one is there and provably made from the same bytes by the same program.

The copy is JSON, which cannot execute anything. It is only believed if every source file still has the recorded hash and the
payload its own; anything else, a damaged file included, means reading the YAML again.
"""

from __future__ import annotations

import gc
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from envbuild.errors import EnvbuildError
from envbuild.matrix import types
from envbuild.matrix.types import Matrix
from envbuild.workspace import Workspace

_FORMAT = 1
_KEPT = 8  # compiled copies of other checkouts and overlays; older ones are removed
_CLASSES: tuple[type, ...] = tuple(
    value for value in vars(types).values() if isinstance(value, type) and value.__module__ == types.__name__
)


def load(workspace: Workspace, overlays: Sequence[Path] = ()) -> Matrix:
    """The matrix of ``workspace`` with its overlays, then ``overlays``, on top. Works without a writable home, only slower.

    Raises :class:`InvalidInputError` with all problems of all files.
    """
    entry = workspace.matrix
    overlays = [*workspace.overlays, *overlays]
    program = _program()
    identity = json.dumps([program, str(entry), *(str(path.absolute()) for path in overlays)])
    cache = workspace.matrix_cache / f"{hashlib.sha256(identity.encode()).hexdigest()[:32]}.json"
    found = _compiled(cache, entry, program)
    if found is None:
        found, sources = _compile(entry, overlays)
        _keep(cache, program, sources, found)
    return found


def load_files(entry: Path, overlays: Sequence[Path] = ()) -> Matrix:
    """The matrix of an entry file, read from YAML every time."""
    return _compile(entry, overlays)[0]


def _compile(entry: Path, overlays: Sequence[Path]) -> tuple[Matrix, Mapping[str, bytes]]:
    from envbuild.matrix.loader import compile_matrix, overlay_name, read_sources

    sources = read_sources(entry, overlays)
    return compile_matrix(sources, [overlay_name(path) for path in overlays]), sources


def _program() -> str:
    """What the copy depends on beside the data: this format, the shape of the tables, and the readers' own files."""
    shapes = [[kind.__name__, *getattr(kind, "__slots__", ())] for kind in _CLASSES]
    stamps = []
    for path in (*sorted(Path(__file__).parent.glob("*.py")), Path(__file__).parent.parent / "strictyaml.py"):
        try:
            status = path.stat()
        except OSError:
            continue
        stamps.append([path.name, status.st_size, status.st_mtime_ns])
    return hashlib.sha256(json.dumps([_FORMAT, shapes, stamps]).encode()).hexdigest()


def _compiled(cache: Path, entry: Path, program: str) -> Matrix | None:
    """The cached matrix, or None if there is none that can be believed."""
    try:
        header_line, _, payload = cache.read_bytes().partition(b"\n")
        header = json.loads(header_line)
        if header["program"] != program or header["payload"] != hashlib.sha256(payload).hexdigest():
            return None
        for name, digest in header["files"].items():
            if hashlib.sha256((entry.parent / name).read_bytes()).hexdigest() != digest:
                return None
        with _no_collections():
            found = unpack(json.loads(payload))
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
    return found if isinstance(found, Matrix) else None


@contextmanager
def _no_collections() -> Iterator[None]:
    """Thousands of objects that all stay: looking for garbage among them is a third of the time that reading them takes."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _keep(cache: Path, program: str, sources: Mapping[str, bytes], matrix: Matrix) -> None:
    """Write the compiled copy; a home that cannot be written is no reason to fail."""
    from envbuild.files import write_atomic

    payload = json.dumps(pack(matrix), separators=(",", ":")).encode()
    header = {
        "program": program,
        "payload": hashlib.sha256(payload).hexdigest(),
        "files": {name: hashlib.sha256(content).hexdigest() for name, content in sources.items()},
    }
    try:
        write_atomic(cache, json.dumps(header).encode() + b"\n" + payload)
        others = sorted(cache.parent.glob("*.json"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
        for path in others[_KEPT:]:
            path.unlink(missing_ok=True)
    except (EnvbuildError, OSError):
        return


def pack(value: Any) -> list[Any]:
    """A value of the tables as JSON: a list of objects, each its class and fields; later ones refer to earlier by ``{"": n}``.

    Equal objects are written once.
    """
    objects: list[Any] = []
    seen: dict[Any, int] = {}

    def place(item: Any) -> Any:
        if isinstance(item, tuple):
            return [place(part) for part in item]
        kind = type(item)
        if kind not in _CLASSES:
            return item
        if item not in seen:
            fields = [place(getattr(item, name)) for name in kind.__slots__]
            objects.append([_CLASSES.index(kind), *fields])
            seen[item] = len(objects) - 1
        return {"": seen[item]}

    place(value)
    return objects


def unpack(objects: list[Any]) -> Any:
    """The value that :func:`pack` was given. Raises one of the usual errors of Python where the list is not such a value."""
    built: list[Any] = []

    def restore(item: Any) -> Any:
        if type(item) is list:
            return tuple([restore(part) for part in item])
        return built[item[""]] if type(item) is dict else item

    names = [getattr(kind, "__slots__", ()) for kind in _CLASSES]
    for index, *fields in objects:
        built.append(_CLASSES[index](**dict(zip(names[index], map(restore, fields), strict=True))))
    return built[-1]
