"""Makes the rows of the catalogue's search page: the environments of the checkout, then all others of the matrix."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from envbuild.catalogue.machines import MachineTable
from envbuild.catalogue.model import CatalogueEntry, SearchRow
from envbuild.errors import EnvbuildError
from envbuild.model.environment import Environment
from envbuild.pipeline import listing, stack_requests
from envbuild.pipeline.tools import Tools
from envbuild.resolve.search.placement import on_libraries

if TYPE_CHECKING:
    from envbuild.resolve.search.build import Build


def rows_of(
    tools: Tools, entries: Sequence[CatalogueEntry], environments: Sequence[Environment], table: MachineTable
) -> list[SearchRow]:
    """Return the rows of the search page.

    The builds of each environment are added to ``table``, which says on which machines each build runs.
    """
    known = {entry.name for entry in entries}
    found = [_row_of_entry(tools, entry, each, table) for entry, each in zip(entries, environments, strict=True)]
    return [*found, *_rows_of_matrix(tools, known, table)]


def words_of(tools: Tools) -> dict[str, str]:
    """Map the title of each framework to the names by which people search for it."""
    return {
        table.title: " ".join(dict.fromkeys((table.name, table.short, *table.aliases))) for table in tools.matrix.frameworks
    }


def _row_of_entry(tools: Tools, entry: CatalogueEntry, environment: Environment, table: MachineTable) -> SearchRow:
    """Return the row about an environment of the checkout. Its facts come from the catalogue's ``entry``."""
    stack = stack_requests.stack_of(tools, [entry.name])
    builds = _builds(tools, entry.name)
    return SearchRow(
        name=entry.name,
        frameworks=tuple((each.title, each.version) for each in entry.frameworks),
        python=entry.python,
        os=entry.os,
        cuda=entry.cuda or "",
        driver_min=entry.driver_min or "",
        status="",
        released=max((each.released for each in entry.frameworks), default=""),
        proofs=entry.kinds,
        page=entry.page,
        builds=None if builds is None else _kinds(table, builds, environment),
        driver=stack.driver if stack else "",
        gpus=stack.gpus if stack else (),
        proved_on=entry.proved_on,
    )


def _kinds(table: MachineTable, builds: Sequence[Build], environment: Environment) -> tuple[int, ...]:
    variants = (on_libraries(build.variant, environment.base.libraries_cuda) for build in builds)
    found = (table.kind_of(variant, environment.cudnn, environment.nccl) for variant in variants)
    return tuple(dict.fromkeys(kind for kind in found if kind is not None))


def _builds(tools: Tools, name: str) -> Sequence[Build] | None:
    """Return the builds that the resolver chooses for ``name``.

    Return None if the resolver refuses the name, or if it chooses an environment with another name.
    """
    from envbuild.resolve.choice import choose_for
    from envbuild.resolve.environment import environment_of
    from envbuild.resolve.request.parser import parse
    from envbuild.resolve.stacks import builds_of

    try:
        if (stack := stack_requests.stack_of(tools, [name])) is not None:
            return builds_of(tools.matrix, stack)
        search, chosen = choose_for(tools.matrix, parse([name], matrix=tools.matrix))
    except EnvbuildError:
        return None
    if chosen is None or environment_of(search.lookup, search.request, chosen).name != name:
        return None
    return chosen.builds


def _rows_of_matrix(tools: Tools, known: set[str], table: MachineTable) -> Iterator[SearchRow]:
    tables = {each.name: each for each in tools.matrix.frameworks}
    variants = {
        (each.name, release.version, variant.name): variant
        for each in tools.matrix.frameworks
        for release in each.releases
        for variant in release.variants
    }
    seen = set(known)
    for row in listing.list_builds(tools):
        # A row has no name if no operating system of the matrix can run its build. If several rows have the same name, the
        # first row has the best build.
        if not row["name"] or row["name"] in seen:
            continue
        seen.add(row["name"])
        variant = on_libraries(variants[row["framework"], row["version"], row["variant"]], row["base_cuda"])
        kind = table.kind_of(variant, row["cudnn"], row["nccl"])
        yield SearchRow(
            name=row["name"],
            frameworks=((tables[row["framework"]].title, row["version"]),),
            python=row["python"],
            os=row["system"],
            cuda=row["cuda"] or "",
            driver_min=row["driver_min"] or "",
            status=row["status"],
            released=row["released"],
            proofs=(),
            page="",
            builds=() if kind is None else (kind,),
        )
