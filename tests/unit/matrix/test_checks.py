"""`matrix check` with planted faults: each kind is reported at its row, and all are reported in one run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml

from envbuild.cli import frame
from envbuild.errors import InvalidInputError
from envbuild.matrix import checks, consistency
from envbuild.matrix.reading.loader import compile_matrix, read_sources

TOY = Path(__file__).parents[2] / "golden" / "toy" / "matrix.yaml"
SOURCES = {name: content.decode() for name, content in read_sources(TOY).items()}
PLANTED = yaml.safe_load((Path(__file__).parents[1] / "data" / "matrix_faults.yaml").read_text())
FAULTS: dict[str, dict[str, str]] = {item["fault"]: item for item in PLANTED}
TOGETHER = [
    "a CUDA that the matrix lacks",
    "a repository that the matrix lacks",
    "an interval of nothing",
    "a driver that promises too much",
    "a name of two GPUs",
    "Pythons that no system carries",
]


def told(sources: dict[str, str]) -> list[str]:
    try:
        found = compile_matrix({name: text.encode() for name, text in sources.items()})
    except InvalidInputError as error:
        return [str(problem) for problem in error.problems]
    return [str(problem) for problem in checks.check(found)]


def planted(*kinds: str) -> dict[str, str]:
    sources = dict(SOURCES)
    for kind in kinds:
        fault = FAULTS[kind]
        file, text = fault["file"], fault["text"]
        assert text in sources[file], kind
        sources[file] = sources[file].replace(text, fault["instead"], 1)
    return sources


@pytest.mark.parametrize("kind", FAULTS)
def test_each_fault_is_told_at_its_place(kind: str) -> None:
    fault = FAULTS[kind]
    found = [line for line in told(planted(kind)) if fault["words"] in line]
    assert found, told(planted(kind))
    assert all(line.split(":")[1].isdecimal() for line in found)
    assert any(line.startswith(fault.get("at", fault["file"]) + ":") for line in found), found


@pytest.mark.parametrize(
    ("text", "instead"),
    [
        ('{version: "1.4.0", released: "2017-11-02"}', '{version: 1.4, released: "2017-11-02"}'),
        ('{version: "1.4.0", released: "2017-11-02"}', '{version: "1.4.0", released: "2017-11-31"}'),
        ('upon: {widget: "1.4.0"}', 'upon: {wigdet: "1.4.0"}'),
    ],
)
def test_what_follows_of_a_refused_field_is_not_told(text: str, instead: str) -> None:
    standing = (
        'defaults: {source: toy, checked: "2026-11-21"}\n'
        "framework: {name: above, title: A, short: ab, aliases: [ab], recipe: r}\n"
        'series: [{series: "1.0", upon: {widget: "1.4.0"}, package: above,\n'
        '  releases: [{version: "1.0", released: "2018-01-01"}]}]\n'
    )
    sources = {**SOURCES, "above.yaml": standing} if "upon" in text else SOURCES
    (problem,) = told({name: content.replace(text, instead, 1) for name, content in sources.items()})
    assert "no variant" not in problem


def test_a_python_of_no_row_is_told_where_it_is_handed_down() -> None:
    name = "matrix/frameworks/widget.yaml"
    text = SOURCES[name].replace('  - series: "1.4"\n', '  - series: "1.4"\n    python: ["9.9"]\n', 1)
    assert told({**SOURCES, name: text}) == [f"{name}:17: series[0].python: the matrix has no Python 9.9"]


def test_one_problem_is_one_and_what_comes_later_is_said() -> None:
    with pytest.raises(InvalidInputError) as caught:
        compile_matrix({name: text.encode() for name, text in planted("a title without words").items()})
    assert caught.value.message.startswith("The matrix has a problem: matrix/hardware.yaml:4: ")
    assert "whether they contradict each other" in caught.value.hint


def test_the_toy_matrix_has_none() -> None:
    assert told(SOURCES) == []


def test_all_are_told_in_one_run_as_text_and_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(TOY.parent, tmp_path, dirs_exist_ok=True)
    for name, text in planted(*TOGETHER).items():
        (tmp_path / name).write_text(text)
    (tmp_path / "images").mkdir(exist_ok=True)
    assert frame.run(["--root", str(tmp_path), "matrix", "check"]) == 5
    text = capsys.readouterr().err
    assert frame.run(["--root", str(tmp_path), "--json", "matrix", "check"]) == 5
    problems = json.loads(capsys.readouterr().out)["error"]["problems"]
    for kind in TOGETHER:
        words = FAULTS[kind]["words"]
        assert words in text
        assert any(words in problem["message"] and problem["line"] and problem["where"] for problem in problems)


def test_a_recipe_that_does_not_exist_is_told_where_there_are_recipes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(TOY.parent, tmp_path, dirs_exist_ok=True)
    names = {
        framework.recipe for framework in compile_matrix({name: text.encode() for name, text in SOURCES.items()}).frameworks
    }
    for name in names:
        (tmp_path / "images" / "recipes" / name).mkdir(parents=True)
        (tmp_path / "images" / "recipes" / name / "recipe.yaml").write_text("")
    assert frame.run(["--root", str(tmp_path), "matrix", "check"]) == 0
    (tmp_path / "images" / "recipes" / min(names) / "recipe.yaml").unlink()
    assert frame.run(["--root", str(tmp_path), "matrix", "check"]) == 5
    assert f"there is no recipe '{min(names)}' in images/recipes" in capsys.readouterr().err


def test_facts_that_no_build_uses_are_told_and_are_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    found = compile_matrix({name: text.encode() for name, text in SOURCES.items()})
    lines = [str(problem) for problem in consistency.unused(found)]
    assert any("no build runs on Python 3.4" in line for line in lines)
    assert frame.run(["--root", str(TOY.parent), "-v", "matrix", "check"]) == 0
    assert lines[0] in capsys.readouterr().out
    assert frame.run(["--root", str(TOY.parent), "--json", "matrix", "check"]) == 0
    assert len(json.loads(capsys.readouterr().out)["unused"]) == len(lines)
