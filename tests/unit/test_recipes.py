"""Recipes are read strictly, and all problems of all recipes are reported at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild import recipes
from envbuild.errors import InvalidInputError
from envbuild.workspace import Workspace

GOOD = """\
schema: 1
recipe: alpha
title: Alpha
requirements: [numpy, "six>=1.10,<2"]
apt: {runtime: [libgomp1], build: [gcc]}
env: {ALPHA_LOG: "1"}
large: ["vendor-*", "alpha"]
module: alpha.core
"""


def workspace(root: Path, texts: dict[str, str]) -> Workspace:
    """A workspace with these recipes."""
    (root / "images" / "partials").mkdir(parents=True)
    for name, text in texts.items():
        folder = root / "images" / "recipes" / name
        folder.mkdir(parents=True)
        (folder / "recipe.yaml").write_text(text)
        (folder / "install.j2").write_text(f"# {name}\n")
        (folder / "smoke.py").write_text("")
    return Workspace(root=root, output=root / "images", home=root / "home")


def test_load_reads_every_field(tmp_path: Path) -> None:
    found = recipes.load(workspace(tmp_path, {"alpha": GOOD}))
    assert found == {
        "alpha": recipes.Recipe(
            name="alpha",
            title="Alpha",
            requirements=("numpy", "six>=1.10,<2"),
            apt_runtime=("libgomp1",),
            apt_build=("gcc",),
            env={"ALPHA_LOG": "1"},
            large=("vendor-*", "alpha"),
            module="alpha.core",
        )
    }


def test_load_reports_the_problems_of_all_recipes_at_once_with_their_lines(tmp_path: Path) -> None:
    broken = GOOD.replace('ALPHA_LOG: "1"', "ALPHA_LOG: 1").replace("title: Alpha\n", "")
    other = GOOD.replace("recipe: alpha", "recipe: gamma") + "modul: x\n"
    with pytest.raises(InvalidInputError) as caught:
        recipes.load(workspace(tmp_path, {"alpha": broken, "beta": other}))
    problems = [str(problem) for problem in caught.value.problems]
    assert any("alpha/recipe.yaml:5" in text and "quote it" in text for text in problems)
    assert any("alpha/recipe.yaml" in text and "title is missing" in text for text in problems)
    assert any("beta/recipe.yaml:2" in text and "name of the folder" in text for text in problems)
    assert any("beta/recipe.yaml:9" in text and "did you mean module" in text for text in problems)
    assert len(problems) == 4


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[libgomp1]", '["lib gomp"]'),
        ("[libgomp1]", '["$(id)"]'),
        ("[libgomp1]", '["-oDebug=1"]'),
        ("ALPHA_LOG", "alpha-log"),
        ("ALPHA_LOG", '"A\\nUSER root"'),
        ('"vendor-*"', '"../x"'),
        ("alpha.core", '"alpha; import os"'),
        ("numpy", '"numpy @ https://x.example/n.whl"'),
        ("schema: 1", "schema: 2"),
    ],
)
def test_load_refuses_values_of_another_form(tmp_path: Path, old: str, new: str) -> None:
    assert old in GOOD
    with pytest.raises(InvalidInputError):
        recipes.load(workspace(tmp_path, {"alpha": GOOD.replace(old, new)}))


def test_load_names_the_file_that_a_recipe_lacks(tmp_path: Path) -> None:
    place = workspace(tmp_path, {"alpha": GOOD, "beta": GOOD.replace("recipe: alpha", "recipe: beta")})
    (place.recipes / "alpha" / "recipe.yaml").unlink()
    (place.recipes / "beta" / "install.j2").unlink()
    (place.recipes / "beta" / "smoke.py").unlink()
    with pytest.raises(InvalidInputError) as caught:
        recipes.load(place)
    assert [problem.where for problem in caught.value.problems] == [
        "images/recipes/alpha/recipe.yaml",
        "images/recipes/beta/smoke.py",
    ]
    assert "without it the smoke test cannot train" in str(caught.value.problems[1])


def test_a_folder_that_begins_with_an_underscore_is_no_recipe(tmp_path: Path) -> None:
    place = workspace(tmp_path, {"alpha": GOOD, "_skeleton": GOOD})
    assert list(recipes.load(place)) == ["alpha"]
    assert list(recipes.templates(place)) == ["recipes/alpha/install.j2"]


def test_templates_are_named_by_their_place_below_images(tmp_path: Path) -> None:
    place = workspace(tmp_path, {"alpha": GOOD})
    (place.partials / "os.j2").write_text("FROM x\n")
    (place.partials / "notes.txt").write_text("not a template\n")
    assert recipes.templates(place) == {"partials/os.j2": "FROM x\n", "recipes/alpha/install.j2": "# alpha\n"}


def test_templates_that_are_not_text_are_an_error_of_ours(tmp_path: Path) -> None:
    place = workspace(tmp_path, {"alpha": GOOD})
    (place.partials / "os.j2").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidInputError, match=r"os\.j2"):
        recipes.templates(place)


def test_some_recipes_are_read_without_the_others(tmp_path: Path) -> None:
    place = workspace(tmp_path, {"alpha": GOOD, "beta": GOOD})  # the text of beta says alpha, which is refused
    whole = recipes.load_some(place, ["alpha", "gamma"])
    assert list(whole) == ["alpha"]
    with pytest.raises(InvalidInputError, match="beta"):
        recipes.load_some(place, ["alpha", "beta"])
