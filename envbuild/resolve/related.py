"""What goes with a row of the matrix: the CUDA and drivers of a GPU, what a driver runs, what is built for a CUDA."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from envbuild.errors import EnvbuildError
from envbuild.matrix.platform import Architecture, CudaRow, DriverRow, Gpu, LibraryRow, PythonRow, RepositoryRow, SystemRow
from envbuild.matrix.types import FrameworkTable, Matrix
from envbuild.matrix.versions import numbers, serves
from envbuild.resolve.decide import choose, environment_of
from envbuild.resolve.facts import Facts
from envbuild.resolve.gpu_code import older_cuda, supports
from envbuild.resolve.parse import parse
from envbuild.resolve.search import Search

Related = dict[str, Any]


def related(matrix: Matrix, row: Any) -> Related:
    """What goes with ``row``, by what it is; nothing for rows that stand alone."""
    for kind, answer in _ANSWERS.items():
        if isinstance(row, kind):
            return answer(matrix, row)
    return {}


def _gpu(matrix: Matrix, row: Gpu) -> Related:
    architecture = next((item for item in matrix.architectures if row.capability in item.capabilities), None)
    found = {} if architecture is None else window(matrix, architecture)
    cudnn = next((item.version for item in matrix.cudnn if item.capability_min and not _older(row, item)), None)
    return {**found, "newest_cudnn": cudnn, "frameworks": _newest(matrix, gpu=row.name)}


def _older(gpu: Gpu, library: LibraryRow) -> bool:
    return numbers(gpu.capability) < numbers(library.capability_min)


def _architecture(matrix: Matrix, row: Architecture) -> Related:
    boards = [gpu.name for gpu in matrix.gpus if gpu.capability in row.capabilities]
    return {
        **window(matrix, row),
        "gpus": boards,
        "frameworks": _newest(matrix, gpu=f"sm_{row.capabilities[0].replace('.', '')}"),
    }


def window(matrix: Matrix, row: Architecture) -> Related:
    """The toolkits that build for an architecture, and the driver branches that serve it."""
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
        "frameworks": _newest(matrix, driver=row.branch),
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
    return [item.version for item in rows if any(serves(cuda, entry) for entry in item.cuda)]


def _builds(matrix: Matrix, cuda: str) -> Iterator[tuple[str, list[str]]]:
    """The releases of each framework that have a build for ``cuda``, newest first."""
    for table in matrix.frameworks:
        releases = [item.version for item in table.releases if any(build.cuda == cuda for build in item.variants)]
        if releases:
            yield table.name, releases


def _library(matrix: Matrix, row: LibraryRow) -> Related:
    cuda = [item.version for item in matrix.cuda if any(serves(item.version, entry) for entry in row.cuda)]
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
    users = [
        (item.version, provider.system)
        for item in matrix.cuda
        for provider in item.providers
        if row.name in provider.repositories
    ]
    return {"cuda": [f"{version} on {system}" for version, system in users]}


def _python(matrix: Matrix, row: PythonRow) -> Related:
    return {
        "systems": [item.name for item in matrix.systems if any(python.version == row.version for python in item.pythons)],
        "frameworks": _newest(matrix, python=row.version),
    }


def _framework(_matrix: Matrix, row: FrameworkTable) -> Related:
    cuda: dict[str, list[str]] = {}
    for release in row.releases:
        for build in release.variants:
            cuda.setdefault(build.cuda or "cpu", []).append(release.version)
    return {"builds": cuda}


def _newest(matrix: Matrix, **options: str) -> dict[str, str]:
    """The newest environment of each framework under ``options``, by name; frameworks that have none are left out."""
    facts = Facts(matrix)
    found = {}
    for table in matrix.frameworks:
        try:
            request = parse([table.name], matrix=matrix, **options)
        except EnvbuildError:
            continue
        chosen = choose(Search(facts, request))
        if chosen is not None:
            found[table.name] = environment_of(facts, request, chosen).name
    return found


_ANSWERS: dict[type, Callable[[Matrix, Any], Related]] = {
    Gpu: _gpu,
    Architecture: _architecture,
    DriverRow: _driver,
    CudaRow: _cuda,
    LibraryRow: _library,
    SystemRow: _system,
    RepositoryRow: _repository,
    PythonRow: _python,
    FrameworkTable: _framework,
}
