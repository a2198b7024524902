"""Answers the queries of `matrix show`: a table, the row with a given name, and the rows that are compatible with a row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from envbuild.codec import encode
from envbuild.errors import UnknownNameError
from envbuild.matrix.gpu_code import older_cuda, supports
from envbuild.matrix.gpu_names import find_board, read_capability
from envbuild.matrix.gpu_rows import Architecture, Gpu
from envbuild.matrix.libraries import drops, serves_cuda
from envbuild.matrix.platform import (
    CudaRow,
    DriverRow,
    LibraryRow,
    PackageSet,
    ProviderRow,
    PythonRow,
    RepositoryRow,
    SystemRow,
    WheelSet,
)
from envbuild.matrix.similar_names import did_you_mean, nearest, nearest_versions
from envbuild.matrix.types import FrameworkTable, Matrix
from envbuild.matrix.versions import numbers


@dataclass(frozen=True, kw_only=True, slots=True)
class TableView:
    """How to show one table. ``rows`` returns the rows, and ``names`` the names of one row; messages show the first name.
    ``columns`` are the fields to print. ``normal`` converts a name to the form in which names are compared."""

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
    """Return the driver branch that a text names: R470, 470.57.02 and 470 all name the branch 470."""
    return text.lower().lstrip("rv").partition(".")[0]


TABLES: dict[str, TableView] = {
    "drivers": TableView(
        rows=lambda m: m.drivers,
        names=lambda row: (row.branch,),
        columns=("branch", "max_cuda", "kind", "released", "end_of_life", "latest"),
        normal=_branch,
    ),
    "driver_rules": TableView(
        rows=lambda m: m.driver_rules, names=lambda row: (row.cuda_major,), columns=("cuda_major", "driver_min")
    ),
    "architectures": TableView(
        rows=lambda m: m.architectures,
        names=lambda row: (*row.capabilities, row.name),
        columns=("name", "capabilities", "first_cuda", "last_cuda", "last_driver_branch"),
    ),
    "gpus": TableView(
        rows=lambda m: m.gpus,
        names=_gpu_names,
        columns=(
            *("name", "capability", "kind", "memory_gb", "memory_bandwidth_gb_s"),
            *("fp64_gflops", "fp32_gflops", "fp16_gflops", "power_w", "nvlink", "gpus_per_board"),
        ),
    ),
    "gpu_vendors": TableView(
        rows=lambda m: m.gpu_vendors, names=lambda row: (row.vendor,), columns=("vendor", "needs", "names")
    ),
    "cuda": TableView(
        rows=lambda m: m.cuda,
        names=_cuda_names,
        columns=("version", "release", "released", "driver_min", "capability_min", "capability_max", "gcc_max"),
    ),
    "cudnn": TableView(
        rows=lambda m: m.cudnn, names=_library_names, columns=("version", "release", "released", "cuda", "capability_min")
    ),
    "nccl": TableView(rows=lambda m: m.nccl, names=_library_names, columns=("version", "released", "cuda")),
    "systems": TableView(
        rows=lambda m: m.systems,
        names=lambda row: (row.name, row.codename, row.image),
        columns=("name", "codename", "glibc", "gcc", "released", "end_of_life"),
    ),
    "pythons": TableView(
        rows=lambda m: m.pythons, names=lambda row: (row.version,), columns=("version", "released", "end_of_life")
    ),
    "build_tools": TableView(
        rows=lambda m: m.build_tools, names=lambda row: (row.name,), columns=("name", "version", "pythons", "filename")
    ),
    "source_archives": TableView(
        rows=lambda m: m.source_archives,
        names=lambda row: (row.repository, row.revision),
        columns=("repository", "revision", "sha256"),
    ),
    "archives": TableView(rows=lambda m: m.archives, names=lambda row: (row.name,), columns=("name", "url")),
    "repositories": TableView(rows=lambda m: m.repositories, names=lambda row: (row.name,), columns=("name", "url")),
    "wheel_sets": TableView(rows=lambda m: m.wheel_sets, names=lambda row: (row.name,), columns=("name", "cuda")),
    "package_sets": TableView(
        rows=lambda m: m.package_sets, names=lambda row: (row.name,), columns=("name", "system", "cuda", "components")
    ),
    "frameworks": TableView(rows=lambda m: m.frameworks, names=_framework_names, columns=("name", "short", "title")),
}


def find_table(text: str) -> str:
    """The name of the table that ``text`` names in the plural or the singular. Raises :class:`UnknownNameError`."""
    word = text.strip().lower()
    for name in TABLES:
        if word in (name, name.removesuffix("s"), f"{name}s"):
            return name
    if word == "repository":
        return "repositories"
    near = nearest(word, TABLES)
    raise UnknownNameError(
        f"The matrix has no table {text!r}.",
        code="unknown-table",
        hint=did_you_mean(near) + f"Tables: {', '.join(TABLES)}.",
    )


def find_row(matrix: Matrix, table: str, text: str) -> Any:
    """The row of ``table`` that ``text`` names. Raises :class:`UnknownNameError` with the most similar names."""
    kind = TABLES[table]
    rows = kind.rows(matrix)
    if table == "gpus":  # as in a request, any unique part of a board's name is enough
        try:
            found = None if read_capability(text) else find_board(matrix, text)
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
        near = nearest_versions(list(dict.fromkeys(first)), text)[:3]
    else:
        spelled = {name.lower(): name for row in rows for name in TABLES[table].names(row)}
        near = [spelled[name] for name in nearest(text, spelled)]
    return UnknownNameError(
        f"The table {table} has no row {text!r}.",
        code="unknown-row",
        hint=(f"The nearest: {', '.join(near)}. " if near else "") + f"`envbuild matrix show {table}` lists them.",
    )


def _is_version(text: str) -> bool:
    return all(part.isdecimal() for part in text.split("."))


def listing(matrix: Matrix, table: str) -> list[dict[str, Any]]:
    """Return the rows of a table as JSON values with every field. For a framework, the releases are given only by their
    versions."""
    return [row_json(row) for row in TABLES[table].rows(matrix)]


def row_json(row: Any) -> dict[str, Any]:
    """One row as a JSON value. A framework's releases are given by their versions."""
    if isinstance(row, FrameworkTable):
        versions = tuple(release.version for release in row.releases)
        return {**encode(row._replace(releases=())), "releases": list(versions)}
    found: dict[str, Any] = encode(row)
    if isinstance(row, WheelSet):
        found["toolkit"] = dict(row.toolkit)
    return found


