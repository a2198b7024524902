"""Names the rows of the user's overlays that a decision uses, because only the user has checked these rows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from envbuild.errors import Conflict
from envbuild.matrix.platform import Provenance
from envbuild.matrix.types import Matrix
from envbuild.model.environment import Environment
from envbuild.resolve.request.model import GpuWanted


def overlaid_rows(matrix: Matrix, environment: Environment, gpus: Iterable[GpuWanted] = ()) -> tuple[str, ...]:
    """The overlay rows on which ``environment`` and the check of ``gpus`` depend, each with file and line."""
    rows = [*_rows(matrix, environment)]
    for gpu in gpus:
        rows += [(row.key, row.origin) for row in (gpu.board, gpu.architecture) if row is not None]
    return tuple(dict.fromkeys(f"{name} ({origin.at})" for name, origin in rows if origin.overlaid))


def marked(matrix: Matrix, conflicts: Iterable[Conflict]) -> tuple[Conflict, ...]:
    """Return the conflicts. A conflict from a row of an overlay also gets the file and line of that row."""
    found = tuple(conflicts)
    places = {name: origin.at for name, origin in _named(matrix, {each.row for each in found}) if origin.overlaid}
    return tuple(each._replace(overlaid=places.get(each.row, "")) for each in found) if places else found


def _named(matrix: Matrix, keys: Collection[str]) -> Iterator[tuple[str, Provenance]]:
    """Yield the name and origin of every row that messages can name. Of the frameworks, only those with a row in ``keys`` are
    read. A build has the origin of its release, unless the build itself is from an overlay."""
    for tables in (matrix.systems, matrix.pythons, matrix.architectures, matrix.drivers, matrix.driver_rules, matrix.gpus):
        yield from ((row.key, row.origin) for row in tables)
    for row in matrix.cuda:
        yield row.key, row.origin
        yield from ((f"{row.key} {each.provider} {each.system}", each.origin) for each in row.providers)
    yield from ((row.key, row.origin) for row in (*matrix.cudnn, *matrix.nccl))
    for table in (row for row in matrix.frameworks if any(key.startswith(f"{row.name} ") for key in keys)):
        for release in table.releases:
            yield f"{table.name} {release.version}", release.origin
            for variant in release.variants:
                own = variant.origin if variant.origin.overlaid else release.origin
                yield f"{table.name} {release.version} {variant.name}", own


def _build(matrix: Matrix, name: str, version: str, build: str) -> Iterator[tuple[str, Provenance]]:
    """The rows of one build and of the builds of its base frameworks."""
    for table in (row for row in matrix.frameworks if row.name == name):
        yield f"framework {table.name}", table.origin
        for release in (row for row in table.releases if row.version == version):
            yield f"{table.name} {release.version}", release.origin
            for variant in (row for row in release.variants if row.name == build):
                yield f"{table.name} {release.version} {variant.name}", variant.origin
                for under in variant.upon:
                    yield from _build(matrix, *under)


def _rows(matrix: Matrix, environment: Environment) -> Iterator[tuple[str, Provenance]]:
    for framework in environment.frameworks:
        yield from _build(matrix, framework.name, framework.version, framework.variant)
    yield from ((row.key, row.origin) for row in matrix.systems if row.name == environment.system.name)
    pythons = {plan.python.version for plan in environment.plans()}
    yield from ((row.key, row.origin) for row in matrix.pythons if row.version in pythons)
    for version in dict.fromkeys(cuda for each in environment.frameworks if (cuda := environment.cuda_of(each))):
        major = version.partition(".")[0]
        yield from ((row.key, row.origin) for row in matrix.cuda if row.version == version)
        yield from ((row.key, row.origin) for row in matrix.driver_rules if row.cuda_major == major)
    yield from ((row.key, row.origin) for row in matrix.cudnn if row.version == environment.cudnn)
    yield from ((row.key, row.origin) for row in matrix.nccl if row.version == environment.nccl)
    used = {repository.name for repository in environment.base.repositories}
    yield from ((f"repository {row.name}", row.origin) for row in matrix.repositories if row.name in used)
