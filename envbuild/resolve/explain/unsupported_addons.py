"""Refuses an add-on if its requested release does not support another framework of the request.

The refusal applies only if the request does not name the base framework that the release needs.
"""

from __future__ import annotations

from collections.abc import Iterator

from envbuild.errors import Alternative, Conflict, ConflictError
from envbuild.matrix.similar_names import nearest_versions
from envbuild.matrix.types import FrameworkTable, Matrix
from envbuild.model.environment import Environment
from envbuild.resolve.choice import choose_for
from envbuild.resolve.environment import environment_of
from envbuild.resolve.request.model import Request, Wanted
from envbuild.resolve.request.names import rule_that_leaves_out

_TRIED = 3  # limit of the add-on's releases to try, the nearest first


def refuse_unsupported(matrix: Matrix, request: Request) -> None:
    """Raise if the requested release of an add-on does not support another framework of the request, but other releases do. Do
    not raise if the request names the base framework that the requested release needs.

    Without this error, the add-on would bring its own base framework, and the named framework would stay unused.
    """
    named = {wanted.framework.name for wanted in request.wanted}
    for wanted in request.wanted:
        bases = _bases(wanted)
        others = [table for table in matrix.frameworks if table.instead_of == wanted.framework.name and table.beside in named]
        if bases and others and not named & {*bases, *(table.name for table in others)}:
            raise _refusal(matrix, request, wanted, others[0], bases[0])


def _bases(wanted: Wanted) -> list[str]:
    """The base frameworks of the accepted releases of an add-on."""
    accepted = (release for release in wanted.framework.releases if wanted.accepts(release))
    return list(dict.fromkeys(pairs.framework for release in accepted for pairs in release.pairs))


def _refusal(matrix: Matrix, request: Request, wanted: Wanted, other: FrameworkTable, base: str) -> ConflictError:
    tables = {table.name: table for table in matrix.frameworks}
    beside, below, addon = tables[other.beside], tables[base], wanted.framework
    newest = next(release.version for release in addon.releases if wanted.accepts(release))
    rule = rule_that_leaves_out(other, wanted.version)
    versions = [release.version for release in other.releases]
    known = f"the matrix has {other.title} releases from {versions[-1]} to {versions[0]}"
    supporting = _with_other_release(matrix, request, wanted, other, newest)
    added = Wanted(framework=below, version="", cuda="")
    both = _resolved(matrix, request._replace(wanted=(*request.wanted, added)))
    shown = []
    found = []
    if supporting is not None:
        version, environment = supporting
        text = _short_name(tables, request, environment)
        shown.append(f"Ask for {addon.title} {version}, which supports {beside.title}: {text}.")
        found.append(Alternative(name=environment.name, changes=f"{addon.name} {version} instead of {newest}"))
    else:
        shown.append(f"Ask for a release that supports {beside.title}: the matrix has {other.title} from {versions[-1]} on.")
    if both is not None:
        text = _short_name(tables, request, both)
        shown.append(
            f"To use {addon.title} with {below.title}, and {beside.title} in the same environment, name "
            f"{below.title} too: {text}."
        )
        found.append(Alternative(name=both.name, changes=f"with {below.name}, on which {addon.name} is then based"))
    conflicts = [Conflict(row=f"{other.name} {newest}", reason=rule.origin.note, source=rule.origin.source)] if rule else []
    return ConflictError(
        f"{addon.title} {newest} does not support {beside.title}, and the request does not name {below.title}, on which "
        f"{addon.title} could be based.",
        hint=" ".join(shown),
        conflicts=[*conflicts, Conflict(row=other.name, reason=known, source=other.origin.source)],
        alternatives=found,
    )


def _with_other_release(
    matrix: Matrix, request: Request, wanted: Wanted, other: FrameworkTable, newest: str
) -> tuple[str, Environment] | None:
    """Return the nearest release of the add-on that satisfies the request and is based on the named framework. Also return the
    environment of this release."""
    near = nearest_versions([release.version for release in other.releases], newest)
    for version in near[:_TRIED]:
        again = wanted._replace(framework=other, version=f"==={version}")
        environment = _resolved(
            matrix, request._replace(wanted=tuple(again if each is wanted else each for each in request.wanted))
        )
        if environment is not None:
            return version, environment
    return None


def _resolved(matrix: Matrix, request: Request) -> Environment | None:

    search, chosen = choose_for(matrix, request)
    return None if chosen is None else environment_of(search.lookup, request, chosen)


def _short_name(tables: dict[str, FrameworkTable], request: Request, environment: Environment) -> str:
    """Return a request, with the usual names of frameworks, for the frameworks of an environment."""
    return "+".join(_parts(tables, environment)) + ("-cpu" if request.device == "cpu" else "")


def _parts(tables: dict[str, FrameworkTable], environment: Environment) -> Iterator[str]:
    for framework in environment.frameworks:
        table = tables[framework.name]
        usual = tables.get(table.instead_of, table)
        yield f"{usual.short}-{framework.version}"
