"""For each check of the guest some test makes it fail or warn, so no check without such a test can be added."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from envbuild.smoke import explain

HERE = Path(__file__).parent
BAD = {"fail", "warn", "inconclusive"}


def _tests(source: Path) -> Iterator[tuple[str, set[str]]]:
    """Each test of a file, with the texts in it and in its parameters.

    The texts of a table (a name in capitals) count for tests that use the table.
    """
    tree = ast.parse(source.read_text(encoding="utf-8"))
    tables = {
        node.targets[0].id: _words(node)
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id.isupper()
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
            yield node.name, _words(node).union(*(tables[name] for name in names & tables.keys()))


def _words(node: ast.AST) -> set[str]:
    """The texts in a node, and `fail` if the node asks a report which checks failed."""
    found = {each.value for each in ast.walk(node) if isinstance(each, ast.Constant) and isinstance(each.value, str)}
    asks = any(isinstance(each, ast.Attribute) and each.attr == "failed" for each in ast.walk(node))
    return found | ({"fail"} if asks else set())


@pytest.fixture(scope="module")
def planted() -> dict[str, list[str]]:
    """Check → the tests that mention it together with a failing status."""
    found: dict[str, list[str]] = {}
    for source in sorted([*HERE.glob("test_*.py"), *(HERE / "inside").glob("check_*.py")]):
        for name, words in _tests(source):
            for key in words & explain.TEXTS.keys() if words & BAD else ():
                found.setdefault(key, []).append(f"{source.name}::{name}")
    return found


@pytest.mark.parametrize("key", sorted(explain.TEXTS))
def test_some_test_makes_it_fail_or_warn(planted: dict[str, list[str]], key: str) -> None:
    assert planted.get(key), f"no test plants a fault that {key} must catch"


def test_the_document_lists_every_check_by_its_title() -> None:
    text = (HERE.parents[1] / "docs/reference/checks.md").read_text()
    assert re.findall(r"^\| `([A-Z]+)` \| (.*) \|$", text, re.MULTILINE) == [
        (key, title) for key, (title, _) in explain.TEXTS.items()
    ]
