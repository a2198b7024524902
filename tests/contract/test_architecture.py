"""The architecture page names every module, and shows the order of imports that the import contracts fix."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "envbuild"
PAGE = (ROOT / "docs" / "architecture.md").read_text()
# The folders of the lists whose first word is not the name of a package.
FOLDERS = {"outputs": "compose/outputs"}


def blocks(heading: str) -> list[str]:
    """The code blocks in the section ``heading``."""
    section = PAGE.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return re.findall(r"^```text\n(.*?)^```", section, re.MULTILINE | re.DOTALL)


def words(cell: str) -> list[str]:
    """The modules and folders in the first column of a line."""
    return [each.strip().rstrip("/") for each in cell.split("·")]


def lists() -> dict[str, list[list[str]]]:
    """Map each package in the lists to its lines, each with the modules that it names."""
    found: dict[str, list[list[str]]] = {}
    package = ""
    for line in "".join(blocks("What is in each package")).splitlines():
        match = re.fullmatch(r"(\w*) +(\S.*?)  .*", line)
        assert match, line
        package = match[1] or package
        found.setdefault(package, []).append(words(match[2]))
    return found


def modules(folder: Path) -> set[str]:
    """The modules and packages in ``folder``."""
    names = {path.stem for path in folder.glob("*.py")} | {path.parent.name for path in folder.glob("*/__init__.py")}
    return names - {"__init__", "__main__"}


def contracts() -> Iterator[tuple[str, list[set[str]]]]:
    """The packages whose modules have a contract that is exhaustive, with their layers."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    for each in settings["contracts"]:
        for container in each.get("containers", ()) if each.get("exhaustive") else ():
            yield container, [{name.strip() for name in layer.split("|")} for layer in each["layers"]]


# The packages with a list of this form whose contract names all of their modules.
ORDERED = {name: layers for each, layers in contracts() if (name := each.removeprefix("envbuild.")) in lists()}


def places(lines: list[list[str]]) -> dict[str, int]:
    return {name: number for number, line in enumerate(lines) for name in line}


@pytest.mark.parametrize("package", sorted({*lists()} - {"cli"}))
def test_every_module_of_a_package_is_named_once(package: str) -> None:
    named = [name for line in lists()[package] for name in line]
    assert sorted(named) == sorted(modules(PACKAGE / FOLDERS.get(package, package)))


def test_the_shared_modules_of_the_command_line_exist() -> None:
    named = {name for line in lists()["cli"] for name in line}
    assert named <= modules(PACKAGE / "cli")


def test_every_package_and_every_other_module_has_a_row() -> None:
    (rows,) = blocks("Layers")
    first = [words(re.split("  +", line)[0]) for line in rows.splitlines() if "───" not in line]
    assert sorted(name for line in first for name in line) == sorted(modules(PACKAGE) - {"schemas"})
    described = {*lists(), "model", "smoke"}
    assert {path.parent.name for path in PACKAGE.glob("*/__init__.py")} - {"schemas"} <= described


def test_the_guest_s_packages_and_modules_are_named() -> None:
    (rows,) = blocks("The guest")
    named = [name for line in rows.splitlines() for name in words(re.split("  +", line)[0])]
    assert sorted(named) == sorted(modules(PACKAGE / "smoke"))


@pytest.mark.parametrize("package", sorted(ORDERED))
def test_the_lists_show_the_order_of_the_import_contracts(package: str) -> None:
    place = places(lists()[package])
    order = [[place[name] for name in layer] for layer in ORDERED[package]]
    for upper, lower in pairwise(order):
        assert max(upper) <= min(lower), (upper, lower)


def test_the_rows_show_the_order_of_the_import_contract() -> None:
    (rows,) = blocks("Layers")
    place = places([words(re.split("  +", line)[0]) for line in rows.splitlines()])
    layers = dict(contracts())["envbuild"]
    order = [{place[name] for name in layer} for layer in layers]
    assert all(len(each) == 1 for each in order)
    assert [min(each) for each in order] == sorted(min(each) for each in order)
