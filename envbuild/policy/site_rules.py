"""Applies a policy's site rules to the matrix. Pure: copies of the excluded rows are marked, and all other rows stay as they
are."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from envbuild.errors import InvalidInputError, Problem
from envbuild.matrix.lazy_rows import Later
from envbuild.matrix.platform import SITE, Provenance
from envbuild.matrix.types import DriverLimit, FrameworkTable, Matrix, Release, Variant
from envbuild.matrix.versions import version_matches, within
from envbuild.policy.model import SiteRule

Row = TypeVar("Row", bound=Any)


def apply(matrix: Matrix, rules: Sequence[SiteRule]) -> Matrix:
    """Return the matrix under ``rules``: rows that the rules exclude get the status known bad, with the reason of the rule.

    Raises :class:`InvalidInputError` for a rule that names a system or a framework that the matrix does not have.
    """
    if not rules:
        return matrix
    _require_known(matrix, rules)
    limit = next((each for each in rules if each.driver), None)
    identity = hashlib.sha256(f"{matrix.fingerprint} {rules!r}".encode()).hexdigest()
    return matrix._replace(
        fingerprint=identity,
        systems=tuple(_marked(row, _against_system(row.name, rules)) for row in matrix.systems),
        pythons=tuple(_marked(row, _against(row.version, "pythons", rules)) for row in matrix.pythons),
        cuda=tuple(_marked(row, _against(row.version, "cuda", rules)) for row in matrix.cuda),
        frameworks=_frameworks(matrix, rules),
        driver_limit=DriverLimit(driver=limit.driver, reason=_note(limit)) if limit else None,
    )


def _note(rule: SiteRule) -> str:
    return f"{SITE}{rule.at}: {rule.reason}"


def _marked(row: Row, rule: SiteRule | None) -> Row:
    if rule is None:
        return row
    marked: Row = row._replace(origin=_bad(row.origin, rule))
    return marked


def _bad(origin: Provenance, rule: SiteRule) -> Provenance:
    return origin._replace(status="known-bad", note=_note(rule))


def _against_system(name: str, rules: Sequence[SiteRule]) -> SiteRule | None:
    return next((rule for rule in rules if name in rule.systems), None)


def _against(version: str, table: str, rules: Sequence[SiteRule]) -> SiteRule | None:
    return next((rule for rule in rules if any(within(version, each) for each in getattr(rule, table))), None)


def _frameworks(matrix: Matrix, rules: Sequence[SiteRule]) -> tuple[FrameworkTable, ...]:
    """Return the frameworks with the excluded releases and builds marked. The releases are read when they are first used."""
    excluded = [(name, clauses, rule) for rule in rules for said, clauses in rule.frameworks for name in _names(matrix, said)]
    if not excluded:
        return matrix.frameworks

    def read(number: int) -> tuple[Release, ...]:
        table = matrix.frameworks[number]
        return tuple(_release(table.name, release, excluded) for release in table.releases)

    return tuple(table._replace(releases=Later(read, number)) for number, table in enumerate(matrix.frameworks))


def _release(name: str, release: Release, excluded: Sequence[tuple[str, str, SiteRule]]) -> Release:
    if any(each == name and version_matches(release.version, clauses) for each, clauses, _ in excluded):
        rule = next(rule for each, clauses, rule in excluded if each == name and version_matches(release.version, clauses))
        variants = tuple(_marked(variant, rule) for variant in release.variants)
        return release._replace(variants=variants, origin=_bad(release.origin, rule))
    return release._replace(variants=tuple(_upon(variant, excluded) for variant in release.variants))


def _upon(variant: Variant, excluded: Sequence[tuple[str, str, SiteRule]]) -> Variant:
    """Return the build of an add-on. The build is marked if a rule excludes the release of the base framework that the build
    needs."""
    for base, version, _ in variant.upon:
        for name, clauses, rule in excluded:
            if name == base and version_matches(version, clauses):
                return _marked(variant, rule)
    return variant


def _names(matrix: Matrix, said: str) -> list[str]:
    """Return the names that a framework has in the matrix. An add-on has one name for each of its base frameworks."""
    same = [row for row in matrix.frameworks if said in (row.name, row.short, *row.aliases)]
    own = {row.name for row in same}
    return [row.name for row in matrix.frameworks if row.name in own or row.instead_of in own]


def _require_known(matrix: Matrix, rules: Sequence[SiteRule]) -> None:
    problems = [problem for rule in rules for problem in _unknown(matrix, rule)]
    if problems:
        raise InvalidInputError(
            f"A site rule of the policy names something that is not in the matrix: {problems[0]}.",
            code="bad-policy",
            hint="Correct the name, or remove the rule. `envbuild matrix show systems` and `… frameworks` list the names.",
            problems=problems,
        )


def _unknown(matrix: Matrix, rule: SiteRule) -> Iterator[Problem]:
    where, _, line = rule.at.rpartition(":")
    systems = [row.name for row in matrix.systems]
    for name in rule.systems:
        if name not in systems:
            yield Problem(where=where, line=int(line), message=f"there is no system {name!r}{_near(name, systems)}")
    frameworks = [word for row in matrix.frameworks for word in (row.name, row.short, *row.aliases)]
    for name, _ in rule.frameworks:
        if name not in frameworks:
            yield Problem(where=where, line=int(line), message=f"there is no framework {name!r}{_near(name, frameworks)}")


def _near(name: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f", did you mean {near[0]}?" if near else ""