# --- compatible rows ---

Related = dict[str, Any]


def related(matrix: Matrix, row: Any, newest: Callable[..., dict[str, str]]) -> Related:
    """Return the rows compatible with ``row``, by kind. The result is empty for kinds of rows for which compatibility is not
    defined.

    ``newest`` returns the newest environment of each framework for options of a request such as ``gpu``.
    """
    found = next((answer(matrix, row) for kind, answer in _ANSWERS.items() if isinstance(row, kind)), {})
    asked = next((options(row) for kind, options in _ASKED.items() if isinstance(row, kind)), None)
    return found if asked is None else {**found, "frameworks": newest(**asked)}


def _gpu(matrix: Matrix, row: Gpu) -> Related:
    architecture = next((item for item in matrix.architectures if row.capability in item.capabilities), None)
    found = {} if architecture is None else window(matrix, architecture)
    cudnn = next((item.version for item in matrix.cudnn if item.capability_min and not drops(item, row.capability)), None)
    return {**found, "newest_cudnn": cudnn}


def _architecture(matrix: Matrix, row: Architecture) -> Related:
    boards = [gpu.name for gpu in matrix.gpus if gpu.capability in row.capabilities]
    return {**window(matrix, row), "gpus": boards}


def window(matrix: Matrix, row: Architecture) -> Related:
    """Return the toolkits that compile for an architecture, and the driver branches that support it."""
    cuda = [item.version for item in matrix.cuda if supports(row, item.version)]
    drivers = [item.branch for item in matrix.drivers if _branch_serves(item, row)]
    return {
        **{"first_cuda": row.first_cuda, "last_cuda": row.last_cuda or None},
        **{"last_driver_branch": row.last_driver_branch or None, "cuda": cuda},
        "cuda_by_code_for_earlier_gpus": older_cuda(matrix.architectures, row, matrix.cuda),
        "drivers": drivers,
    }


def _branch_serves(driver: DriverRow, row: Architecture) -> bool:
    if row.last_driver_branch and int(driver.branch) > int(row.last_driver_branch):
        return False
    return numbers(driver.max_cuda) >= numbers(row.first_cuda)


def _driver(matrix: Matrix, row: DriverRow) -> Related:
    native = [item.version for item in matrix.cuda if numbers(item.version) <= numbers(row.max_cuda)]
    major = row.max_cuda.partition(".")[0]
    rule = next((item for item in matrix.driver_rules if item.cuda_major == major), None)
    newer = [item.version for item in matrix.cuda if item.version.startswith(f"{major}.") and item.version not in native]
    served = [item for item in matrix.architectures if _branch_serves(row, item)]
    dropped = [
        item for item in matrix.architectures if item.last_driver_branch and int(item.last_driver_branch) < int(row.branch)
    ]
    return {
        "cuda": native,
        "cuda_by_minor_version_compatibility": newer
        if rule and int(row.branch) >= int(rule.driver_min.partition(".")[0])
        else [],
        "cuda_by_forward_compatibility": [item.version for item in matrix.cuda if row.branch in item.forward_compat],
        "architectures": _named(served),
        "dropped_architectures": _named(dropped),
    }


