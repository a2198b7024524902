"""The files around the program are right: targets exist, versions agree, hooks run."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml

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
