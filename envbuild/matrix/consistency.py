"""Finds rows that contradict each other, and rows that no environment can use."""

from __future__ import annotations

from collections.abc import Iterator

from envbuild.errors import Problem
from envbuild.matrix.libraries import accepts, describe, needs
from envbuild.matrix.placement import Serving
from envbuild.matrix.platform import CudaRow, DriverRow, LibraryPackage, LibraryWheel, Provenance, ProviderRow
from envbuild.matrix.types import LibraryNeed, Matrix, Variant
from envbuild.matrix.versions import numbers


def problem(origin: Provenance, message: str) -> Problem:
    """Make a problem with the file and line of a row."""
    where, _, line = origin.at.rpartition(":")
    return Problem(where=where or origin.at, line=int(line) if line.isdecimal() else 0, message=message)


def _builds(matrix: Matrix) -> Iterator[Variant]:
    for framework in matrix.frameworks:
        for release in framework.releases:
            yield from (variant for variant in release.variants if variant.origin.status != "known-bad")


# --- contradictions ---------------------------------------------------------------------------------------------------


def intervals(matrix: Matrix, serving: Serving) -> Iterator[Problem]:
    """Yield a problem for each need of cuDNN or NCCL that contradicts itself or that no release satisfies. For a library that
    is installed in the system, :class:`Serving` checks whether a release satisfies the need."""
    for variant in _builds(matrix):
        for library, need in needs(variant):
            if message := _against(library, need) or _unheard(serving, library, need, variant):
                yield problem(variant.origin, f"{variant.name}: {message}")


def _against(library: str, need: LibraryNeed) -> str:
    if need.minimum and need.below and numbers(need.minimum) >= numbers(need.below):
        return f"no version of {library} is at least {need.minimum} and below {need.below}"
    if need.prefer and not accepts(need, need.prefer):
        return f"the preferred {library} {need.prefer} is outside the range that the row allows"
    return ""


def _unheard(serving: Serving, library: str, need: LibraryNeed, variant: Variant) -> str:
    if need.prefer or need.taken_from == "system" or serving.fitting(library, need, variant.cuda):
        return ""
    return f"the matrix has no {library} {describe(need)} for CUDA {variant.cuda}"


def drivers(matrix: Matrix) -> Iterator[Problem]:
    """Yield a problem for each driver branch whose highest CUDA contradicts the minimum driver of a CUDA row. Rows of unknown
    status are ignored."""
    for driver in matrix.drivers:
        for cuda in matrix.cuda:
            if "unknown" not in (driver.origin.status, cuda.origin.status):
                yield from _driver(matrix, driver, cuda)


def _driver(matrix: Matrix, driver: DriverRow, cuda: CudaRow) -> Iterator[Problem]:
    # If a toolkit's own minimum driver is unknown, the row has the minimum driver of minor-version compatibility instead. That
    # driver cannot be compared with driver branches, so such rows are skipped.
    floors = {rule.driver_min for rule in matrix.driver_rules}
    least = min(numbers(each) for each in (cuda.driver_min, *(row.driver_min for row in cuda.releases)) if each)
    if cuda.driver_min in floors:
        return
    reaches, branch = numbers(driver.max_cuda) >= numbers(cuda.version), numbers(driver.branch)[0]
    says = f"by this row, driver {driver.branch} supports CUDA up to {driver.max_cuda}"
    if reaches and branch < least[0]:
        yield problem(driver.origin, f"{says}, but CUDA {cuda.version} needs driver {cuda.driver_min} ({cuda.origin.at})")
    if not reaches and branch > numbers(cuda.driver_min)[0]:
        yield problem(driver.origin, f"{says}, but CUDA {cuda.version} needs only driver {cuda.driver_min} ({cuda.origin.at})")


# --- rows that nothing uses -------------------------------------------------------------------------------------------


