"""Finds the dates, as far as the matrix knows them, on which upstream ends its support for parts of an environment."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from envbuild.matrix.types import Matrix
    from envbuild.model.environment import Environment


class End(NamedTuple):
    """The end of life of one part. ``date`` (in ISO form) is empty if the matrix does not know the date."""

    what: str
    date: str
    source: str


def of_platform(matrix: Matrix, environment: Environment) -> Iterator[End]:
    """Yield the end of life of the operating system and of each Python version."""
    system = next((row for row in matrix.systems if row.name == environment.system.name), None)
    ours = environment.system
    what = f"{ours.family.capitalize()} {ours.version}"
    yield End(what, system.end_of_life, system.origin.source_of("end_of_life")) if system else End(what, "", "")
    pythons = {row.version: row for row in matrix.pythons}
    for version in dict.fromkeys(plan.python.version for plan in environment.plans()):
        row = pythons.get(version)
        what = f"Python {version}"
        yield End(what, row.end_of_life, row.origin.source_of("end_of_life")) if row else End(what, "", "")


def ended_frameworks(matrix: Matrix, environment: Environment) -> Iterator[str]:
    """Yield the frameworks whose release has the status end-of-life. For frameworks, the matrix has no dates."""
    tables = {table.name: table for table in matrix.frameworks}
    for framework in environment.frameworks:
        table = tables.get(framework.name)
        release = next((each for each in table.releases if each.version == framework.version), None) if table else None
        if release is not None and release.origin.status == "end-of-life":
            yield f"{framework.name} {framework.version}"
