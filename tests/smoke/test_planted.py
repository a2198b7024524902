"""Each check of the guest is made to fail or warn by some test: none that cannot fail may be added."""

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
    """Every test of a file with the words in it and in its parameters; a table in capitals counts for those that name it."""
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
    """Texts; and `fail` for what asks a report which checks failed."""
    found = {each.value for each in ast.walk(node) if isinstance(each, ast.Constant) and isinstance(each.value, str)}
    asks = any(isinstance(each, ast.Attribute) and each.attr == "failed" for each in ast.walk(node))
    return found | ({"fail"} if asks else set())


@pytest.fixture(scope="module")
def planted() -> dict[str, list[str]]:
    """Check → the tests that speak of it and of a bad end."""
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
