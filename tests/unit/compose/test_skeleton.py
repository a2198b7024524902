"""The skeleton of a Dockerfile: all of its steps except those that install wheels."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from envbuild import recipes, render
from envbuild.errors import BuildError
from envbuild.lock import lock_file
from envbuild.model.lock import Lock
from envbuild.recipes import Recipe
from envbuild.workspace import find

NAMES = [
    "opencv-5.0.0.93-cpu-py311-debian12",
    "mxnet-1.6.0-cpu-py27-debian11",
    "chainer-4.3.1-cpu-py27-debian11",
    "tf-1.12.3-cuda9.0-py35-ubuntu16.04",
    "two-pythons-cpu",
    "cntk-2.7.post2-cpu-py27-debian11",
]


@pytest.fixture(scope="module")
def kitchen() -> tuple[Mapping[str, Recipe], Mapping[str, str]]:
    workspace = find()
    return recipes.load(workspace), recipes.templates(workspace)


def lock_of(name: str) -> Lock:
    return lock_file.read(find().lock_file(name))


def steps(dockerfile: str) -> list[str]:
    """The instructions, one per line."""
    joined = dockerfile.replace("\\\n", " ")
    return [" ".join(line.split()) for line in joined.splitlines() if line and not line.startswith("#")]


@pytest.mark.parametrize("name", NAMES)
def test_it_lacks_the_steps_that_install_wheels_and_no_others(
    kitchen: tuple[Mapping[str, Recipe], Mapping[str, str]], name: str
) -> None:
    lock = lock_of(name)
    whole = steps(render.render(lock, *kitchen)["Dockerfile"])
    skeleton = steps(render.skeleton(lock, *kitchen))
    installs = [step for step in whole if " pip-install " in step or " pip-install-built " in step]
    assert installs
    stages = {step.split()[-1] for step in whole if step.startswith("FROM ")} - {"packages"}
    large = {stage for stage in stages if f"requirements-{stage}.txt" in " ".join(installs)}
    left = [step for step in whole if step not in installs and not (step.startswith("FROM ") and step.split()[-1] in large)]
    assert [step for step in skeleton if not step.endswith(" AS packages")] == [
        step for step in left if not step.endswith(" AS packages")
    ]
    assert "AS packages" in " ".join(skeleton)


@pytest.mark.parametrize("name", ["horovod-0.28.1-cpu-py39-debian11", "caffe-1.0.0-cpu-py39-debian11"])
def test_an_image_whose_steps_need_the_wheels_is_refused_with_the_reason(
    kitchen: tuple[Mapping[str, Recipe], Mapping[str, str]], name: str
) -> None:
    with pytest.raises(BuildError, match="cannot be composed from its wheels: it compiles packages upon others") as caught:
        render.skeleton(lock_of(name), *kitchen)
    assert caught.value.code == "not-composable"
    assert f"`envbuild build {name} --builder docker`" in caught.value.hint
