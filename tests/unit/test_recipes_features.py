"""Packages that some releases get in addition: a compiler, if programs compile at run time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from lock_universe import framework
from test_recipes import GOOD, workspace

from envbuild import recipes
from envbuild import workspace as workspaces
from envbuild.errors import InvalidInputError
from envbuild.matrix.reading.loader import load_files
from envbuild.recipes import Recipe
from envbuild.resolve.request.parser import parse
from envbuild.resolve.resolution import resolve

FEATURE = """\
features:
  compile: {when: "alpha>=2", requirements: [setuptools, numpy], apt: [g++, libgomp1]}
"""


def recipe(tmp_path: Path, text: str = FEATURE) -> Recipe:
    return recipes.load(workspace(tmp_path, {"alpha": GOOD + text}))["alpha"]


@pytest.mark.parametrize(
    ("version", "options", "has_it"),
    [
        ("1.13.1", {}, False),
        ("2.0", {}, True),
        ("2.1.0+cu118", {}, True),
        ("3.0rc1", {}, True),
        ("2.0", {"compile": "no"}, False),
    ],
)
def test_a_feature_is_of_the_releases_within_its_condition_unless_the_row_says_no(
    tmp_path: Path, version: str, options: dict[str, str], has_it: bool
) -> None:
    found = recipe(tmp_path)
    alpha = replace(framework("alpha", version), options=options)
    assert found.requirements_of(alpha) == ("numpy", "six>=1.10,<2", *(["setuptools"] if has_it else []))
    assert found.apt_of(alpha) == ("libgomp1", *(["g++"] if has_it else []))


def test_the_condition_is_on_what_is_pinned_also_beside_the_framework(tmp_path: Path) -> None:
    found = recipe(tmp_path)
    assert "g++" in found.apt_of(framework("omega", "0.15", requirements=("omega==0.15", "alpha==2.0")))
    assert "g++" not in found.apt_of(framework("omega", "0.15", requirements=("omega==0.15", "alpha>=2.0")))


def test_what_a_feature_cannot_say_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError) as caught:
        recipe(tmp_path, "features: {compile: {aptt: [g++]}}\n")
    told = " ".join(problem.message for problem in caught.value.problems)
    assert "aptt" in told and "when" in told


ROOT = workspaces.find(str(Path(__file__).parents[2]))
FACTS = load_files(ROOT.matrix)
RECIPES = recipes.load(ROOT)


@pytest.mark.parametrize(
    ("request_text", "has_it"),
    [("mxnet===1.8.0", True), ("mxnet-1.8.0-cuda11.0", True), ("mxnet-1.8.0.post0", False), ("mxnet-1.9", False)],
)
def test_mxnet_1_8_0_gets_the_openblas_that_its_wheel_lacks(request_text: str, has_it: bool) -> None:
    environment = resolve(FACTS, parse([request_text], matrix=FACTS)).environment
    (chosen,) = environment.frameworks
    assert ("libopenblas-base" in RECIPES[chosen.recipe].apt_of(chosen)) == has_it


@pytest.mark.parametrize(
    ("request_text", "has_compiler"),
    [
        ("pytorch-1.13", False),
        ("pytorch-2.0", True),
        ("pytorch-2.15", True),
        ("pytorch-2.5-cuda11.8", True),
        ("torchvision-0.14", False),
        ("torchvision-0.16", True),
        ("torchaudio-2.1", True),
    ],
)
def test_images_of_pytorch_have_a_compiler_from_2_0_on(request_text: str, has_compiler: bool) -> None:
    environment = resolve(FACTS, parse([request_text], matrix=FACTS)).environment
    (chosen,) = environment.frameworks
    apt, asked = RECIPES[chosen.recipe].apt_of(chosen), RECIPES[chosen.recipe].requirements_of(chosen)
    assert ("g++" in apt, "python{python}-dev" in apt, "setuptools" in asked) == (has_compiler,) * 3
