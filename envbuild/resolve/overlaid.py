"""Which of the rows behind a decision the user added: facts that nobody else has checked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from envbuild.matrix.platform import Provenance
from envbuild.matrix.types import Matrix
from envbuild.model import Environment
from envbuild.resolve.request import GpuWanted


def overlaid(matrix: Matrix, environment: Environment, gpus: Iterable[GpuWanted] = ()) -> tuple[str, ...]:
    """The rows of overlays that ``environment``, and the check of ``gpus``, rest on, each with its file and line."""
    rows = [*_rows(matrix, environment)]
    for gpu in gpus:
        rows += [(row.key, row.origin) for row in (gpu.board, gpu.architecture) if row is not None]
    return tuple(dict.fromkeys(f"{name} ({origin.at})" for name, origin in rows if origin.overlaid))


def _rows(matrix: Matrix, environment: Environment) -> Iterator[tuple[str, Provenance]]:
    for framework in environment.frameworks:
        for table in (row for row in matrix.frameworks if row.name == framework.name):
            yield f"framework {table.name}", table.origin
            for release in (row for row in table.releases if row.version == framework.version):
                yield f"{table.name} {release.version}", release.origin
                for variant in (row for row in release.variants if row.name == framework.variant):
                    yield f"{table.name} {release.version} {variant.name}", variant.origin
    yield from ((row.key, row.origin) for row in matrix.systems if row.name == environment.system.name)
    yield from ((row.key, row.origin) for row in matrix.pythons if row.version == environment.python.version)
    for version in dict.fromkeys(cuda for each in environment.frameworks if (cuda := environment.cuda_of(each))):
        major = version.partition(".")[0]
        yield from ((row.key, row.origin) for row in matrix.cuda if row.version == version)
        yield from ((row.key, row.origin) for row in matrix.driver_rules if row.cuda_major == major)
    yield from ((row.key, row.origin) for row in matrix.cudnn if row.version == environment.cudnn)
    yield from ((row.key, row.origin) for row in matrix.nccl if row.version == environment.nccl)
    used = {repository.name for repository in environment.base.repositories}
    yield from ((f"repository {row.name}", row.origin) for row in matrix.repositories if row.name in used)
