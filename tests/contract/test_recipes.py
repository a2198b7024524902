"""Every recipe on disk is complete, valid by its schema, and known to the matrix."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from envbuild import recipes, workspace

ROOT = Path(__file__).parents[2]
WORKSPACE = workspace.find(str(ROOT))
FOLDERS = sorted(path for path in WORKSPACE.recipes.iterdir() if path.is_dir() and not path.name.startswith("_"))
TEMPLATES = recipes.templates(WORKSPACE)
LONG_FUNCTION = 3  # statements


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_recipe_has_its_three_files(folder: Path) -> None:
    assert {path.name for path in folder.iterdir() if path.is_file()} >= {"recipe.yaml", "smoke.py", "README.md"}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_recipe_is_valid_by_the_published_schema(folder: Path) -> None:
    schema = json.loads((ROOT / "envbuild" / "schemas" / "recipe.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(yaml.safe_load((folder / "recipe.yaml").read_text()), schema)


def test_loader_and_schema_know_the_same_keys() -> None:
    schema: dict[str, Any] = json.loads((ROOT / "envbuild" / "schemas" / "recipe.json").read_text())
    code = (ROOT / "envbuild" / "recipes.py").read_text().partition("def _feature")[0]
    asked = set(re.findall(r'table\.(?:text|texts|table|named_tables|integer|own_name)\("(\w+)"', code)) | set(
        re.findall(r"table\.(schema)\(", code)
    )
    assert asked == set(schema["properties"])


def test_every_recipe_loads_and_asks_for_what_the_guest_needs() -> None:
    found = recipes.load(WORKSPACE)
    assert sorted(found) == [folder.name for folder in FOLDERS]
    for recipe in found.values():
        assert any(re.match(r"numpy\b", requirement) for requirement in recipe.requirements), recipe.name


@pytest.mark.parametrize(("used", "package"), [(".h5'", "h5py"), ("pkl_utils", "setuptools")])
def test_what_an_adapter_saves_with_is_asked_for_where_its_framework_does_not(used: str, package: str) -> None:
    found = recipes.load(WORKSPACE)
    users = [
        recipe
        for recipe in found.values()
        if any(used in (WORKSPACE.recipes / name / "smoke.py").read_text() for name in (recipe.name, *recipe.adapters))
    ]
    assert users
    assert [recipe.name for recipe in users if package not in recipe.requirements] == []


def test_every_recipe_is_of_a_framework_of_the_matrix() -> None:
    """A framework may have rows before it has a recipe. A recipe without a framework would never be used."""
    files = sorted((ROOT / "matrix" / "frameworks").glob("*.yaml"))
    wanted = {yaml.safe_load(path.read_text())["framework"]["recipe"] for path in files}
    assert {folder.name for folder in FOLDERS} <= wanted


@pytest.mark.parametrize("name", sorted(TEMPLATES))
def test_templates_compare_no_versions(name: str) -> None:
    """A version threshold belongs into a row of the matrix; templates branch on fields of the lock."""
    for expression in re.findall(r"\{[{%](.*?)[%}]\}", TEMPLATES[name], flags=re.S):
        assert not re.search(r"version\S*\s*(<|>|==|!=|in\b)|startswith|\bsplit\(", expression), expression


def test_the_skeleton_is_a_recipe_once_it_has_a_name(tmp_path: Path) -> None:
    """As in the tutorial: copy the folder and insert a name. The copy must be a valid recipe with a complete adapter."""
    skeleton = WORKSPACE.recipes / "_skeleton"
    copy = tmp_path / "images" / "recipes" / "exemplar"
    copy.mkdir(parents=True)
    for path in skeleton.iterdir():
        (copy / path.name).write_text(path.read_text().replace("skeleton", "exemplar").replace("Skeleton", "Exemplar"))
    place = workspace.Workspace(root=tmp_path, output=tmp_path / "images", home=tmp_path)
    (tmp_path / "images" / "partials").mkdir()
    found = recipes.load(place)
    assert list(found) == ["exemplar"]
    assert (found["exemplar"].title, found["exemplar"].module) == ("Exemplar", "exemplar")
    contract = (ROOT / "docs" / "reference" / "adapter.md").read_text().partition("## Methods that every adapter has")[2]
    needed = re.findall(r"^\| `(\w+)\(", contract.partition("\n## ")[0], re.MULTILINE)
    assert len(needed) > 12
    adapter = (copy / "smoke.py").read_text()
    assert [name for name in needed if f"    def {name}(self" not in adapter] == []


def test_no_two_adapters_hold_the_same_function() -> None:
    """Code that several adapters need belongs into the smoke test; adapters contain only the differences."""
    places: dict[str, list[str]] = {}
    for source in sorted([*WORKSPACE.recipes.glob("*/smoke.py"), *(ROOT / "envbuild" / "smoke" / "adapters").glob("*.py")]):
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                body = node.body[1:] if ast.get_docstring(node) is not None else node.body
                if sum(isinstance(each, ast.stmt) for line in body for each in ast.walk(line)) >= LONG_FUNCTION:
                    text = "\n".join(map(ast.dump, [node.args, *body]))
                    places.setdefault(text, []).append(f"{source.relative_to(ROOT)}: {node.name}")
    assert [names for names in places.values() if len(names) > 1] == []
