"""The files around the program are right: targets exist, versions agree, hooks run."""

from __future__ import annotations

import importlib.metadata
import re
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"^([a-z-]+):.*## ", MAKEFILE, re.MULTILINE))
SAYING_MAKE = [
    ".github/workflows/check.yml",
    ".github/PULL_REQUEST_TEMPLATE.md",
    ".gitlab-ci.yml",
    "CONTRIBUTING.md",
    "README.md",
    "docs/how-to/release.md",
]


@pytest.mark.parametrize("name", SAYING_MAKE)
def test_every_make_target_that_is_named_exists(name: str) -> None:
    text = (ROOT / name).read_text()
    named = set(re.findall(r"(?:^|`|run: |- )make ([a-z][a-z-]*)(?=[\s`',;)]|$)", text, re.MULTILINE))
    assert named, "nothing is named: the pattern is wrong"
    assert named <= TARGETS


def test_versions_agree() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert (citation["version"], citation["license"]) == (project["version"], project["license"])


def test_every_package_that_developing_installs_has_one_version() -> None:
    """Without this, a new release of any of them stops continuous integration: pytest 9.2 did."""
    lines = (ROOT / ".ci/constraints.txt").read_text().splitlines()
    constraints = [Requirement(line) for line in lines if not line.startswith("#")]
    versions = {canonicalize_name(each.name): str(each.specifier).removeprefix("==") for each in constraints}
    left, seen = [Requirement("envbuild[dev]")], set[str]()
    while left:
        wanted = left.pop()
        name = canonicalize_name(wanted.name)
        if name not in ("envbuild", "pip"):  # a virtual environment comes with its pip
            assert name in versions and wanted.specifier.contains(versions[name], prereleases=True), (
                f"{wanted}: `make constraints`"
            )
        if str(wanted) not in seen:
            seen.add(str(wanted))
            needs = map(Requirement, importlib.metadata.requires(wanted.name) or ())
            left += [need for need in needs if _is_needed(need, wanted.extras or {""})]
    assert len(seen) > 60


def _is_needed(requirement: Requirement, extras: set[str]) -> bool:
    return requirement.marker is None or any(requirement.marker.evaluate({"extra": extra}) for extra in extras)


def test_the_license_is_the_declared_one() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License" in text and "Version 2.0, January 2004" in text


@pytest.mark.parametrize("path", sorted((ROOT / ".github").rglob("*.yml")), ids=lambda path: path.name)
def test_templates_and_workflows_are_whole(path: Path) -> None:
    content = yaml.safe_load(path.read_text())
    if "ISSUE_TEMPLATE" in path.parts:
        assert {"name", "description", "body"} <= content.keys()
        assert all(field["attributes"]["label"] for field in content["body"])
    else:
        steps = [step for job in content["jobs"].values() for step in job["steps"]]
        assert any(step.get("run") == "make test" for step in steps)


def test_hooks_before_a_commit_need_nothing_but_this_checkout() -> None:
    content = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    assert [repository["repo"] for repository in content["repos"]] == ["local"]
    for hook in content["repos"][0]["hooks"]:
        assert hook["language"] == "system"
        assert hook["entry"].startswith(".venv/bin/")
