"""Every kind of row has a recipe that renders: one name of each kind is rendered with a lock like a real one."""

from __future__ import annotations

from pathlib import Path

import pytest
from real_matrix import FACTS

from envbuild import recipes, workspace
from envbuild.lock.installers import BUILDERS, backend_of, path_of
from envbuild.model.environment import Environment, PrefixPlan
from envbuild.model.lock import Artifact, BaseLock, Lock, Prefix
from envbuild.render import render
from envbuild.resolve.build_list import list_builds
from envbuild.resolve.request.parser import parse
from envbuild.resolve.resolution import resolve

WORKSPACE = workspace.find(str(Path(__file__).parents[2]))
RECIPES, TEMPLATES = recipes.load(WORKSPACE), recipes.templates(WORKSPACE)


def kinds() -> dict[tuple[object, ...], str]:
    """A name for each case that templates can distinguish: the fields of the row, the place, and the Python."""
    said = {
        (table.name, release.version, variant.name): (*dict(variant.options), bool(variant.repository), variant.distribution)
        for table in FACTS.frameworks
        for release in table.releases
        for variant in release.variants
    }
    found: dict[tuple[object, ...], str] = {}
    for row in list_builds(FACTS):
        if row.name:
            kind = (row.framework, said[row.framework, row.version, row.variant], row.cuda is None, row.provider, row.system)
            found.setdefault(kind, row.name)
    return found


def artifact(name: str, version: str = "1.0", suffix: str = "-py3-none-any.whl") -> Artifact:
    file = f"{name}-{version}{suffix}"
    return Artifact(name=name, version=version, filename=file, sha256="ab" * 32, index="default", project=name, size=1)


def lock(environment: Environment) -> Lock:
    """A lock with a wheel of every framework on an index, and source distributions of a compiled project and of another one."""
    return Lock(
        environment=environment,
        base=BaseLock(image=environment.base.image, digest="sha256:" + "ab" * 32, bootstrap=None),
        prefixes=tuple(prefix(environment, plan) for plan in environment.plans()),
        missing=(),
    )


def prefix(environment: Environment, plan: PrefixPlan) -> Prefix:
    ours = environment.part(plan).frameworks
    compiled = {name for framework in ours for name in RECIPES[framework.recipe].compiled}
    wheels = [artifact(each.package, each.version) for each in ours if each.requirements and each.package not in compiled]
    sources = [artifact(name, suffix=".tar.gz") for name in (*compiled, "some-sdist")]
    return Prefix(
        name=plan.name, path=path_of(environment, plan), python=plan.python, frameworks=plan.frameworks,
        backend=backend_of(plan.python.version), artifacts=(*wheels, *sources), build_artifacts=tuple(map(artifact, BUILDERS)),
    )  # fmt: skip


@pytest.mark.parametrize("name", sorted(kinds().values()))
def test_a_name_of_each_kind_renders(name: str) -> None:
    environment = resolve(FACTS, parse([name], matrix=FACTS)).environment
    assert {framework.recipe for framework in environment.frameworks} <= set(RECIPES)
    assert "FROM" in render(lock(environment), RECIPES, TEMPLATES)["Dockerfile"]
