"""Environments of several frameworks, over many combinations: their common properties, and the speed of the hard ones."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from envbuild import codec
from envbuild.errors import ConflictError, EnvbuildError
from envbuild.matrix.package_pins import contradiction
from envbuild.matrix.reading.loader import compile_matrix, load_files, read_sources
from envbuild.matrix.types import Pairs, Release, Variant
from envbuild.model.environment import Environment
from envbuild.resolve.build_list import Filters, list_builds
from envbuild.resolve.explanation import explain
from envbuild.resolve.recheck import recheck
from envbuild.resolve.request.parser import parse
from envbuild.resolve.resolution import resolve
from envbuild.resolve.search import addon_builds

ENTRY = Path(__file__).parents[3] / "golden" / "toy" / "several.yaml"
TOY = load_files(ENTRY)
PARTS = ["wd-1.12", "wd-2", "lantern", "lantern-1.0-cuda8", "shade", "shutter", "plain", "plain-2", "crate-1.1", "gizmo-3.1"]


def ask(*texts: str, **options: str) -> Any:
    return resolve(TOY, parse(texts, matrix=TOY, **options))


def every() -> list[Environment]:
    """The environments of all pairs and triples of frameworks that go together."""
    found: dict[str, Environment] = {}
    for size in (2, 3):
        for parts in itertools.combinations(PARTS, size):
            if len({part.split("-")[0] for part in parts}) < size:
                continue
            try:
                environment = ask("+".join(parts)).environment
            except EnvbuildError:
                continue
            found[environment.name] = environment
    return list(found.values())


EVERY = every()


def test_the_combinations_are_of_all_kinds() -> None:
    assert len(EVERY) > 30
    assert any(framework.cuda for each in EVERY for framework in each.frameworks)
    assert {each.cuda is None for each in EVERY} == {True, False}
    assert any(each.cuda_of(each.frameworks[0]) is None and each.cuda for each in EVERY)


@pytest.mark.parametrize("environment", EVERY, ids=[each.name for each in EVERY])
def test_a_name_means_itself_and_is_accepted(environment: Environment) -> None:
    assert ask(environment.name).environment == environment
    assert recheck(TOY, environment) == []
    assert codec.decode(Environment, json.loads(codec.dumps(environment)), "it") == environment


def test_one_set_has_one_name() -> None:
    for environment in EVERY:
        texts = [f"{each.name}=={each.version}" for each in environment.frameworks]
        cuda = {each.name: environment.cuda_of(each) for each in environment.frameworks}
        one = len(set(cuda.values()) - {None}) <= 1
        device = [] if not one else [f"cuda=={environment.cuda}" if environment.cuda else "cpu"]
        for order in itertools.permutations(texts):
            words = [*order, *device, f"python=={environment.python.version}", environment.system.name]
            found = ask(*words).environment
            assert [each.version for each in found.frameworks] == [each.version for each in environment.frameworks]
            assert found == environment or not one, (words, environment.name)


def test_what_an_environment_holds_fits_all_its_builds() -> None:
    for environment in EVERY:
        tables = {table.name: table for table in TOY.frameworks}
        held: dict[str, tuple[str, str]] = {}
        for framework in environment.frameworks:
            release = next(each for each in tables[framework.name].releases if each.version == framework.version)
            variant = next(each for each in release.variants if each.name == framework.variant)
            assert environment.python.version in variant.python
            assert variant.cuda == (environment.cuda_of(framework) or "")
            assert variant.cuda_libraries != "system" or variant.cuda == environment.cuda
            for name, *build in ((framework.name, framework.version, framework.variant), *variant.upon):
                assert held.setdefault(name, (build[0], build[1])) == (build[0], build[1])


def test_a_decision_that_the_facts_left_behind() -> None:
    environment = ask("wd-1.12+shade+crate-1.1").environment
    sources = read_sources(ENTRY)

    def against(name: str, old: str, new: str) -> list[str]:
        assert old in sources[name].decode()
        changed = compile_matrix({**sources, name: sources[name].replace(old.encode(), new.encode())})
        return [f"{each.row}: {each.reason}" for each in recheck(changed, environment)]

    assert any("is based on widget 1.12.0" in each for each in against("several/shade.yaml", "1.12.3", "1.12.0"))
    assert any("needs cudnn" in each or "no longer accepts" in each for each in against("several/crate.yaml", '"7.5"', '"7.9"'))
    requirements = ', requirements: ["helper>=3"]}\n      - {version: "1.2"'
    assert any("helper" in each for each in against("several/crate.yaml", '}\n      - {version: "1.2"', requirements))
    elsewhere = replace(environment, cuda="11.0")
    assert any("no longer has a build" in each.reason for each in recheck(TOY, elsewhere))


def test_joined_frameworks_are_listed_one_after_the_other() -> None:
    names = [row.framework for row in list_builds(TOY, Filters(framework="plain+crate-1.1", cuda="cpu"))]
    assert names == ["plain", "plain", "crate"]


def test_single_environments_say_nothing_of_a_cuda_of_their_own() -> None:
    text = codec.dumps(ask("wd-1.12-cuda9").environment)
    assert '"cuda": "9.0"' in text and text.count('"cuda"') == 1
    several = codec.dumps(ask("wd-1.12-cuda9+lantern-1.0-cuda8").environment)
    assert several.count('"cuda"') == 2


@pytest.mark.parametrize(
    ("asked", "possible"),
    [
        (["<3", ">=3"], False),
        (["<3", ">=2"], True),
        (["<3", ">2.9"], True),
        (["==1.2.*", "!=1.2.0"], True),
        (["==1.2.*", ">=1.3"], False),
        (["~=1.4", "<2"], True),
        (["==1.0", "==1.0+cu90"], True),
        (["==1.0+cpu", "==1.0+cu90"], False),
        ([">=1", "<=1", "!=1"], False),
        (["", "<3"], True),
        (["no version", "<3"], True),
    ],
)
def test_requirements_that_can_be_met_together(asked: list[str], possible: bool) -> None:
    pins = [("helper", "", versions) for versions in asked]
    assert contradiction(pins, "3.6") == ("" if possible else "helper")


def test_a_requirement_counts_on_its_pythons_alone() -> None:
    pins = [("helper", ">=3.6", "<3"), ("helper", "", ">=3")]
    assert contradiction(pins, "3.6") == "helper"
    assert contradiction(pins, "3.5") == ""


def test_alternatives_of_a_joint_refusal_work() -> None:
    refused = 0
    for parts in itertools.permutations(["wd-1.12.0", "lantern-2", "shade-2.2.4", "crate-2", "plain-2", "gizmo"], 3):
        for options in ({}, {"driver": "384.130"}, {"python": "3.5"}):
            try:
                ask("+".join(parts), **options)
            except ConflictError as error:
                refused += 1
                assert error.conflicts and all(each.row and each.reason and each.source for each in error.conflicts)
                assert error.alternatives or options, parts
                for each in error.alternatives:
                    kept = {} if "needs driver" in each.changes else {k: v for k, v in options.items() if k == "driver"}
                    assert ask(each.name, **kept).environment.name == each.name
    assert refused > 50


def test_where_the_builds_for_gpus_clash_the_choice_of_the_cpu_says_over_what() -> None:
    reasons = {reason.choice: reason.because for reason in ask("gizmo-3.1+crate-3.1").reasons}
    assert reasons["package crate==3.1"] == (
        "the CPU build: no GPU build of it works together with a GPU build of Gizmo 3.1.0: crate 3.1 cu124 gets cudnn "
        ">=9.8,<10 from nvidia-cudnn-cu12; gizmo 3.1.0 cu124 gets cudnn 9.1.0 from nvidia-cudnn-cu12"
    )


def test_builds_upon_another_are_made_once_for_each_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def count(pairs: Pairs, below: Release) -> Iterator[Variant]:
        made.append((id(pairs), below.version))
        return make(pairs, below)

    make = addon_builds.upon
    monkeypatch.setattr(addon_builds, "upon", count)
    table = load_files(ENTRY)
    for _ in range(2):
        for text in ("shade+wd", "wd+shade-2.2", "shade wd shutter"):
            explain(table, parse([text], matrix=table))
    assert made
    assert len(made) == len(set(made))
