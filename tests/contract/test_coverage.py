"""envbuild answers for every release on the package index: it resolves the release, or refuses it with a reason and its source.

``index/`` lists the releases; ``tests/integration/test_matrix_index.py`` compares the lists with the index of today.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import index_lists
import pytest
from index_lists import Listing
from packaging.version import Version
from real_matrix import FACTS

from envbuild.errors import ConflictError, EnvbuildError
from envbuild.matrix.online.published import indexed, packages
from envbuild.matrix.skipped_releases import why_left_out
from envbuild.matrix.types import FrameworkTable, Matrix
from envbuild.resolve.request.parser import parse
from envbuild.resolve.resolution import resolve

LISTINGS = index_lists.every()


@pytest.fixture(scope="module")
def facts() -> Matrix:
    return FACTS


def framework(facts: Matrix, name: str) -> FrameworkTable:
    return next(table for table in facts.frameworks if table.name == name)


def device(table: FrameworkTable, project: str) -> list[str]:
    """The device or CUDA of all builds of a project, as words of a request; empty if the builds differ."""
    found = {v.cuda for release in table.releases for v in release.variants if v.package == project and not v.requirements}
    if len(found) != 1 or len(packages(table)) == 1:
        return []
    (cuda,) = found
    return [f"cuda=={cuda}" if cuda else "cpu"]


def requests(table: FrameworkTable, listing: Listing) -> Iterator[tuple[str, list[str]]]:
    """Each release, with a request that means only this release."""
    spelt = {Version(release.version): release.version for release in table.releases}
    words = device(table, listing.project)
    for version in listing.releases:
        yield version, [f"{table.name}==={spelt.get(Version(version), version)}", *words]


def test_every_project_that_rows_name_is_listed(facts: Matrix) -> None:
    named = {package for table in facts.frameworks for package in packages(table)}
    assert named <= {listing.project for listing in LISTINGS}


@pytest.mark.parametrize("listing", LISTINGS, ids=[listing.project for listing in LISTINGS])
def test_every_release_is_resolved_or_refused_with_a_reason_and_a_source(facts: Matrix, listing: Listing) -> None:
    table = framework(facts, listing.framework)
    unanswered = []
    for version, words in requests(table, listing):
        try:
            found = resolve(facts, parse(words, matrix=facts)).environment.frameworks[0]
            assert Version(found.version) == Version(version)
        except ConflictError as error:
            assert error.conflicts and error.hint, words
            assert all(each.reason and each.source.startswith(("https://", "http://", "pkg:")) for each in error.conflicts), (
                words
            )
        except EnvbuildError as error:
            unanswered.append(f"{' '.join(words)}: {error.message}")
    assert not unanswered


@pytest.mark.parametrize("listing", [each for each in LISTINGS if each.yanked], ids=lambda listing: listing.project)
def test_what_was_withdrawn_is_never_chosen_without_a_word(facts: Matrix, listing: Listing) -> None:
    table = framework(facts, listing.framework)
    own = {release.version for release in table.releases if any(v.package == listing.project for v in release.variants)}
    for version, words in requests(table, listing):
        if version in listing.yanked and version in own:
            try:
                found = resolve(facts, parse(words, matrix=facts))
            except ConflictError:
                continue
            assert any(re.search("yanked|withdr", warning) for warning in found.warnings), version


def test_a_rule_of_what_is_left_out_covers_something(facts: Matrix) -> None:
    for table in facts.frameworks:
        own = {Version(release.version) for release in table.releases}
        if not all(indexed(variant) for release in table.releases for variant in release.variants):
            continue  # rules of this framework may cover releases on other indexes
        projects = {listing for listing in LISTINGS if listing.framework == table.name or listing.project in packages(table)}
        without = {version for listing in projects for version in listing.releases if Version(version) not in own}
        for rule in (rule for rule in table.left_out if rule.origin.at.startswith("matrix/")):
            assert any(why_left_out([rule], version) for version in without), rule.origin.at
