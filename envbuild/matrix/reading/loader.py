"""Read the entry file and all files that it includes, report all problems, and return a sorted :class:`Matrix`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from envbuild import files
from envbuild.errors import InvalidInputError, Problem
from envbuild.matrix.reading import cuda_sets, framework_tables, gpu_tables, platform_tables
from envbuild.matrix.reading.context import Context, descending
from envbuild.matrix.types import Matrix
from envbuild.yaml_reader import Table, load, raise_for

SCHEMA = 1
FOLDER = "matrix"  # the folder of rows, beside the entry file
_MEASURED = "measured"  # the subfolder of FOLDER for the files of `matrix measure`, which have no rows
_THEN = "; when all rows can be read, envbuild also checks whether they contradict each other"
_TABLES = (
    *("systems", "pythons", "archives", "build_tools", "source_archives", "architectures", "drivers"),
    "driver_rules",
    *("repositories", "wheel_sets", "package_sets", "cuda", "cudnn", "nccl", "gpus", "gpu_vendors"),
)


def read_sources(entry: Path, overlays: Sequence[Path] = ()) -> dict[str, bytes]:
    """Return the bytes of the entry file, of the files that it includes, and of the overlays. The keys are the names of the
    files in messages.

    Overlays (``--matrix``) come last; their rows replace rows of the same name. Overlays have absolute names, and the matrix's
    own files have relative names. This is how :attr:`Provenance.overlaid` recognizes overlays.
    """
    problems: list[Problem] = []
    found: dict[str, bytes] = {}
    content = _read(entry, entry.name, problems)
    if content is not None:
        found[entry.name] = content
        for name, line in _includes(content, entry.name):
            path = entry.parent / name
            if not path.resolve().is_relative_to(entry.parent.resolve()):
                problems.append(Problem(where=entry.name, line=line, message=f"{name} is outside the folder of the entry file"))
            elif name in found:
                problems.append(Problem(where=entry.name, line=line, message=f"{name} is included twice"))
            elif (content := _read(path, name, problems)) is not None:
                found[name] = content
    for path in overlays:
        if (content := _read(path, overlay_name(path), problems)) is not None:
            found[overlay_name(path)] = content
    raise_for(problems, "The matrix")
    return found


def unnamed_files(entry: Path) -> list[Problem]:
    """Return a problem for each file in the folder ``matrix`` that is not read, because the entry file does not include it."""
    content = files.read_bytes(entry)
    named = {name for name, _ in _includes(content, entry.name)}
    there = sorted(path for path in (entry.parent / FOLDER).rglob("*") if path.is_file() and not path.name.startswith("."))
    there = [path for path in there if path.parent != entry.parent / FOLDER / _MEASURED]
    found = (path.relative_to(entry.parent).as_posix() for path in there)
    why = f"is not read, because {entry.name} does not name it under `include`: name it there, or remove the file"
    return [Problem(where=name, line=0, message=why) for name in found if name not in named]


def overlay_name(path: Path) -> str:
    """Return the name that an overlay has in messages, in provenance and in the compiled copy."""
    return str(path.absolute())


def _includes(content: bytes, where: str) -> list[tuple[str, int]]:
    """Return the files that the entry file includes. Problems are ignored here: :func:`compile_matrix` reports them."""
    table = load(content, where, [])
    # A text in YAML can contain a NUL character by an escape, but a path must not contain NUL.
    return [] if table is None else [(name.replace("\0", "?"), table.line_of("include")) for name in table.texts("include")]


def _read(path: Path, name: str, problems: list[Problem]) -> bytes | None:
    try:
        return files.read_bytes(path)
    except OSError as error:
        problems.append(Problem(where=name, line=0, message=f"cannot be read: {error.strerror or error}"))
        return None


def load_files(entry: Path, overlays: Sequence[Path] = ()) -> Matrix:
    """The matrix of an entry file. The matrix is always read from YAML, never from a compiled copy."""
    return compile_files(entry, overlays)[0]


def compile_files(entry: Path, overlays: Sequence[Path]) -> tuple[Matrix, Mapping[str, bytes]]:
    """The matrix of an entry file, and the bytes of all files from which the matrix was read."""
    sources = read_sources(entry, overlays)
    return compile_matrix(sources, [overlay_name(path) for path in overlays]), sources


def compile_matrix(sources: Mapping[str, bytes], overlays: Sequence[str] = ()) -> Matrix:
    """The matrix of the given files. The first of them is the entry file. Raises :class:`InvalidInputError` with every
    problem."""
    context = Context()
    context.overlays = set(overlays)
    read = [load(content, where, context.problems) for where, content in sources.items()]
    documents = [table for table in read if table is not None]
    if not documents or read[0] is None:
        raise_for(context.problems, "The matrix", _THEN)
        raise InvalidInputError("The matrix has no entry file.")
    for table in documents:
        context.define_sources(table)
    matrix = _assemble(context, documents)._replace(fingerprint=_fingerprint(sources))
    raise_for(context.problems, "The matrix", _THEN)
    return matrix


def _fingerprint(sources: Mapping[str, bytes]) -> str:
    whole = hashlib.sha256()
    for name, content in sources.items():
        whole.update(f"{len(name)} {name} {len(content)} ".encode() + content)
    return whole.hexdigest()


def _assemble(context: Context, documents: list[Table]) -> Matrix:
    entry = documents[0]
    if entry.integer("schema") != SCHEMA:
        entry.problem(f"this envbuild can read only schema {SCHEMA}", "schema")
    if entry.texts("include", pattern=r"[^/].*\.yaml") and "policy" not in entry:
        entry.problem("a file with `include` must have `policy`, too", "include")
    for overlay in (table for table in documents if table.where in context.overlays and "schema" in table):
        if overlay.integer("schema") != SCHEMA:
            overlay.problem(f"this envbuild can read only schema {SCHEMA}", "schema")
    policy = platform_tables.policy(entry)
    files = [(table, context.defaults(table)) for table in documents]
    rows = partial(platform_tables.rows, context, files)
    systems = rows("systems", lambda row: row.name, platform_tables.system)
    pythons = rows("pythons", lambda row: row.version, platform_tables.python)
    context.pythons = {row.version for row in pythons}
    context.wheel_sets = {row.name: row for row in rows("wheel_sets", lambda row: row.name, cuda_sets.wheel_set)}
    context.package_sets = {row.name: row for row in rows("package_sets", lambda row: row.name, cuda_sets.package_set)}
    found = Matrix(
        fingerprint="",
        policy=policy,
        systems=tuple(sorted(systems, key=lambda row: (-row.preference, row.name))),
        pythons=tuple(sorted(pythons, key=lambda row: (-row.preference, row.version))),
        archives=tuple(rows("archives", lambda row: row.name, platform_tables.archive)),
        build_tools=tuple(rows("build_tools", lambda row: f"{row.name} {row.version}", platform_tables.build_tool)),
        source_archives=tuple(
            rows("source_archives", lambda row: f"{row.repository} {row.revision}", platform_tables.source_archive)
        ),
        architectures=tuple(rows("architectures", lambda row: row.key, gpu_tables.architecture)),
        drivers=descending(rows("drivers", lambda row: row.branch, platform_tables.driver), lambda r: r.branch),
        driver_rules=tuple(rows("driver_rules", lambda row: row.cuda_major, platform_tables.driver_rule)),
        repositories=tuple(rows("repositories", lambda row: row.name, platform_tables.repository)),
        wheel_sets=tuple(context.wheel_sets.values()),
        package_sets=tuple(context.package_sets.values()),
        cuda=descending(rows("cuda", lambda row: row.version, platform_tables.cuda), lambda r: r.version),
        cudnn=platform_tables.libraries(context, files, "cudnn"),
        nccl=platform_tables.libraries(context, files, "nccl"),
        gpus=tuple(rows("gpus", lambda row: row.name, gpu_tables.gpu)),
        gpu_vendors=tuple(rows("gpu_vendors", lambda row: row.vendor, gpu_tables.gpu_vendor)),
        frameworks=framework_tables.frameworks(context, files, policy),
    )
    for table in documents:
        table.allow("sources", "defaults", *_TABLES)
        table.finish()
    return found
