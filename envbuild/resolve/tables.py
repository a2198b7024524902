"""Asking the matrix itself: its tables, one row by any of its names, and the nearest names where there is none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from envbuild.codec import encode
from envbuild.errors import UnknownNameError
from envbuild.matrix.platform import CudaRow, Gpu, LibraryRow
from envbuild.matrix.types import FrameworkTable, Matrix
from envbuild.resolve import names
from envbuild.resolve.gpu_names import find_gpu


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """How one table is read: its rows, the names of a row (the first is printed), and the columns of its list."""

    rows: Callable[[Matrix], Sequence[Any]]
    names: Callable[[Any], Sequence[str]]
    columns: tuple[str, ...]
    normal: Callable[[str], str] = str.lower


def _library_names(row: LibraryRow) -> Sequence[str]:
    return (row.version, row.release)


def _cuda_names(row: CudaRow) -> Sequence[str]:
    return (row.version, row.release, *(release.version for release in row.releases))


def _gpu_names(row: Gpu) -> Sequence[str]:
    return (row.name, *row.aliases)


def _framework_names(row: FrameworkTable) -> Sequence[str]:
    return (row.name, row.short, *row.aliases)


def _branch(text: str) -> str:
    """R470, 470.57.02 and 470 name the same branch."""
    return text.lower().lstrip("rv").partition(".")[0]


TABLES: dict[str, Table] = {
    "drivers": Table(
        rows=lambda m: m.drivers,
        names=lambda row: (row.branch,),
        columns=("branch", "max_cuda", "kind", "released", "end_of_life", "latest"),
        normal=_branch,
    ),
    "architectures": Table(
        rows=lambda m: m.architectures,
        names=lambda row: (*row.capabilities, row.name),
        columns=("name", "capabilities", "first_cuda", "last_cuda", "last_driver_branch"),
    ),
    "gpus": Table(
        rows=lambda m: m.gpus,
        names=_gpu_names,
        columns=(
            *("name", "capability", "kind", "memory_gb", "memory_bandwidth_gb_s"),
            *("fp64_gflops", "fp32_gflops", "fp16_gflops", "power_w", "nvlink", "gpus_per_board"),
        ),
    ),
    "gpu_vendors": Table(rows=lambda m: m.gpu_vendors, names=lambda row: (row.vendor,), columns=("vendor", "needs", "names")),
    "cuda": Table(
        rows=lambda m: m.cuda,
        names=_cuda_names,
        columns=("version", "release", "released", "driver_min", "capability_min", "capability_max", "gcc_max"),
    ),
    "cudnn": Table(
        rows=lambda m: m.cudnn, names=_library_names, columns=("version", "release", "released", "cuda", "capability_min")
    ),
    "nccl": Table(rows=lambda m: m.nccl, names=_library_names, columns=("version", "released", "cuda")),
    "systems": Table(
        rows=lambda m: m.systems,
        names=lambda row: (row.name, row.codename, row.image),
        columns=("name", "codename", "glibc", "gcc", "released", "end_of_life"),
    ),
    "pythons": Table(
        rows=lambda m: m.pythons, names=lambda row: (row.version,), columns=("version", "released", "end_of_life")
    ),
    "build_tools": Table(
        rows=lambda m: m.build_tools, names=lambda row: (row.name,), columns=("name", "version", "pythons", "filename")
    ),
    "source_archives": Table(
        rows=lambda m: m.source_archives,
        names=lambda row: (row.repository, row.revision),
        columns=("repository", "revision", "sha256"),
    ),
    "archives": Table(rows=lambda m: m.archives, names=lambda row: (row.name,), columns=("name", "url")),
    "repositories": Table(rows=lambda m: m.repositories, names=lambda row: (row.name,), columns=("name", "url")),
    "frameworks": Table(rows=lambda m: m.frameworks, names=_framework_names, columns=("name", "short", "title")),
}


def find_table(text: str) -> str:
    """The table that ``text`` names, its singular too. Raises :class:`UnknownNameError`."""
    word = text.strip().lower()
    for name in TABLES:
        if word in (name, name.removesuffix("s"), f"{name}s"):
            return name
    if word == "repository":
        return "repositories"
    near = names.nearest(word, TABLES)
    raise UnknownNameError(
        f"The matrix has no table {text!r}.",
        code="unknown-table",
        hint=(f"Did you mean {near[0]}? " if near else "") + f"Tables: {', '.join(TABLES)}.",
    )


def find_row(matrix: Matrix, table: str, text: str) -> Any:
    """The row of ``table`` that ``text`` names. Raises :class:`UnknownNameError` with the nearest names."""
    kind = TABLES[table]
    rows = kind.rows(matrix)
    if table == "gpus":  # any part of a board's name that is its own, as in a request
        try:
            found = find_gpu(matrix, text)[0].board
        except UnknownNameError as error:
            if error.code != "unknown-gpu":
                raise
            found = None
    else:
        wanted = kind.normal(text.strip())
        found = next((row for row in rows if wanted in [kind.normal(name) for name in kind.names(row)]), None)
    if found is None:
        raise _unknown(table, text, rows)
    return found


def _unknown(table: str, text: str, rows: Sequence[Any]) -> UnknownNameError:
    first = [TABLES[table].names(row)[0] for row in rows]
    if all(_is_version(word) for word in (text, *first)):
        near = names.nearest_versions(list(dict.fromkeys(first)), text)[:3]
    else:
        spelled = {name.lower(): name for row in rows for name in TABLES[table].names(row)}
        near = [spelled[name] for name in names.nearest(text, spelled)]
    return UnknownNameError(
        f"The table {table} has no row {text!r}.",
        code="unknown-row",
        hint=(f"The nearest: {', '.join(near)}. " if near else "") + f"`envbuild matrix show {table}` lists them.",
    )


def _is_version(text: str) -> bool:
    return all(part.isdecimal() for part in text.split("."))


def listing(matrix: Matrix, table: str) -> list[dict[str, Any]]:
    """The rows of a table as JSON values: every field, but of a framework only its names and versions."""
    return [row_json(row) for row in TABLES[table].rows(matrix)]


def row_json(row: Any) -> dict[str, Any]:
    """One row as a JSON value."""
    if isinstance(row, FrameworkTable):
        versions = [release.version for release in row.releases]
        return {
            **{"name": row.name, "title": row.title, "short": row.short, "aliases": list(row.aliases)},
            **{"releases": versions, "origin": encode(row.origin)},
        }
    found: dict[str, Any] = encode(row)
    return found
