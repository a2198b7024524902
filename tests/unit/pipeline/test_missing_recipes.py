"""Frameworks with rows but without a recipe: they can be resolved, and every later command refuses them."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild.errors import InvalidInputError
from envbuild.pipeline import locking, resolving
from envbuild.pipeline.constraints import Constraints
from envbuild.pipeline.tools import Tools
from envbuild.workspace import Workspace

MATRIX = """\
schema: 1
policy: {dependency_margin_days: 60, python_from: [distribution]}
include: [systems.yaml, with.yaml, without.yaml]
"""
SYSTEMS = """\
defaults: {source: "https://example.org/systems", checked: "2026-01-01"}
systems:
  - {name: plain1, family: plain, version: "1", codename: one, image: "plain:1", glibc: "2.31", released: "2020-01-01",
     pythons: [{version: "3.9", packages: [python3], executable: /usr/bin/python3.9}]}
pythons:
  - {version: "3.9", released: "2020-01-01"}
"""
FRAMEWORK = """\
defaults: {{source: "https://example.org/{name}", checked: "2026-01-01"}}
framework: {{name: {name}, title: {title}, short: {name}, aliases: [{name}], recipe: {name}}}
series:
  - series: "1.2"
    variants:
      cpu: {{package: {name}, python: ["3.9"], cuda_libraries: none, glibc: "2.17"}}
    releases:
      - {{version: "1.2.0", released: "2020-01-01"}}
"""
RECIPE = """\
schema: 1
recipe: with
title: With
requirements: [numpy]
module: with_it
"""


@pytest.fixture
def tools(tmp_path: Path) -> Tools:
    root = tmp_path / "root"
    folder = root / "images" / "recipes" / "with"
    folder.mkdir(parents=True)
    (folder / "recipe.yaml").write_text(RECIPE)
    (folder / "install.j2").write_text("")
    (folder / "smoke.py").write_text("")
    (root / "matrix.yaml").write_text(MATRIX)
    (root / "systems.yaml").write_text(SYSTEMS)
    for name in ("with", "without"):
        (root / f"{name}.yaml").write_text(FRAMEWORK.format(name=name, title=name.title()))
    return Tools(Workspace(root=root, output=tmp_path / "out", home=tmp_path / "home"))


def test_planning_needs_no_recipe(tools: Tools) -> None:
    resolution = resolving.resolve_request(tools, ["without-1.2"], Constraints())
    assert resolution.environment.name == "without-1.2.0-cpu-py39-plain1"


def test_what_has_a_recipe_goes_on(tools: Tools) -> None:
    assert resolving.resolve_buildable(tools, ["with-1.2"], Constraints()).environment.frameworks[0].recipe == "with"


def test_what_has_none_is_refused_with_those_that_have(tools: Tools) -> None:
    with pytest.raises(InvalidInputError) as caught:
        resolving.resolve_buildable(tools, ["without-1.2"], Constraints())
    assert (caught.value.code, caught.value.exit_code) == ("no-recipe", 5)
    assert "The matrix has without 1.2.0" in caught.value.message
    assert caught.value.message.endswith("Frameworks with recipes: With.")


def test_locking_refuses_it_by_itself(tools: Tools) -> None:
    environment = resolving.resolve_request(tools, ["without-1.2"], Constraints()).environment
    with pytest.raises(InvalidInputError) as caught:
        locking.lock_environment(tools, environment)
    assert caught.value.code == "no-recipe"
