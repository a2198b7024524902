"""Check that the tables of the matrix are consistent. All problems are reported, each with the file and line of its row."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable, Iterator

from packaging.version import Version

from envbuild.errors import Problem
from envbuild.matrix import consistency
from envbuild.matrix.consistency import problem
from envbuild.matrix.placement import Serving
from envbuild.matrix.platform import CudaRow, Provenance, ProviderRow
from envbuild.matrix.types import FrameworkTable, Matrix, Release, Variant
from envbuild.matrix.versions import has_prefix, numbers, serves

# Environment names are split at dashes and read from the left. So no framework or system may have a name that also means
# something else.
_RESERVED = {"cpu", "gpu", "cuda", "distribution", "tag", "apt", "wheels", "conda", "debian", "local"}


def check(matrix: Matrix) -> list[Problem]:
    """Return every inconsistency between rows, in the order of files and lines."""
    serving = Serving(matrix)
    found = list(_frameworks(matrix, serving))
    for part in (_names, _hardware, _cuda, _libraries, consistency.drivers):
        found.extend(part(matrix))
    for look in (consistency.intervals, consistency.idle):
        found.extend(look(matrix, serving))
    return sorted(set(found), key=lambda problem: (problem.where, problem.line, problem.message))


def _names(matrix: Matrix) -> Iterator[Problem]:
    taken: dict[str, str] = {}
    for framework in matrix.frameworks:
        if framework.short not in framework.aliases:
            yield problem(framework.origin, f"the short name {framework.short} is missing from `aliases`: add it there")
        for name in {framework.name, framework.short, *framework.aliases}:
            if name in taken or name in _RESERVED:
                owner = f"it belongs to {taken[name]}" if name in taken else "it has another meaning in requests"
                yield problem(framework.origin, f"{framework.name} cannot have the name {name}: {owner}")
            taken[name] = framework.name
        yield from _other_names(matrix, framework)
    yield from _systems(matrix)
    yield from _pythons(matrix)


def _other_names(matrix: Matrix, framework: FrameworkTable) -> Iterator[Problem]:
    """Check that ``instead_of`` and ``beside`` name frameworks, and that a framework has both of these fields or neither."""
    known = {table.name for table in matrix.frameworks} - {framework.name}
    for field, name in (("instead_of", framework.instead_of), ("beside", framework.beside)):
        if name and name not in known:
            yield problem(
                framework.origin, f"`{field}` of {framework.name} must name another framework of the matrix, not {name}"
            )
    if bool(framework.instead_of) != bool(framework.beside):
        yield problem(framework.origin, f"{framework.name} has only one of `instead_of` and `beside`: set both, or neither")


def _systems(matrix: Matrix) -> Iterator[Problem]:
    meant: dict[str, str] = {}
    for system in matrix.systems:
        for name in {system.name, system.codename.lower(), system.image.lower()}:
            if name in meant:
                yield problem(system.origin, f"the name {name} is already used for the system {meant[name]}")
            meant[name] = system.name
        if "-" in system.name or system.name in _RESERVED:
            yield problem(
                system.origin,
                f"a system cannot be called {system.name}, because that cannot be read in the name of an environment",
            )
        for python in system.pythons:
            yield from _refers(system.origin, "Python", python.version, (row.version for row in matrix.pythons))
        if not system.pythons:
            yield problem(system.origin, f"{system.name} has no Python: list at least one under `pythons`")


def _pythons(matrix: Matrix) -> Iterator[Problem]:
    archives = {row.name for row in matrix.archives}
    for row in matrix.pythons:
        for supply in row.supplies:
            for name in (*supply.files, *filter(None, (supply.installer,))):
                yield from _refers(row.origin, "archive", name, archives)


def _refers(origin: Provenance, what: str, name: str, known: Iterable[str]) -> Iterator[Problem]:
    if name not in set(known):
        yield problem(origin, f"the matrix has no {what} {name}")


def _hardware(matrix: Matrix) -> Iterator[Problem]:
    seen: dict[tuple[int, ...], str] = {}
    for row in matrix.architectures:
        for capability in row.capabilities:
            if numbers(capability) in seen:
                yield problem(row.origin, f"capability {capability} already belongs to {seen[numbers(capability)]}")
            seen[numbers(capability)] = row.key
        if row.last_cuda and numbers(row.last_cuda) < numbers(row.first_cuda):
            yield problem(row.origin, f"last_cuda {row.last_cuda} is older than first_cuda {row.first_cuda}")
        if row.last_driver_branch:
            yield from _refers(row.origin, "driver branch", row.last_driver_branch, (r.branch for r in matrix.drivers))
    newest = max((row.version for row in matrix.cuda), key=numbers, default="")
    for driver in (
        matrix.drivers
    ):  # a driver may come out before its CUDA toolkit, but not before the toolkit of the preceding major version
        if newest and numbers(driver.max_cuda)[0] > numbers(newest)[0] + 1:
            yield problem(driver.origin, f"max_cuda {driver.max_cuda} is too far above the newest CUDA of the matrix, {newest}")
    yield from _ascending(matrix.drivers, lambda row: row.branch, lambda row: row.max_cuda, lambda row: row.origin, "max_cuda")
    yield from _ascending(
        matrix.cuda, lambda row: row.version, lambda row: row.driver_min, lambda row: row.origin, "driver_min"
    )
    yield from _gpus(matrix, seen)


def _gpus(matrix: Matrix, seen: Collection[tuple[int, ...]]) -> Iterator[Problem]:
    names: dict[str, str] = {}
    belong = {(row.name, capability) for row in matrix.architectures for capability in row.capabilities}
    architectures = sorted({name for name, _ in belong})
    for gpu in matrix.gpus:
        if gpu.architecture not in architectures:
            near = difflib.get_close_matches(gpu.architecture, architectures, n=1)
            meant = f"; did you mean {near[0]}?" if near else f"; it has {', '.join(architectures)}"
            yield problem(gpu.origin, f"the matrix has no architecture {gpu.architecture}{meant}")
        if numbers(gpu.capability) not in seen:
            yield problem(gpu.origin, f"no architecture of the matrix has capability {gpu.capability}")
        elif gpu.architecture in architectures and not any(
            row.name == gpu.architecture and gpu.capability in row.capabilities for row in matrix.architectures
        ):
            yield problem(gpu.origin, f"the architecture {gpu.architecture} does not have capability {gpu.capability}")
        for name in (gpu.name.lower(), *(alias.lower() for alias in gpu.aliases)):
            if names.get(name, gpu.name) != gpu.name:
                yield problem(gpu.origin, f"the name {name} is already used for the GPU {names[name]}")
            names[name] = gpu.name


def _ascending(
    rows: Iterable[object],
    version: Callable[..., str],
    value: Callable[..., str],
    origin: Callable[..., Provenance],
    what: str,
) -> Iterator[Problem]:
    """Check a value that must not be lower for a newer version than for an older version. Rows of unknown status are
    skipped."""
    highest: tuple[tuple[int, ...], str] = ((), "")
    for row in sorted(rows, key=lambda item: numbers(version(item))):
        if origin(row).status == "unknown":
            continue
        number = numbers(value(row))
        if number < highest[0]:
            yield problem(origin(row), f"{what} {value(row)} is lower than in the older row {highest[1]}")
        highest = max(highest, (number, version(row)))


def _cuda(matrix: Matrix) -> Iterator[Problem]:
    systems = {row.name: row for row in matrix.systems}
    repositories = {row.name for row in matrix.repositories}
    archives = {row.name for row in matrix.archives}
    for rule in matrix.driver_rules:
        if not any(row.version.startswith(f"{rule.cuda_major}.") for row in matrix.cuda):
            yield problem(rule.origin, f"the matrix has no CUDA {rule.cuda_major}.x, for which this rule could be used")
    for row in matrix.cuda:
        if numbers(row.capability_min) > numbers(row.capability_max):
            yield problem(
                row.origin, f"the lowest capability, {row.capability_min}, is above the highest, {row.capability_max}"
            )
        if matrix.drivers and row.origin.status != "unknown" and not _has_driver(matrix, row):
            yield problem(
                row.origin, f"no driver branch of the matrix is new enough for CUDA {row.version} (driver {row.driver_min})"
            )
        for branch in row.forward_compat:
            if matrix.drivers and not any(driver.branch == branch for driver in matrix.drivers):
                yield problem(row.origin, f"{row.key}: the matrix has no driver branch {branch}")
        for provider in row.providers:
            yield from _provider(row, provider, systems, repositories)
            for name in (*provider.files, *filter(None, (provider.installer,))):
                yield from _refers(provider.origin, "archive", name, archives)


def _has_driver(matrix: Matrix, row: CudaRow) -> bool:
    return any(
        numbers(driver.max_cuda) >= numbers(row.version) and numbers(driver.branch)[0] >= numbers(row.driver_min)[0]
        for driver in matrix.drivers
    )


def _provider(
    row: CudaRow, provider: ProviderRow, systems: Collection[str], repositories: Collection[str]
) -> Iterator[Problem]:
    name = f"CUDA {row.version} from provider {provider.provider}"
    if provider.system and provider.system not in systems:
        yield problem(provider.origin, f"{name}: the matrix has no system {provider.system}")
    used = {package.repository for package in (*provider.packages, *provider.build_packages) if package.repository}
    for repository in sorted({*provider.repositories, *used} - set(repositories)):
        yield problem(provider.origin, f"{name}: the matrix has no repository {repository}")
    for repository in sorted(used - set(provider.repositories)):
        yield problem(provider.origin, f"{name}: its packages come from {repository}, which is missing from its `repositories`")
    if provider.provider == "apt" and not provider.packages:
        yield problem(provider.origin, f"{name} cannot be installed: it has no `packages`")
    if provider.provider == "conda" and not (provider.image or (provider.files and provider.installer)):
        yield problem(provider.origin, f"{name} cannot be installed: it has neither `image` nor `files` with `installer`")
    if provider.cuda and provider.origin.status != "known-bad":
        ours, theirs = numbers(provider.cuda), numbers(row.version)
        if ours[0] != theirs[0] or ours < theirs:
            yield problem(
                provider.origin,
                f"{name} provides CUDA {provider.cuda}, but programs need {row.version} or a later minor version",
            )
    repeated = [package.name for package in (*provider.packages, *provider.build_packages)]
    for package in sorted({item for item in repeated if repeated.count(item) > 1}):
        yield problem(provider.origin, f"{name}: {package} is listed twice")


def _libraries(matrix: Matrix) -> Iterator[Problem]:
    systems = {row.name for row in matrix.systems}
    repositories = {row.name for row in matrix.repositories}
    for row in (*matrix.cudnn, *matrix.nccl):
        for entry in row.cuda:
            if not any(serves(cuda.version, entry) for cuda in matrix.cuda):
                yield problem(row.origin, f"{row.key}: the matrix has no CUDA {entry}")
        for item in row.apt:
            if item.system not in systems:
                yield problem(item.origin, f"{row.key}: the matrix has no system {item.system}")
            if item.package.repository and item.package.repository not in repositories:
                yield problem(item.origin, f"{row.key}: the matrix has no repository {item.package.repository}")
            if item.cuda not in row.cuda and not any(serves(item.cuda, entry) for entry in row.cuda):
                yield problem(item.origin, f"{row.key} has a package for CUDA {item.cuda}, which is missing from its `cuda`")


def _frameworks(matrix: Matrix, serving: Serving) -> Iterator[Problem]:
    for framework in matrix.frameworks:
        if not framework.releases:
            yield problem(framework.origin, f"{framework.name} has no release")
        yield from _series(framework)
        for release in framework.releases:
            yield from _release(matrix, serving, framework, release)


def _series(framework: FrameworkTable) -> Iterator[Problem]:
    """Check that each release belongs to its series. Its version begins with the number of the series, or lies between this
    series and the next series of the same major version."""
    begun = sorted({release.series for release in framework.releases}, key=numbers)
    for release in framework.releases:
        number = Version(release.version).release
        last = max((series for series in begun if numbers(series) <= number), key=numbers, default="")
        bears = has_prefix(".".join(map(str, number)), release.series)
        if not bears and (last != release.series or number[0] != numbers(last)[0]):
            yield problem(release.origin, f"{framework.name} {release.version} does not belong to series {release.series}")


def _release(matrix: Matrix, serving: Serving, framework: FrameworkTable, release: Release) -> Iterator[Problem]:
    name = f"{framework.name} {release.version}"
    if release.exclude_newer and release.exclude_newer < release.released:
        yield problem(
            release.origin, f"{name}: exclude_newer {release.exclude_newer} is earlier than its release on {release.released}"
        )
    for place, variant in enumerate(release.variants):
        for other in release.variants[:place]:
            if _of_one_name(variant, other):
                yield problem(
                    variant.origin,
                    f"{name}: environments of its builds {other.name} and {variant.name} would have the same name",
                )
        yield from _variant(matrix, serving, f"{name} {variant.name}", variant)


def _of_one_name(one: Variant, other: Variant) -> bool:
    """Whether environments of two builds can get the same name. The name contains the CUDA version, Python and the system."""
    if (one.cuda, one.cuda_libraries) != (other.cuda, other.cuda_libraries) or not set(one.python) & set(other.python):
        return False
    return not one.systems or not other.systems or bool(set(one.systems) & set(other.systems))


def _variant(matrix: Matrix, serving: Serving, name: str, variant: Variant) -> Iterator[Problem]:
    yield from _references(matrix, name, variant)
    if variant.origin.status == "known-bad":
        return
    cuda = next((row for row in matrix.cuda if row.version == variant.cuda), None)
    if variant.cuda and cuda is None:
        yield problem(variant.origin, f"{name}: the matrix has no CUDA {variant.cuda}, so no driver is known for this build")
    elif variant.origin.status != "unknown" and (reason := serving.of(variant)[1]):
        yield problem(variant.origin, f"{name}: no system of the matrix can be used: {reason}")


def _references(matrix: Matrix, name: str, variant: Variant) -> Iterator[Problem]:
    pythons = {row.version for row in matrix.pythons}
    for version in variant.python:
        if version not in pythons:
            yield problem(variant.origin, f"{name}: the matrix has no Python {version}")
    known = {numbers(capability) for row in matrix.architectures for capability in row.capabilities}
    bad = [capability for item in variant.bad_capabilities for capability in item.capabilities]
    for capability in (*variant.sass, *variant.ptx, *variant.only_ptx, *bad):
        if numbers(capability) not in known:
            yield problem(variant.origin, f"{name}: no architecture of the matrix has capability {capability}")
    for system in variant.systems:
        if system not in {row.name for row in matrix.systems}:
            yield problem(variant.origin, f"{name}: the matrix has no system {system}")