class _Used:
    """The rows that at least one build could use."""

    def __init__(self, matrix: Matrix, serving: Serving) -> None:
        self.systems: set[str] = set()
        self.pythons: set[str] = set()
        self.cuda: set[str] = set()
        self.providers: set[ProviderRow] = set()
        self.packages: set[LibraryPackage | LibraryWheel] = set()
        self.libraries: set[tuple[str, str]] = set()
        for variant in set(_builds(matrix)):
            served, _ = serving.of(variant)
            self.cuda.update([variant.cuda] if served else [])
            for library, need in needs(variant):
                self.libraries.update((library, row.version) for row in serving.fitting(library, need, variant.cuda))
            for system, provider, packages in served:
                self.systems.add(system.name)
                self.pythons.update(set(variant.python) & serving.pythons_on(system))
                self.providers.update([provider] if provider else [])
                self.packages.update(packages)


def idle(matrix: Matrix, serving: Serving) -> Iterator[Problem]:
    """Return rows that no environment can use, although such rows exist only to be used. Then the returned row or another row
    is wrong.

    Nothing is returned if an overlay has rows about systems, Pythons, CUDA, cuDNN or NCCL. Such a row may have replaced the
    only row that used another row.
    """
    if any(
        row.origin.overlaid for rows in (matrix.systems, matrix.pythons, matrix.cuda, matrix.cudnn, matrix.nccl) for row in rows
    ):
        return
    used = _Used(matrix, serving)
    for system in matrix.systems:
        if system.name not in used.systems and matrix.frameworks:
            yield problem(system.origin, f"no build can use the system {system.name}")
    for cuda in matrix.cuda:
        for provider in cuda.providers:
            if provider.provider in ("apt", "conda") and provider not in used.providers:
                where = provider.system or "any system"
                yield problem(
                    provider.origin, f"no build can use CUDA {cuda.version} from provider {provider.provider} on {where}"
                )
    yield from _idle_repositories(matrix)


def _idle_repositories(matrix: Matrix) -> Iterator[Problem]:
    named = {name for cuda in matrix.cuda for provider in cuda.providers for name in provider.repositories}
    named |= {item.package.repository for row in (*matrix.cudnn, *matrix.nccl) for item in row.apt}
    for repository in matrix.repositories:
        if repository.name not in named:
            yield problem(repository.origin, f"nothing is installed from repository {repository.name}")


def unused(matrix: Matrix) -> list[Problem]:
    """Return rows that no build of the matrix uses. Unused rows are allowed, but users may want to know them."""
    used = _Used(matrix, Serving(matrix))
    found = [*_unused_platforms(matrix, used), *_unused_libraries(matrix, used)]
    return sorted(set(found), key=lambda item: (item.where, item.line, item.message))


def _unused_platforms(matrix: Matrix, used: _Used) -> Iterator[Problem]:
    for cuda in matrix.cuda:
        if cuda.version not in used.cuda:
            yield problem(cuda.origin, f"no build is for CUDA {cuda.version}")
        for provider in cuda.providers:
            if provider.provider == "tag" and provider not in used.providers:
                yield problem(provider.origin, f"no build uses the image {provider.image}")
    for python in matrix.pythons:
        if python.version not in used.pythons:
            yield problem(python.origin, f"no build runs on Python {python.version}")
    for driver in matrix.drivers:
        if not any(numbers(cuda) <= numbers(driver.max_cuda) for cuda in used.cuda if cuda):
            yield problem(driver.origin, f"no build runs on driver {driver.branch}")


def _unused_libraries(matrix: Matrix, used: _Used) -> Iterator[Problem]:
    for row in (*matrix.cudnn, *matrix.nccl):
        if (row.library, row.version) not in used.libraries:
            yield problem(row.origin, f"no build uses {row.key}")
        for item in row.apt:
            if item not in used.packages:
                yield problem(item.origin, f"no build uses {row.key} for CUDA {item.cuda} on {item.system}")
