"""Every committed lock pins all inputs of its build by sha256: the installers, pip, and on Debian each system package."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from envbuild import recipes, render, workspace
from envbuild.lock import gaps, installers
from envbuild.lock.lock_file import read
from envbuild.model.lock import Lock

PLACE = workspace.find(str(Path(__file__).parents[2]))
LOCKS = {path.parent.name: read(path) for path in sorted(PLACE.environments.glob("*/lock.json"))}
RECIPES, TEMPLATES = recipes.load(PLACE), recipes.templates(PLACE)
SHA256 = re.compile("[0-9a-f]{64}")
each_lock = pytest.mark.parametrize("lock", LOCKS.values(), ids=LOCKS)


@each_lock
def test_what_installs_packages_is_pinned(lock: Lock) -> None:
    tools = {tool.name: tool for tool in lock.tools}
    assert set(installers.tool_names(lock.prefixes)) == set(tools)
    assert "uv" in tools or all(prefix.backend == "pip" for prefix in lock.prefixes)
    pips = [prefix.pip for prefix in lock.prefixes]
    assert all(pip is not None and pip.name == "pip" for pip in pips)
    files = [*tools.values(), *(pip for pip in pips if pip), *(file for prefix in lock.prefixes for file in prefix.files)]
    assert [file.filename for file in files if not SHA256.fullmatch(file.sha256)] == []


def test_each_base_is_pinned_by_its_digest_or_made_of_pinned_packages() -> None:
    open_bases = [name for name, lock in LOCKS.items() if not (lock.base.digest or lock.base.bootstrap)]
    assert open_bases == []


@each_lock
def test_what_apt_installs_is_pinned_upon_debian_and_said_to_be_open_elsewhere(lock: Lock) -> None:
    said = {gap.what for gap in lock.missing}
    if lock.environment.system.family != "debian":
        assert lock.apt is None and gaps.APT_OF_IMAGE in said
        return
    assert lock.base.bootstrap is not None and lock.apt is not None and gaps.APT not in said
    plans = render.apt_plans(lock, RECIPES, TEMPLATES)
    assert [(step.name, step.asked, step.build_only) for step in lock.apt.steps] == [
        (plan.name, plan.asked, plan.build_only) for plan in plans
    ]
    packages = [*lock.base.bootstrap.packages, *lock.step_debs()]
    assert len(packages) > 50
    assert [each.name for each in packages if not (SHA256.fullmatch(each.sha256) and each.path and each.size)] == []
    for step in lock.apt.steps:
        here = {each.name for each in packages}
        assert {name.partition("=")[0] for name in step.asked} <= here
    snapshots = {url.split("/")[-2] for url in lock.apt.snapshots}
    assert {each.path.partition("/")[0] for each in packages} <= snapshots


@each_lock
def test_each_package_of_nvidias_has_a_hash_or_is_said_to_have_none(lock: Lock) -> None:
    base = lock.environment.base
    said = {gap.what for gap in lock.missing}
    for package in (*base.packages, *base.build_packages):
        assert SHA256.fullmatch(package.sha256) or f"sha256 of {package.name} {package.version}" in said