def _named(rows: Sequence[Architecture]) -> list[str]:
    return [f"{row.name} ({', '.join(row.capabilities)})" for row in rows]


def _cuda(matrix: Matrix, row: CudaRow) -> Related:
    rule = next((item for item in matrix.driver_rules if item.cuda_major == row.version.partition(".")[0]), None)
    drivers = [item.branch for item in matrix.drivers if numbers(item.max_cuda) >= numbers(row.version)]
    serving = [item for item in matrix.architectures if supports(item, row.version)]
    return {
        "driver_min": row.driver_min,
        "driver_min_by_minor_version_compatibility": rule.driver_min if rule else None,
        "drivers": drivers,
        "architectures": _named(serving),
        "systems": list(dict.fromkeys(item.system for item in row.providers if item.system)),
        "cudnn": _built(matrix.cudnn, row.version),
        "nccl": _built(matrix.nccl, row.version),
        "frameworks": dict(_builds(matrix, row.version)),
    }


def _built(rows: Sequence[LibraryRow], cuda: str) -> list[str]:
    return [item.version for item in rows if serves_cuda(item, cuda)]


def _builds(matrix: Matrix, cuda: str) -> Iterator[tuple[str, list[str]]]:
    """The releases of each framework that have a build for ``cuda``, newest first."""
    for table in matrix.frameworks:
        releases = [item.version for item in table.releases if any(build.cuda == cuda for build in item.variants)]
        if releases:
            yield table.name, releases


def _library(matrix: Matrix, row: LibraryRow) -> Related:
    cuda = [item.version for item in matrix.cuda if serves_cuda(row, item.version)]
    images = [
        provider.image
        for item in matrix.cuda
        for provider in item.providers
        if row.version == (provider.cudnn if row.library == "cudnn" else provider.nccl)
    ]
    return {"cuda": cuda, "images": images}


def _system(matrix: Matrix, row: SystemRow) -> Related:
    return {
        "pythons": [item.version for item in row.pythons],
        "cuda": [item.version for item in matrix.cuda if any(provider.system == row.name for provider in item.providers)],
    }


def _repository(matrix: Matrix, row: RepositoryRow) -> Related:
    return _users(matrix, lambda provider: row.name in provider.repositories)


def _wheel_set(matrix: Matrix, row: WheelSet) -> Related:
    return _users(matrix, lambda provider: provider.wheels is not None and provider.wheels.name == row.name)


def _package_set(matrix: Matrix, row: PackageSet) -> Related:
    return _users(matrix, lambda provider: provider.package_set is not None and provider.package_set.name == row.name)


def _users(matrix: Matrix, uses: Callable[[ProviderRow], bool]) -> Related:
    """The CUDA versions that have a provider for which ``uses`` is true. The provider's system is added if the provider is for
    one system only."""
    users = [(item.version, provider.system) for item in matrix.cuda for provider in item.providers if uses(provider)]
    return {"cuda": [f"{version} on {system}" if system else version for version, system in users]}


def _python(matrix: Matrix, row: PythonRow) -> Related:
    return {"systems": [item.name for item in matrix.systems if any(python.version == row.version for python in item.pythons)]}


def _framework(_matrix: Matrix, row: FrameworkTable) -> Related:
    cuda: dict[str, list[str]] = {}
    for release in row.releases:
        for build in release.variants:
            cuda.setdefault(build.cuda or "cpu", []).append(release.version)
    return {"builds": cuda}


_ANSWERS: dict[type, Callable[[Matrix, Any], Related]] = {
    Gpu: _gpu,
    Architecture: _architecture,
    DriverRow: _driver,
    CudaRow: _cuda,
    LibraryRow: _library,
    SystemRow: _system,
    RepositoryRow: _repository,
    WheelSet: _wheel_set,
    PackageSet: _package_set,
    PythonRow: _python,
    FrameworkTable: _framework,
}

# Maps kinds of rows to the options of a request that asks for such a row. `matrix show` prints a row, and then the newest
# environments that this request allows.
_ASKED: dict[type, Callable[[Any], dict[str, str]]] = {
    Gpu: lambda row: {"gpu": row.name},
    Architecture: lambda row: {"gpu": f"sm_{row.capabilities[0].replace('.', '')}"},
    DriverRow: lambda row: {"driver": row.branch},
    PythonRow: lambda row: {"python": row.version},
}
