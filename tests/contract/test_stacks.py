"""Every stack in the repository is valid by its schema, has the name of its file, and is divided into the expected prefixes."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from real_matrix import FACTS

from envbuild import stacks, workspace
from envbuild.model.resolution import Resolution
from envbuild.resolve.answer_json import answer_json
from envbuild.resolve.recheck import recheck
from envbuild.resolve.request import names
from envbuild.resolve.stacks import departures, resolve_stack

ROOT = Path(__file__).parents[2]
WORKSPACE = workspace.find(str(ROOT))
STACKS = stacks.load(WORKSPACE)
SCHEMA: dict[str, Any] = json.loads((ROOT / "envbuild" / "schemas" / "stack.json").read_text())
ANSWER = jsonschema.Draft202012Validator(json.loads((ROOT / "envbuild" / "schemas" / "resolution.json").read_text()))


@functools.cache
def resolved(name: str) -> Resolution:
    return resolve_stack(FACTS, STACKS[name])


def test_there_are_stacks() -> None:
    assert STACKS


@pytest.mark.parametrize("path", sorted(WORKSPACE.stacks.glob("*.yaml")), ids=lambda path: path.stem)
def test_stack_is_valid_by_the_published_schema(path: Path) -> None:
    jsonschema.validate(yaml.safe_load(path.read_text()), SCHEMA)


def test_loader_and_schema_know_the_same_keys() -> None:
    code = (ROOT / "envbuild" / "stacks.py").read_text()
    asked = set(re.findall(r'table\.(?:text|texts|integer|mixed|tables|own_name)\(\s*"(\w+)"', code)) | set(
        re.findall(r"table\.(schema)\(", code)
    )
    member = SCHEMA["properties"]["frameworks"]["items"]["oneOf"][1]["properties"]
    assert asked == {*SCHEMA["properties"], *member, *member["apart"]["items"]["properties"]}


@pytest.mark.parametrize("name", sorted(STACKS))
def test_stack_resolves_on_the_machine_that_it_is_for(name: str) -> None:
    stack = STACKS[name]
    resolution = resolved(name)
    environment = resolution.environment
    ANSWER.validate(answer_json(resolution, ()))
    assert environment.name == name
    assert len(environment.frameworks) == len(stack.members)
    assert sorted(name for plan in environment.plans() for name in plan.frameworks) == sorted(
        framework.name for framework in environment.frameworks
    )
    assert recheck(FACTS, environment) == []
    assert departures(FACTS, stack, environment) == []


@pytest.mark.parametrize("name", sorted(STACKS))
def test_each_further_prefix_says_what_forced_it(name: str) -> None:
    resolution = resolved(name)
    first, *further = resolution.environment.plans()
    for plan in further:
        why = [reason for reason in resolution.reasons if reason.choice.startswith(f"{plan.name}: ")]
        assert any(reason.because.startswith(f"cannot be in the prefix {first.name}: ") for reason in why)


@pytest.mark.parametrize("name", sorted(STACKS))
def test_a_name_means_the_stack_alone(name: str) -> None:
    """If the name of a stack began with that of a framework, one word could mean two requests."""
    assert names.find_framework(FACTS, name) is None
