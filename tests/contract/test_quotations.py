"""Requirements that rows quote from packages are really in these packages. envbuild's own choices are not cited as upstream
facts.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from real_matrix import FACTS

from envbuild.matrix.online.differences import against_metadata
from envbuild.matrix.types import Matrix, Variant

sys.path.insert(0, str(Path(__file__).parents[1] / "integration"))
import index_requires


@pytest.fixture(scope="module")
def facts() -> Matrix:
    return FACTS


def test_rows_say_what_the_metadata_of_their_packages_says(facts: Matrix) -> None:
    found = against_metadata(facts, index_requires.load())
    assert not found, "\n".join(f"{each.at}: {each.framework} {each.version}: {each.message}" for each in found)


def test_every_build_that_brings_cuda_as_packages_is_compared(facts: Matrix) -> None:
    known = index_requires.load()
    missing = [
        f"{framework.name} {release.version} {variant.name}"
        for framework in facts.frameworks
        for release in framework.releases
        for variant in release.variants
        if variant.index == "default" and variant.cuda_libraries == "wheels" and not variant.upon
        if variant.origin.status != "known-bad" and (variant.requirement, release.version) not in known
    ]
    assert not missing, f"python tests/integration/index_requires.py reads them: {missing}"


def changed(facts: Matrix, framework: str, version: str, build: str, **fields: object) -> Matrix:
    def variant(row: Variant) -> Variant:
        return row._replace(**fields) if row.name == build else row  # type: ignore[arg-type]

    tables = []
    for table in facts.frameworks:
        releases = tuple(
            release._replace(variants=tuple(map(variant, release.variants))) if release.version == version else release
            for release in table.releases
        )
        tables.append(table._replace(releases=releases) if table.name == framework else table)
    return facts._replace(frameworks=tuple(tables))


@pytest.mark.parametrize(("field", "value"), [("minimum", "9.2"), ("below", "11"), ("exact", True)])
def test_another_range_than_the_package_says_is_found(facts: Matrix, field: str, value: object) -> None:
    table = next(each for each in facts.frameworks if each.name == "jax")
    row = next(each for each in table.releases if each.version == "0.5.3").variants[0]
    assert row.cudnn is not None
    wrong = changed(facts, "jax", "0.5.3", row.name, cudnn=row.cudnn._replace(**{field: value}))
    assert {each.kind for each in against_metadata(wrong, index_requires.load())} == {"cudnn"}


def test_a_choice_that_is_cited_as_a_fact_is_found(facts: Matrix) -> None:
    table = next(each for each in facts.frameworks if each.name == "jax")
    row = next(each for each in table.releases if each.version == "0.5.3").variants[0]
    cited = tuple(each._replace(source="pkg:pypi/jax-cuda12-plugin@0.5.3") for each in row.choices)
    wrong = changed(facts, "jax", "0.5.3", row.name, constraints=cited)
    messages = [each.message for each in against_metadata(wrong, index_requires.load())]
    assert len(messages) == len(cited) and all("as the source of nvidia-" in each for each in messages)


def test_no_choice_stands_among_the_constraints(facts: Matrix) -> None:
    """Rows limit the vendor's packages only in `choices`, or by a requirement that is quoted from upstream."""
    own = [
        f"{framework.name} {release.version}: {each.requirement}"
        for framework in facts.frameworks
        for release in framework.releases
        for variant in release.variants
        for each in (*variant.requirements, *variant.constraints)
        if re.match(r"nvidia-|cuda-toolkit", each.requirement) and not each.source
    ]
    assert not own
