"""The language rules of the guest: Python 2.7 and 3.5+, NumPy and the standard library, no framework in the parent."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import GUEST, REPOSITORY, Guest

ADAPTERS = sorted((REPOSITORY / "images/recipes").glob("*/smoke.py"))
SOURCES = [*sorted(GUEST.rglob("*.py")), *ADAPTERS]
INSIDE_TESTS = sorted((REPOSITORY / "tests/smoke/inside").glob("*.py"))
TRAINING = ("make", "put", "step", "loss", "drain", "copies", "weights", "assign", "predict", "save", "restore", "evidence")


def test_vermin_finds_nothing_newer_than_2_7_and_3_5() -> None:
    vermin = [sys.executable, "-c", "import vermin; vermin.main()", "-t=2.7-", "-t=3.5-", "--violations", "--no-tips"]
    command = [*vermin, *map(str, SOURCES + INSIDE_TESTS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_size_and_imports(source: Path) -> None:
    text = source.read_text()
    assert len(text.splitlines()) <= 400
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            statements = sum(isinstance(inner, ast.stmt) for inner in ast.walk(node)) - 1
            assert statements <= 40, f"{node.name} has {statements} statements"
    outside = {
        (alias.name if isinstance(node, ast.Import) else node.module or "").split(".")[0]
        for node in tree.body
        if isinstance(node, ast.Import | ast.ImportFrom) and not (isinstance(node, ast.ImportFrom) and node.level)
        for alias in node.names
    }
    assert outside <= sys.stdlib_module_names | {"numpy"}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the guest with every adapter, because adapters can import each other."""
    folder = tmp_path_factory.mktemp("guest") / "smoke"
    shutil.copytree(GUEST, folder, ignore=shutil.ignore_patterns("__pycache__"))
    for adapter in ADAPTERS:
        shutil.copy(adapter, folder / "adapters" / f"{adapter.parent.name}.py")
    return folder


@pytest.mark.parametrize("name", [adapter.parent.name for adapter in ADAPTERS])
def test_an_adapter_can_be_read_without_its_framework(guest: Guest, installed: Path, name: str) -> None:
    """The parent process reads `style` and `limits` of the adapter, and must not import the framework."""
    program = (
        "import sys, types; guest = types.ModuleType('envbuild_smoke'); guest.__path__ = [sys.argv[1]]\n"
        "sys.modules['envbuild_smoke'] = guest\n"
        "from envbuild_smoke import adapters; from envbuild_smoke.machine_checks import limits\n"
        "kind = adapters.load(sys.argv[2])\n"
        "assert all(adapters.style_of(kind, device, {}) in ('process', 'single') for device in ('cpu', 'cuda'))\n"
        "methods = ['exercise'] if limits.of(kind, {}).training else sys.argv[3:]\n"
        "sides = getattr(kind, 'sides', (kind,))\n"
        "print(kind.name, [m for m in methods for side in sides if not hasattr(side, m)],\n"
        "      [m for m in ('setup', 'versions') if not hasattr(kind, m)])"
    )
    command = [guest.executable, "-c", program, str(installed), name, *TRAINING]
    done = subprocess.run(command, env=guest.env(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said, missing = done.stdout.split(maxsplit=1)
    assert said.replace("-", "_") == name.lstrip("_"), "a module's name cannot have the hyphen that a framework's may have"
    assert missing == "[] []\n"
