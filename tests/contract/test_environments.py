"""The list of committed environments matches the folders, and the environments cover what the list says."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from envbuild import recipes, workspace
from envbuild.lock.lock_file import read
from envbuild.model.environment import Framework
from envbuild.model.lock import Lock
from envbuild.pipeline import committed

ROOT = Path(__file__).parents[2]
WORKSPACE = workspace.find(str(ROOT))
LISTED = committed.listed(WORKSPACE)
FOLDERS = {path.name for path in WORKSPACE.environments.iterdir() if path.is_dir()}
LOCKS = {name: read(WORKSPACE.lock_file(name)) for name in sorted(FOLDERS)}


def _add_ons(lock: Lock) -> list[Framework]:
    """The frameworks of the lock that are built for another one; their option `framework` names its recipe."""
    return [each for each in lock.environment.frameworks if "framework" in each.options]


def test_every_listed_environment_is_committed_and_every_committed_one_is_listed():
    assert sorted(set(LISTED) - FOLDERS) == [], "listed, yet not committed: envbuild lock --all"
    assert sorted(FOLDERS - set(LISTED)) == [], (
        "committed, yet not listed: add a line with the reason to images/environments.yaml"
    )


def test_reasons_are_short():
    assert [name for name, why in LISTED.items() if len(why) > 90] == []


def test_they_span_frameworks_years_cuda_versions_and_providers():
    environments = [lock.environment for lock in LOCKS.values()]
    frameworks = Counter(framework.name for each in environments for framework in each.frameworks)
    cudas = {each.cuda for each in environments if each.cuda}
    years = {framework.released[:4] for each in environments for framework in each.frameworks}
    assert len(LOCKS) >= 80
    found = {path.name for path in WORKSPACE.recipes.iterdir() if not path.name.startswith("_")}
    assert set(frameworks) >= {name.replace("_", "-") for name in found} - {"horovod"}
    assert len({cuda.partition(".")[0] for cuda in cudas}) >= 6
    assert {str(year) for year in range(2017, 2027)} <= years
    assert {each.base.provider for each in environments} >= {"distribution", "tag", "apt", "wheels"}


@pytest.mark.parametrize("lock", LOCKS.values(), ids=LOCKS)
def test_packages_are_of_the_right_kind(lock: Lock):
    """No project twice in a prefix, every file with its hash, and no CPU build beside a GPU build of the same framework."""
    for prefix in lock.prefixes:
        names = [artifact.name for artifact in prefix.artifacts]
        assert len(names) == len(set(names))
        assert all(len(artifact.sha256) == 64 for artifact in (*prefix.artifacts, *prefix.build_artifacts))
        assert not {"tensorflow", "tensorflow-gpu"} <= set(names)
        assert not {"tensorflow-cpu", "tensorflow"} <= set(names)


@pytest.mark.parametrize("name", [name for name, lock in LOCKS.items() if _add_ons(lock)])
def test_an_add_on_brings_the_system_libraries_of_its_base_framework(name: str):
    """The recipe of the base framework is not part of such an image, so the recipe of the add-on must name its packages."""
    lines = (WORKSPACE.environments / name / "Dockerfile").read_text().splitlines()
    installed = {word for line in lines if "apt-install" in line for word in line.split()}
    known = recipes.load(WORKSPACE)
    for each in _add_ons(LOCKS[name]):
        assert set(known[each.options["framework"]].apt_runtime) <= installed
